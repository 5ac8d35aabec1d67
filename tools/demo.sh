#!/bin/sh
# The demo: a book becomes tokens, a small GPT-2 learns them on four ranks, speaks, and is drawn.
# All of it lies in a folder of its own, which a mark in it shows to be ours: nothing else is ever
# replaced. Fails where the model ends above BITS_MOST bits per byte.
set -eu

lockstep=${LOCKSTEP:-build/lockstep}
folder=${RUNS:-runs}/make-demo
mark="$folder/.made-by-make-demo"
BITS_MOST=2.2
begin=$(date +%s)

if [ -e "$mark" ]; then
    echo "replacing $folder, which an earlier demo made"
    rm -rf "$folder"
elif [ -e "$folder" ]; then
    echo "demo: $folder is not from an earlier demo: move it away, or set RUNS to another folder" >&2
    exit 1
fi
mkdir -p "$folder"
: > "$mark"
bible -f gen1:1-rev22:21 > "$folder/bible.txt"
echo "corpus: $folder/bible.txt, $(wc -c < "$folder/bible.txt") bytes"
"$lockstep" data prepare --input "$folder/bible.txt" --output "$folder/corpus" --tokenizer byte
"$lockstep" train configs/demo.yaml data.train="$folder/corpus_train" \
    data.valid="$folder/corpus_valid" train.out="$folder/run"
echo
evaluated=$("$lockstep" eval "$folder/run")
echo "$evaluated"
echo
"$lockstep" generate "$folder/run" --prompt "In the beginning" --tokens 400 --temperature 0.7
echo
"$lockstep" plot "$folder/run" --output "$folder/run/loss.svg"
bits=$(echo "$evaluated" | sed -n 's/.*  \([0-9.]*\) bits per byte.*/\1/p')
cat <<END

$(($(date +%s) - begin)) s, $bits bits per byte. Written:
  $folder/corpus_train.bin .idx, corpus_valid.bin .idx   the token stores
  $folder/run/config.yaml                the resolved configuration
  $folder/run/metrics.jsonl              one object a step, and events
  $folder/run/events.out.tfevents.*      for TensorBoard
  $folder/run/checkpoints/               safetensors; train.resume=auto goes on
  $folder/run/loss.svg                   the losses, drawn
END
if ! awk -v bits="$bits" -v most="$BITS_MOST" 'BEGIN { exit !(bits > 0 && bits < most) }'; then
    echo "demo: ${bits:-no} bits per byte: expected less than $BITS_MOST" >&2
    exit 1
fi
