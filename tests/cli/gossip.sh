# Local and gossip schemes: they learn, resume, stop when asked, and refuse what does not go along.
# shellcheck shell=bash
. "$SRC/tests/cli/lib.sh"

common=(--model mlp --data digits --threads 1 --seed 3 --kernels default --lr 0.1)
lockstep=(local:4 post-local:4 adacomm:8 diloco:6 gossip sgp sgp:2)

accuracy() { sed -n 's/^test accuracy *//p' "$WORK/stdout"; }
test_loss() { sed -n 's/^test loss *//p' "$WORK/stdout"; }

prepare() {
    expect_exit 0 "$SHOAL" train "${common[@]}" --epochs 5 --out one
    accuracy >one.accuracy
}

case_every_scheme_learns_as_well_as_one_worker() {
    one=$(cat one.accuracy)
    for sync in "${lockstep[@]}" adpsgd gossip-pull gossip-push gossip-pull:4 gossip-push:4; do
        expect_exit 0 "$SHOAL" train "${common[@]}" --epochs 5 -n 4 --sync "$sync" --out "all-${sync/:/-}"
        awk "BEGIN { exit !($(accuracy) > $one - 0.06) }" || fail "$sync: accuracy $(accuracy), alone $one"
    done
}

case_every_graph_learns_as_well_as_one_worker() {
    one=$(cat one.accuracy)
    for graph in ring torus exponential complete; do
        expect_exit 0 "$SHOAL" train "${common[@]}" --epochs 5 -n 5 --sync gossip --graph "$graph" --out "g-$graph"
        awk "BEGIN { exit !($(accuracy) > $one - 0.06) }" || fail "$graph: accuracy $(accuracy), alone $one"
    done
}

# Through a codec too: what models changed by, or how far they moved from their public copies, travels.
case_every_codec_learns_as_well_and_sends_less() {
    one=$(cat one.accuracy)
    for sync in local:4 post-local:4 adacomm:8 diloco:6 gossip; do
        for codec in fp16 topk:10% qsgd:4 onebit; do
            expect_exit 0 "$SHOAL" train "${common[@]}" --epochs 5 -n 4 --sync "$sync" --compress "$codec" \
                --out "c-${sync/:/-}-${codec%%:*}"
            awk "BEGIN { exit !($(accuracy) > $one - 0.06) }" ||
                fail "$sync with $codec: accuracy $(accuracy), alone $one"
            less=$(sed -n 's/.*; \([0-9.]*\) times less than uncompressed.*/\1/p' stderr)
            awk "BEGIN { exit !(${less:-0} > 1.4) }" || fail "$sync with $codec sends ${less:-?} times less"
        done
    done
}

case_mixing_rate_is_taken() {
    one=$(cat one.accuracy)
    expect_exit 0 "$SHOAL" train "${common[@]}" --epochs 5 -n 4 --sync gossip --graph complete --mixing 0.1 \
        --compress topk:5% --out c-mixing
    awk "BEGIN { exit !($(accuracy) > $one - 0.06) }" || fail "--mixing 0.1: accuracy $(accuracy), alone $one"
}

# With plain SGD an average of all models after every step is bulk-synchronous training.
case_averaging_after_every_step_is_bsp() {
    expect_exit 0 "$SHOAL" train "${common[@]}" --epochs 3 -n 3 --out bsp
    bsp=$(test_loss)
    for sync in local:1 "gossip --graph complete --no-overlap"; do
        # shellcheck disable=SC2086
        expect_exit 0 "$SHOAL" train "${common[@]}" --epochs 3 -n 3 --sync $sync --out "as-${sync%%:*}"
        awk "BEGIN { d = $(test_loss) - $bsp; exit !(d * d < 1e-6) }" || fail "$sync: $(test_loss), bsp $bsp"
    done
}

# Lockstep schemes resume bit for bit, with state of the optimizer and of the scheme. What depends on
# the length of the run (a switch, a stretch) is given in steps, or ends inside the first part.
case_lockstep_schemes_resume_bit_for_bit() {
    for sync in "${lockstep[@]}"; do
        flags=(--optimizer adamw --lr 0.003 -n 3 --sync "$sync" --checkpoint-every 12)
        [[ $sync != post-local* ]] || flags+=(--sync-switch 15)
        name=r-${sync/:/-}
        expect_exit 0 "$SHOAL" train "${common[@]}" "${flags[@]}" --steps 40 --out "$name"
        mkdir -p "$name-half/checkpoints"
        cp "$name"/run.yaml "$name-half"
        cp "$name"/checkpoints/*-00000024.* "$name-half/checkpoints"
        expect_exit 0 "$SHOAL" train "$name-half" --resume
        for file in model optimizer; do
            expect_same "$name/checkpoints/$file-00000040.safetensors" "$name-half/checkpoints/$file-00000040.safetensors"
        done
    done
}

# Residuals go into the checkpoint with the rest, and public copies are agreed on at every meeting.
case_residuals_resume_bit_for_bit() {
    for sync in local:4 adacomm:8 diloco:6 gossip; do
        for codec in topk:10% onebit; do
            flags=(--optimizer momentum -n 3 --sync "$sync" --compress "$codec" --checkpoint-every 12)
            name=rc-${sync/:/-}-${codec%%:*}
            expect_exit 0 "$SHOAL" train "${common[@]}" "${flags[@]}" --steps 40 --out "$name"
            mkdir -p "$name-half/checkpoints"
            cp "$name"/run.yaml "$name-half"
            cp "$name"/checkpoints/*-00000024.* "$name-half/checkpoints"
            expect_exit 0 "$SHOAL" train "$name-half" --resume
            for file in model optimizer; do
                expect_same "$name/checkpoints/$file-00000040.safetensors" \
                    "$name-half/checkpoints/$file-00000040.safetensors"
            done
        done
    done
}

# SIGTERM leaves a checkpoint, and the run goes on from it.
case_sigterm_leaves_a_checkpoint() {
    for sync in local:4 gossip adpsgd gossip-pull:2 gossip-push:2 sgp:1; do
        name=stop-${sync/:/-}
        "$SHOAL" train "${common[@]}" --epochs 200000 --eval-every 1000000 --checkpoint-every 200 -n 3 \
            --sync "$sync" --out "$name" >"$name.out" 2>"$name.err" &
        parent=$!
        wait_until has_checkpoint "$name" || fail "$sync wrote no checkpoint: $(cat "$name.err")"
        kill -TERM "$parent"
        code=0
        wait "$parent" || code=$?
        [ "$code" -ne 0 ] || fail "$sync: a stopped run ended as if it were done"
        expect_text "stopped after step" "$name.err"
        last=$(sed -n 's/.*stopped after step \([0-9]*\) of.*/\1/p' "$name.err" | tail -n 1)
        expect_exit 0 "$SHOAL" train "$name" --resume --steps "$((last + 7))"
    done
}

# What does not go together is refused before training.
case_what_does_not_go_together_is_refused() {
    expect_complaint 2 "push-sum counts on all of it" "$SHOAL" train "${common[@]}" -n 2 --sync sgp \
        --compress topk:1% --out bad
    for sync in adpsgd gossip-pull gossip-push; do
        expect_complaint 2 "pairs here meet by chance" "$SHOAL" train "${common[@]}" -n 2 --sync "$sync" \
            --compress fp16 --out bad
    done
    expect_complaint 2 "in two rounds" "$SHOAL" train "${common[@]}" -n 2 --sync gossip --compress powersgd --out bad
    for sync in local:4 diloco gossip; do
        expect_complaint 2 "momentum of gradients" "$SHOAL" train "${common[@]}" -n 2 --sync "$sync" \
            --optimizer momentum --compress dgc --out bad
    done
    expect_complaint 2 "leads one way" "$SHOAL" train "${common[@]}" -n 4 --sync adpsgd --graph exponential --out bad
    expect_complaint 2 "T is '0'" "$SHOAL" train "${common[@]}" -n 4 --sync gossip-pull:0 --out bad
    expect_complaint 2 "exponential graph, not 'ring'" "$SHOAL" train "${common[@]}" -n 4 --sync sgp --graph ring --out bad
    expect_complaint 2 "graph" "$SHOAL" train "${common[@]}" -n 4 --sync gossip --graph rnig --out bad
    expect_complaint 2 "--exact" "$SHOAL" train "${common[@]}" -n 4 --sync gossip --exact --out bad
    expect_no_file bad
}

# explain gossip: the eigenvalues of the literature, as text and as JSON.
case_eigenvalues_are_those_of_the_literature() {
    for pair in 4:0.333 8:0.805 16:0.949; do
        expect_exit 0 "$SHOAL" explain gossip --graph ring -n "${pair%:*}"
        expect_text "second eigenvalue (modulus): ${pair#*:}"
    done
    expect_exit 0 "$SHOAL" explain gossip --graph exponential -n 8 --json
    expect_text '"neighbours":3'
    expect_text '"second_eigenvalue":0.5'
    expect_text '"matrix":[[0.25,0.0,0.0,0.0,0.25,0.0,0.25,0.25]'
    expect_exit 0 "$SHOAL" explain gossip --graph torus -n 1000
    expect_text "grid: 25 x 40"
    expect_complaint 2 "no graph 'rign'" "$SHOAL" explain gossip --graph rign
}
