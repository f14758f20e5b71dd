# shoal explain pipeline: charts, JSON, pictures, and what it refuses.
# shellcheck shell=bash
. "$SRC/tests/cli/lib.sh"

case_defaults_explain_1f1b_on_four_ranks() {
    expect_exit 0 "$SHOAL" explain pipeline --help
    for flag in --schedule -p -m --times --link --svg --json; do expect_text "$flag" stdout; done
    expect_exit 0 "$SHOAL" explain pipeline
    expect_text "pipeline by 1f1b, 4 ranks, 8 micro-batches" stdout
    expect_text "one step: makespan 33, idle 27.27 % of it" stdout
    cp stdout defaults
    expect_exit 0 "$SHOAL" explain --schedule 1f1b -p 4 -m 8 pipeline
    expect_same defaults stdout
    ! grep -n ' $' defaults || fail "blanks at the end of a line"
}

case_zero_bubble_schedules_take_times_and_a_link() {
    expect_exit 0 "$SHOAL" explain pipeline --schedule zb-h1 --times 20ms,20ms,15ms -p 2 -m 4 --link 1Gbit,50us --size 64k
    expect_text "link: 1 Gbit/s, 50 us; messages of 64 KiB" stdout
}

case_json_and_picture_agree_with_theory() {
    expect_exit 0 "$SHOAL" explain pipeline --schedule interleaved:3 -p 3 -m 5 --json --svg chart.svg
    expect_text "drawn: chart.svg" stderr
    grep -q '</svg>' chart.svg || fail "half a picture"
    python=$(command -v python3 || true)
    if [ -n "$python" ]; then
        "$python" -c 'import json, xml.dom.minidom
seen = json.load(open("stdout"))
assert (seen["ranks"], seen["chunks"], len(seen["per_rank"])) == (3, 3, 3), seen
assert abs(seen["makespan"] - (5 * 3 + 2 * 3 / 3)) < 1e-9, seen["makespan"]
xml.dom.minidom.parse("chart.svg")' || fail "JSON or picture"
    fi
}

# As many as are allowed, and what is not.
case_too_much_or_too_little_is_refused() {
    expect_exit 0 "$SHOAL" explain pipeline -p 512 -m 64
    expect_text "too long for a chart in text" stdout
    expect_complaint 2 "did you mean 'gpipe'" "$SHOAL" explain pipeline --schedule gpip
    expect_complaint 2 "takes no chunks" "$SHOAL" explain pipeline --schedule 1f1b:2
    expect_complaint 2 "number from 1 to 64" "$SHOAL" explain pipeline --schedule interleaved:0
    expect_complaint 2 "too much for a timeline" "$SHOAL" explain pipeline -p 4096 -m 65536
    expect_complaint 2 "too much for a picture" "$SHOAL" explain pipeline -p 100 --svg no.svg
    expect_no_file no.svg
    for times in 1,1 1,1,1,1 a,1,1 -1,1,1 0,0,0 1ms,1,1 1e999,1,1 nan,1,1 1,,1 ""; do
        expect_complaint 2 "--times" "$SHOAL" explain pipeline --times "$times"
    done
    expect_complaint 2 "--link needs the times" "$SHOAL" explain pipeline --link 1Gbit,50us
    expect_complaint 2 "-p" "$SHOAL" explain pipeline -p 0
}
