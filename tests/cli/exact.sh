# Exact runs as a user makes them: the same checkpoints and metrics with any number of threads, also
# when a run is continued with another number.
# shellcheck shell=bash
. "$SRC/tests/cli/lib.sh"

# 50 samples over 8 shards; the last batch of an epoch has 5, so that shards stay empty.
net="[{conv: 8, padding: 1}, batchnorm, relu, maxpool, flatten, {dropout: 0.3}, dense]"
run=(--model "$net" --data digits --hold-out 0.03 --batch 50 --optimizer adamw --exact --log-every 7 --quiet)

# Everything but the times.
numbers() { sed -E 's/,"(samples_per_s|seconds|[a-z]+_s|peak_rss_mib)":[^,}]*//g' "$1/metrics.jsonl"; }

for threads in 1 2 3 8; do
    expect_exit 0 "$SHOAL" train "${run[@]}" --threads "$threads" --epochs 2 --out "t$threads"
    for file in t1/checkpoints/*; do expect_same "$file" "t$threads/${file#t1/}"; done
    numbers t1 >first.jsonl
    numbers "t$threads" >other.jsonl
    expect_same first.jsonl other.jsonl
done
expect_text '"test_accuracy":' first.jsonl
steps=$(find t1/checkpoints -name 'model-*' | sort | tail -n 1)
[ "$((10#$(basename "$steps" .safetensors | cut -d- -f2)))" -eq 60 ] || fail "not 2 epochs of 30 steps"

# Stopped in the middle of an epoch, continued with another number of threads.
expect_exit 0 "$SHOAL" train "${run[@]}" --threads 3 --steps 41 --out parts
expect_exit 0 "$SHOAL" train parts --resume --threads 2 --steps 0 --epochs 2 --quiet
for part in model optimizer; do
    expect_same "t1/checkpoints/$part-00000060.safetensors" "parts/checkpoints/$part-00000060.safetensors"
done

# The run file keeps both settings; another number of shards is another run.
expect_text "exact: true" t1/run.yaml
expect_text "shards: 8" t1/run.yaml
expect_exit 0 "$SHOAL" train "${run[@]}" --threads 2 --shards 5 --epochs 2 --out five
! cmp -s t1/checkpoints/model-00000060.safetensors five/checkpoints/model-00000060.safetensors ||
    fail "the number of shards changes nothing"
expect_exit 0 "$SHOAL" train "${run[@]}" --no-quiet --threads 6 --shards 5 --steps 1 --out many
expect_text "6 threads have only 5 shards to compute"
expect_complaint 2 "shards" "$SHOAL" train "${run[@]}" --shards 0 --out none

# `shoal eval` of an exact run takes the same way.
for threads in 1 3; do
    expect_exit 0 "$SHOAL" eval t1 --threads "$threads" --json
    cp stdout "eval-$threads"
done
expect_same eval-1 eval-3
