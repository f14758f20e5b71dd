# A federated server and its clients over real TLS on loopback, with kills, strangers and liars.
# shellcheck shell=bash
. "$SRC/tests/cli/lib.sh"

run=(--model "{name: mlp, hidden: [16]}" --data digits --optimizer sgd --lr 0.1 --batch 32 --threads 1 --kernels default)
own=(--data digits --threads 1 --kernels default)

# serve FOLDER ARGUMENT...   starts a server; its address is in $url, join lines in FOLDER.lines.
serve() {
    local folder=$1
    shift
    # shellcheck disable=SC2154 # PATIENCE is the library's
    : >"$folder.lines"
    "$SHOAL" fed serve "${run[@]}" --host 127.0.0.1 --poll-ms 50 --out "$folder" "$@" >>"$folder.lines" 2>>"$folder.log" &
    server=$!
    for _ in $(seq $((PATIENCE * 20))); do
        url=$(sed -nE 's/^listening on ([^,]*),.*/\1/p' "$folder.log" | tail -n 1)
        [ -z "$url" ] || [ "$(grep -c "^listening" "$folder.log")" -lt "${starts:-1}" ] || return 0
        kill -0 "$server" 2>/dev/null || fail "the server ended: $(cat "$folder.log")"
        sleep 0.05
    done
    fail "the server does not listen: $(cat "$folder.log")"
}

# Words of join line N of a folder: URL TOKEN --ca FINGERPRINT.
invitation() {
    for _ in $(seq $((PATIENCE * 20))); do
        [ "$(wc -l <"$1.lines")" -lt "$2" ] || break
        sleep 0.05
    done
    sed -n "${2}s/^shoal join //p" "$1.lines"
}

# join NAME INVITATION...   a client in the background; its process is in $client.
join() {
    local name=$1
    shift
    "$SHOAL" join "$@" "${own[@]}" --out "$name" >"$name.out" 2>"$name.err" &
    client=$!
}

end_well() { wait "$1" || fail "exit $? of $2: $(tail -n 5 "$2.err" "$2.log" 2>/dev/null)"; }

# Closed rounds of a server's folder.
closed() { "$SHOAL" fed status "$1" --json | sed -E 's/.*"closed":([0-9]+).*/\1/'; }

await_round() {
    for _ in $(seq $((PATIENCE * 20))); do
        [ "$(closed "$1")" -lt "$2" ] || return 0
        sleep 0.05
    done
    fail "round $2 does not close: $(tail -n 5 "$1.log")"
}

case_three_clients_train_one_model() {
    serve srv --listen 127.0.0.1:0 --min-clients 3 --rounds 5
    local clients=()
    for i in 1 2 3; do
        # shellcheck disable=SC2046 # a line is words
        join "c$i" $(invitation srv $i) --hold-out 0.2 --personalise finetune
        clients+=("$client")
    done
    for i in 0 1 2; do end_well "${clients[$i]}" "c$((i + 1))"; done
    end_well "$server" srv
    for i in 1 2 3; do
        expect_text "counted        5 updates" "c$i.out"
        expect_file "c$i/model.safetensors"
        expect_file "c$i/personal.safetensors"
        expect_text "with the personal one" "c$i.out"
        [ "$(stat -c %a "c$i/client.pem")" = 600 ] || fail "others can read the key"
    done
    cmp c1/model.safetensors c2/model.safetensors || fail "the clients have different models"
    expect_exit 0 "$SHOAL" eval c1/model.safetensors --data digits
    expect_exit 0 "$SHOAL" fed status srv
    expect_text "rounds         5 of 5" stdout
    expect_exit 0 "$SHOAL" fed clients srv
    [ "$(grep -c "counted in 5 rounds, last in round 5" stdout)" -eq 3 ] || fail "$(cat stdout)"
    [ "$(stat -c %a srv/authority.pem)" = 600 ] || fail "others can read the authority's key"
    [ "$(grep -c '"event":"eval"' srv/metrics.jsonl)" -ge 1 ] || fail "$(cat srv/metrics.jsonl)"
}

# The server is killed again and again, at any point; its port stays, and clients find it again.
case_a_killed_server_goes_on_where_it_was() {
    serve srv --listen 127.0.0.1:0 --min-clients 2 --rounds 30 --local-epochs 4
    local port=${url##*:} first second last=0 now
    # shellcheck disable=SC2046
    join a $(invitation srv 1)
    first=$client
    # shellcheck disable=SC2046
    join b $(invitation srv 2)
    second=$client
    for kill in 1 2 3 4 5; do
        await_round srv $((last + 1))
        sleep "0.0$((RANDOM % 10))"
        kill -KILL "$server"
        wait "$server" || true
        now=$(closed srv)
        [ "$now" -ge "$last" ] || fail "round $now after $last"
        last=$now
        starts=$((kill + 1))
        serve srv --listen "127.0.0.1:$port" --min-clients 2 --rounds 30 --local-epochs 4
    done
    end_well "$first" a
    end_well "$second" b
    end_well "$server" srv
    [ "$(closed srv)" -eq 30 ] || fail "$(closed srv) rounds"
    # Every round is there once, in the store and in the metrics that were written.
    "$SHOAL" fed clients srv --json >listed
    [ "$(grep -c '"rounds":30,"last_round":30' listed)" -eq 2 ] || fail "$(cat listed)"
    expect_exit 0 "$SHOAL" fed clients srv
}

# A killed client comes back with its certificate, without a token.
case_a_killed_client_comes_back_without_a_token() {
    serve srv --listen 127.0.0.1:0 --min-clients 2 --rounds 12 --local-epochs 4 --deadline 5
    # shellcheck disable=SC2046
    join a $(invitation srv 1)
    local first=$client
    # shellcheck disable=SC2046
    join b $(invitation srv 2)
    await_round srv 2
    kill -KILL "$client"
    wait "$client" || true
    join b "$url"
    end_well "$client" b
    end_well "$first" a
    end_well "$server" srv
    [ "$("$SHOAL" fed clients srv | wc -l)" -eq 2 ] || fail "it became another client"
}

# Nobody waits for ever: neither a client without a server, nor a round for one who is revoked.
case_waits_end() {
    serve srv --listen 127.0.0.1:0 --min-clients 2 --rounds 1000000
    # shellcheck disable=SC2046
    join a $(invitation srv 1) --patience 0.02
    local first=$client
    # shellcheck disable=SC2046
    join b $(invitation srv 2)
    await_round srv 2
    kill -KILL "$server" "$client"
    code=0
    wait "$first" || code=$?
    [ "$code" -eq 1 ] || fail "exit $code: $(cat a.err)"
    expect_text "has not answered" a.err
}

case_strangers_are_kept_out() {
    serve srv --listen 127.0.0.1:0 --min-clients 2 --rounds 50 --invite 3
    read -r _ token _ ca <<<"$(invitation srv 1)"
    expect_exit 1 "$SHOAL" join "$url" "$token" --ca "sha256:$(printf '%064d' 0)" "${own[@]}" --out wrong
    expect_text "not that of --ca"
    expect_no_file wrong/client.pem
    expect_exit 2 "$SHOAL" join "$url" "$token" "${own[@]}" --out wrong
    expect_text "fingerprint is needed"
    expect_exit 2 "$SHOAL" join "$url" 0123456789abcdef0123456789abcdef --ca "$ca" "${own[@]}" --out wrong
    expect_text "not known here"
    expect_exit 2 "$SHOAL" join http://127.0.0.1:1 "$token" --ca "$ca" "${own[@]}" --out plain
    expect_text "no address of a federated server"
    # An invitation that has expired.
    line=$("$SHOAL" fed invite srv --token-hours 0.0001)
    sleep 1.5
    # shellcheck disable=SC2086
    expect_exit 2 "$SHOAL" join ${line#shoal join } "${own[@]}" --out late
    expect_text "has expired"
    # One who is revoked.
    join a "$url" "$token" --ca "$ca"
    for _ in $(seq $((PATIENCE * 20))); do
        [ "$("$SHOAL" fed clients srv | wc -l)" -lt 1 ] || break
        sleep 0.05
    done
    expect_exit 0 "$SHOAL" fed revoke srv 1
    expect_exit 2 "$SHOAL" fed revoke srv 7
    code=0
    wait "$client" || code=$?
    [ "$code" -eq 2 ] || fail "exit $code: $(cat a.err)"
    expect_text "revoked" a.err
    kill -KILL "$server"
}

# The client of tests/fed/client.py is written from docs/federated-protocol.md alone.
case_a_client_in_python_takes_part_and_liars_do_no_harm() {
    python3 -c 'import cryptography' 2>/dev/null || exit 77
    serve srv --listen 127.0.0.1:0 --min-clients 2 --rounds 4 --invite 3 --deadline 1
    # shellcheck disable=SC2046
    set -- $(invitation srv 3)
    # Nothing is trained before two are there: one asks, and waits.
    # shellcheck disable=SC2046
    join a $(invitation srv 1)
    local first=$client
    python3 "$SRC/tests/fed/client.py" "$1" "$2" "$4" nan huge shape long model version replay nobody path endless >liar ||
        fail "$(cat liar)"
    for line in "nan 200 refused value 0 of the update is nan" "huge 200 refused value 0 of the update is 1e+30" \
        "shape 200 refused it has another shape" "long 400 an update of" "model 200 refused it was trained from another model" \
        "version 400 a message of protocol version 2" "replay 403 this token has been used" "nobody 401" \
        "path 404 404 404 404 404 404 404" "endless 413"; do
        expect_text "$line" liar
    done
    # shellcheck disable=SC2046
    set -- $(invitation srv 2)
    python3 "$SRC/tests/fed/client.py" "$1" "$2" "$4" honest >said 2>said.err || fail "$(cat said.err)"
    end_well "$first" a
    end_well "$server" srv
    grep -qE '^honest [1-4]$' said || fail "$(cat said)"
    [ "$(closed srv)" -eq 4 ] || fail "$(closed srv) rounds"
}
