# shoal explain cost: the alpha-beta formulas of a run file's net, as text and JSON, and what it refuses.
# shellcheck shell=bash
. "$SRC/tests/cli/lib.sh"

alexnet="$SRC/examples/alexnet-cost.yaml"
link=(--link "6GB,2us" --quiet)

case_alexnet_costs_what_the_paper_says() {
    expect_exit 0 "$SHOAL" explain cost "$alexnet" -n 512 "${link[@]}"
    expect_text "layout data=512" stdout
    grep -qE '^total +62367776 +83\.28 .* 83\.28$' stdout || fail "$(grep ^total stdout)"
    ! grep -n ' $' stdout || fail "blanks at the end of a line"
    expect_exit 0 "$SHOAL" explain cost "$alexnet" -n 512 --layout tensor=8 "${link[@]}"
    grep -qE '^total .* 25\.16$' stdout || fail "$(grep ^total stdout)"
    expect_exit 0 "$SHOAL" explain cost -n 512 "$alexnet" --layout '{conv: data=512, dense: tensor=32}' "${link[@]}"
    grep -qE '^total .* 11\.23$' stdout || fail "$(grep ^total stdout)"
    expect_text "from the layout of convolutions to that of the rest" stdout
}

case_json_holds_every_term() {
    python=$(command -v python3) || exit 77
    expect_exit 0 "$SHOAL" explain cost "$alexnet" -n 512 --layout tensor=8 "${link[@]}" --json
    "$python" -c 'import json
seen = json.load(open("stdout"))
total = sum(term["seconds"] for layer in seen["layers"] for term in layer["terms"])
assert abs(total - seen["layout_s"]) < 1e-12 and abs(total - 25.16e-3) < 5e-6, (total, seen["layout_s"])
assert seen["layout"] == "data=64,tensor=8" and seen["workers"] == 512' || fail "JSON"
}

case_other_nets_have_costs_too() {
    expect_exit 0 "$SHOAL" explain cost --model gpt --data synthetic:tokens=65,context=64,count=256 -n 4 --layout tensor=2
    expect_text "all-reduce dX" stdout
    expect_exit 0 "$SHOAL" explain cost --model mlp --data digits
    expect_text "1 worker, layout data=1" stdout
    expect_exit 0 "$SHOAL" explain cost --model lenet --data synthetic:classes=10,shape=1x28x28,count=64 -n 8 --layout space=2x2
    expect_text "documents: a + " stdout
}

case_what_cannot_be_is_refused() {
    expect_complaint 2 "makes 8 workers, not 6" "$SHOAL" explain cost "$alexnet" -n 6 --layout tensor=8 --quiet
    expect_complaint 2 "not a list of" "$SHOAL" explain cost "$alexnet" --layout rows=2 --quiet
    expect_complaint 2 "priced by its schedule" "$SHOAL" explain cost "$alexnet" --layout pipe=2 --quiet
    expect_complaint 2 "no rate" "$SHOAL" explain cost "$alexnet" --link fast --quiet
    expect_complaint 1 "no_such.yaml" "$SHOAL" explain cost no_such.yaml --quiet
}
