# Exact runs as a user makes them: the same checkpoints and metrics with any number of workers and
# threads, also when a run is continued with other numbers.
# shellcheck shell=bash
. "$SRC/tests/cli/lib.sh"

# 49 samples, which no number of workers divides, over 8 shards; the last batch of an epoch has 5, so
# that shards stay empty.
net="[{conv: 8, padding: 1}, batchnorm, relu, maxpool, flatten, {dropout: 0.3}, dense]"
run=(--model "$net" --data digits --hold-out 0.0494 --batch 49 --optimizer adamw --exact --log-every 7 --quiet)

# Everything but times, bytes and the number of workers, and what each of several did.
numbers() {
    sed -E -e '/"event":"worker"/d' -e 's/,"(samples_per_s|seconds|[a-z]+_s|peak_rss_mib|workers|sent_bytes|dense_bytes|all_sent_bytes|all_dense_bytes)":[^,}]*//g' \
        "$1/metrics.jsonl"
}
same_end() {
    for part in model optimizer; do
        expect_same "t1/checkpoints/$part-00000060.safetensors" "$1/checkpoints/$part-00000060.safetensors"
    done
}
same_all() {
    for file in t1/checkpoints/*.safetensors; do expect_same "$file" "$1/${file#t1/}"; done
    numbers t1 >first.jsonl
    numbers "$1" >other.jsonl
    expect_same first.jsonl other.jsonl
}

# Under MPI too, its own all-reduce included; and a run goes from there to shared memory.
under_mpi() {
    local name=$1
    shift
    for allreduce in auto ring mpi; do
        expect_exit 0 timeout "$PATIENCE" "$@" -n 4 "$SHOAL" train "${run[@]}" --threads 1 --epochs 2 \
            --allreduce "$allreduce" --out "$name-$allreduce"
        same_all "$name-$allreduce"
    done
    expect_exit 0 timeout "$PATIENCE" "$@" -n 3 "$SHOAL" train "${run[@]}" --threads 1 --epochs 2 --sync ps \
        --out "$name-ps"
    same_end "$name-ps"
    expect_exit 0 timeout "$PATIENCE" "$@" -n 2 "$SHOAL" train "${run[@]}" --threads 2 --steps 17 --out "$name"
    expect_exit 0 "$SHOAL" train "$name" --resume -n 3 --threads 1 --steps 0 --epochs 2 --quiet
    same_end "$name"
}

prepare() {
    expect_exit 0 "$SHOAL" train "${run[@]}" --threads 1 --epochs 2 --out t1
}

case_threads_change_no_bit() {
    for threads in 2 3 8; do
        expect_exit 0 "$SHOAL" train "${run[@]}" --threads "$threads" --epochs 2 --out "t$threads"
        same_all "t$threads"
        expect_same {t1,"t$threads"}/checkpoints/manifest-00000060.json
    done
    expect_text '"test_accuracy":' first.jsonl
    steps=$(find t1/checkpoints -name 'model-*' | sort | tail -n 1)
    [ "$((10#$(basename "$steps" .safetensors | cut -d- -f2)))" -eq 60 ] || fail "not 2 epochs of 30 steps"
}

case_buckets_change_no_bit() {
    for mib in 0.001 0.01 64; do
        expect_exit 0 "$SHOAL" train "${run[@]}" --bucket-mb "$mib" -n 3 --threads 1 --epochs 2 --out "mib$mib"
        same_all "mib$mib"
    done
    expect_exit 0 "$SHOAL" train "${run[@]}" --bucket-mb 0.001 --no-overlap -n 2 --threads 1 --epochs 2 --out no-overlap
    same_all no-overlap
    expect_exit 0 "$SHOAL" train "${run[@]}" --clip-norm 0.5 --clip-value 0.1 --threads 1 --epochs 1 --out clip1
    expect_exit 0 "$SHOAL" train "${run[@]}" --clip-norm 0.5 --clip-value 0.1 --bucket-mb 0.001 -n 2 --threads 1 --epochs 1 --out clip2
    expect_same {clip1,clip2}/checkpoints/model-00000030.safetensors
}

case_workers_change_no_bit() {
    for workers in 2 3 4 6 8; do
        expect_exit 0 "$SHOAL" train "${run[@]}" -n "$workers" --threads 1 --epochs 2 --out "w$workers"
        same_all "w$workers"
    done
    expect_exit 0 "$SHOAL" train "${run[@]}" -n 3 --threads 2 --epochs 2 --out both
    same_all both
    expect_exit 0 "$SHOAL" train "${run[@]}" -n 11 --threads 1 --epochs 2 --out idle
    same_all idle
}

case_all_reduce_changes_no_bit() {
    for allreduce in ring halving-doubling tree hierarchical direct; do
        expect_exit 0 "$SHOAL" train "${run[@]}" -n 3 --threads 1 --allreduce "$allreduce" --epochs 2 \
            --out "$allreduce"
        same_all "$allreduce"
    done
}

# Parameter servers add up the same integers: any number of workers and servers, any placement.
case_parameter_servers_change_no_bit() {
    for layout in "2 1 range" "3 2 variable" "3 4 range" "5 3 range" "11 2 variable"; do
        read -r workers servers placement <<<"$layout"
        out=ps-$workers-$servers
        expect_exit 0 "$SHOAL" train "${run[@]}" -n "$workers" --threads 1 --epochs 2 --sync ps \
            --servers "$servers" --placement "$placement" --out "$out"
        same_end "$out"
    done
    expect_exit 0 "$SHOAL" train "${run[@]}" -n 3 --threads 1 --epochs 2 --sync ps --servers 2 --server-ranks own \
        --out apart
    same_end apart
    expect_exit 0 "$SHOAL" train "${run[@]}" -n 3 --threads 2 --epochs 2 --sync ssp:0 --out ssp0
    same_end ssp0
    expect_exit 0 "$SHOAL" simulate "${run[@]}" -n 4 --epochs 2 --sync ps --compute exp:1ms --jitter 1ms \
        --out simulated
    same_end simulated
    expect_exit 0 "$SHOAL" train "${run[@]}" -n 3 --threads 1 --sync ps --steps 17 --out served
    expect_exit 0 "$SHOAL" train served --resume -n 2 --sync bsp --steps 41 --quiet
    expect_exit 0 "$SHOAL" train served --resume -n 4 --sync ps --servers 2 --steps 0 --epochs 2 --quiet
    same_end served
}

case_servers_change_no_bit_of_any_optimizer() {
    rules=(--model "{name: mlp, hidden: [70, 33]}" --data digits --batch 50 --exact --quiet --threads 1 --steps 40
        --lr 0.01)
    for rule in sgd momentum nesterov adam adagrad rmsprop lars lamb; do
        placement=range
        case $rule in lars | lamb) placement=variable ;; esac
        expect_exit 0 "$SHOAL" train "${rules[@]}" --optimizer "$rule" --out "alone-$rule"
        expect_exit 0 "$SHOAL" train "${rules[@]}" --optimizer "$rule" -n 3 --sync ps --placement "$placement" \
            --out "served-$rule"
        for file in "alone-$rule"/checkpoints/*.safetensors; do
            expect_same "$file" "served-$rule/checkpoints/$(basename "$file")"
        done
    done
}

# A branch that shards drop for themselves, most of them: a worker without it must know of those that took it.
case_dropped_paths_change_no_bit() {
    branch="{dense: 16}, {droppath: 0.8, name: d}, {add: , from: [d, tanh1]}"
    paths=(--model "[flatten, {dense: 16}, tanh, $branch, tanh, dense]" --data digits --batch 50 --exact
        --shards 4 --quiet --threads 1 --steps 40 --optimizer momentum --lr 0.05 --weight-decay 0.01)
    expect_exit 0 "$SHOAL" train "${paths[@]}" --out paths
    for workers in 2 3 4; do
        expect_exit 0 "$SHOAL" train "${paths[@]}" -n "$workers" --overwrite --out paths-more
        for file in paths/checkpoints/*.safetensors; do
            expect_same "$file" "paths-more/checkpoints/$(basename "$file")"
        done
    done
}

# Stopped in the middle of an epoch, continued with other numbers of workers and threads.
case_resume_with_other_numbers_changes_no_bit() {
    expect_exit 0 "$SHOAL" train "${run[@]}" --threads 3 --steps 41 --out parts
    expect_exit 0 "$SHOAL" train parts --resume --threads 2 --steps 0 --epochs 2 --quiet
    same_end parts
    expect_exit 0 "$SHOAL" train "${run[@]}" -n 4 --threads 1 --steps 17 --out fewer
    expect_exit 0 "$SHOAL" train fewer --resume -n 2 --steps 41 --quiet
    expect_exit 0 "$SHOAL" train fewer --resume -n 1 --threads 2 --steps 0 --epochs 2 --quiet
    same_end fewer
    expect_exit 0 "$SHOAL" train "${run[@]}" -n 4 --threads 1 --steps 17 --out halved
    expect_exit 0 "$SHOAL" train halved --resume -n 2 --threads 1 --steps 0 --epochs 2 --quiet
    same_end halved
}

case_mpi_changes_no_bit() {
    if [ -z "${SANITIZED:-}" ]; then  # MPI itself leaks
        [ -z "${MPIRUN_OPENMPI:-}" ] || under_mpi openmpi "$MPIRUN_OPENMPI" --allow-run-as-root --oversubscribe
        [ -z "${MPIRUN_MPICH:-}" ] || under_mpi mpich "$MPIRUN_MPICH"
    fi
}

# A loss that is not finite is explained by the worker that has it, in the words of a single one.
case_infinite_loss_is_explained_in_the_same_words() {
    bad=(--model "[flatten, {dense: 30}, relu, dense]" --data digits --exact --lr 1e6 --steps 60 --quiet)
    expect_complaint 1 "first in layer" "$SHOAL" train "${bad[@]}" --threads 1 --out bad1
    said=$(sed -n 's/^shoal: train: //p' stderr)
    expect_complaint 1 "$said" "$SHOAL" train "${bad[@]}" -n 3 --threads 1 --out bad3
    expect_complaint 1 "$said" "$SHOAL" train "${bad[@]}" -n 3 --threads 1 --sync ps --out bad-ps
}

# What would tie the bits to the workers again is refused.
case_what_ties_bits_to_workers_is_refused() {
    expect_complaint 2 "does not go with" "$SHOAL" train "${run[@]}" -n 2 --compress fp16 --out no
    expect_complaint 2 "does not go with" "$SHOAL" train "${run[@]}" -n 2 --shard-optimizer --out no
    for workers in 1 2; do
        expect_complaint 2 "go with --balance" "$SHOAL" train "${run[@]}" -n "$workers" --balance --out no
        expect_complaint 2 "go with --sync-batchnorm" "$SHOAL" train "${run[@]}" -n "$workers" --sync-batchnorm --out no
    done

    expect_complaint 2 "does not clip in an exact run" "$SHOAL" train "${run[@]}" -n 2 --sync ps --clip-norm 1 --out no
    expect_complaint 2 "does not go with --exact" "$SHOAL" train "${run[@]}" -n 2 --sync ssp:2 --out no
    expect_complaint 2 "whole tensors" "$SHOAL" train "${run[@]}" -n 2 --sync ps --optimizer lamb --out no
}

# The run file keeps both settings; another number of shards is another run.
case_shards_belong_to_the_run_file() {
    expect_text "exact: true" t1/run.yaml
    expect_text "shards: 8" t1/run.yaml
    expect_exit 0 "$SHOAL" train "${run[@]}" --threads 2 --shards 5 --epochs 2 --out five
    ! cmp -s t1/checkpoints/model-00000060.safetensors five/checkpoints/model-00000060.safetensors ||
        fail "the number of shards changes nothing"
    expect_exit 0 "$SHOAL" train "${run[@]}" --no-quiet --threads 6 --shards 5 --steps 1 --out many
    expect_text "6 threads have only 5 shards to compute"
    expect_complaint 2 "shards" "$SHOAL" train "${run[@]}" --shards 0 --out none
}

# `shoal eval` of an exact run takes the same way.
case_eval_is_exact_too() {
    for threads in 1 3; do
        expect_exit 0 "$SHOAL" eval t1 --threads "$threads" --json
        cp stdout "eval-$threads"
    done
    expect_same eval-1 eval-3
}
