#!/bin/sh
# fp32, bf16 (in both arithmetics) and fp16 on the demo's corpus and recipe: the validation losses of
# the halves end within BOUND nats of fp32's. A last run shows that the bound can be missed: fp16 with
# a loss scale so small that gradients vanish. Draws fp32, bf16 and fp16 into PICTURE.
#
#   tools/precision.sh [PICTURE]
set -eu

lockstep=${LOCKSTEP:-build/lockstep}
picture=${1:-doc/precision.svg}
steps=${STEPS:-600}
BOUND=0.02
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT

bible -f gen1:1-rev22:21 > "$folder/bible.txt"
"$lockstep" data prepare --input "$folder/bible.txt" --output "$folder/corpus" --tokenizer byte \
    > "$folder/log"

# run NAME KEYS...: trains and leaves the last validation loss in $loss
run() {
    name=$1
    shift
    "$lockstep" train configs/demo.yaml data.train="$folder/corpus_train" \
        data.valid="$folder/corpus_valid" train.out="$folder/$name" train.steps="$steps" \
        parallel.dp=1 eval.every=150 sample.every=0 train.save_every=0 log.progress=off "$@" \
        >> "$folder/log"
    loss=$(sed -n 's/.*"validation_loss": *\([0-9.e+-]*\).*/\1/p' "$folder/$name/metrics.jsonl" \
        | tail -n 1)
    skipped=$(grep -c '"skipped"' "$folder/$name/metrics.jsonl" || true)
    echo "$name: validation loss $loss after $steps steps, $skipped skipped"
}

# far A B: more than BOUND apart
far() { awk -v a="$1" -v b="$2" -v most="$BOUND" 'BEGIN { d = a - b; exit !(d > most || -d > most) }'; }

run fp32 numerics.precision=fp32
fp32=$loss
for half in bf16 bf16_pairs fp16; do
    arithmetic=fma
    [ $half = bf16_pairs ] && arithmetic=bf16_pairs
    run $half numerics.precision=${half%_pairs} numerics.arithmetic=$arithmetic
    if far "$loss" "$fp32"; then
        echo "precision: $half ends more than $BOUND nats from fp32" >&2
        exit 1
    fi
done
run vanished numerics.precision=fp16 numerics.loss_scale=1e-4
if ! far "$loss" "$fp32"; then
    echo "precision: gradients that vanish are not seen: the bound proves nothing" >&2
    exit 1
fi
"$lockstep" plot "$folder/fp32" "$folder/bf16" "$folder/fp16" --output "$picture"
echo "$picture"
