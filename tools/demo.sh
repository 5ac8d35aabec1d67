#!/bin/sh
# The demo: a book becomes tokens, a small GPT-2 learns them on four ranks, speaks, and is drawn.
set -eu

lockstep=${LOCKSTEP:-build/lockstep}
runs=${RUNS:-runs}
begin=$(date +%s)

mkdir -p "$runs"
rm -rf "$runs/demo"
bible -f gen1:1-rev22:21 > "$runs/bible.txt"
echo "corpus: $runs/bible.txt, $(wc -c < "$runs/bible.txt") bytes"
"$lockstep" data prepare --input "$runs/bible.txt" --output "$runs/corpus" --tokenizer byte
"$lockstep" train configs/demo.yaml data.train="$runs/corpus_train" data.valid="$runs/corpus_valid" \
    train.out="$runs/demo"
echo
"$lockstep" eval "$runs/demo"
echo
"$lockstep" generate "$runs/demo" --prompt "In the beginning" --tokens 400 --temperature 0.7
echo
"$lockstep" plot "$runs/demo" --output "$runs/demo/loss.svg"
cat <<END

$(($(date +%s) - begin)) s. Written:
  $runs/corpus_train.bin .idx, $runs/corpus_valid.bin .idx   the token stores
  $runs/demo/config.yaml                                     the resolved configuration
  $runs/demo/metrics.jsonl                                   one object a step
  $runs/demo/events.out.tfevents.*                           for TensorBoard
  $runs/demo/checkpoints/                                    safetensors; train.resume=auto goes on
  $runs/demo/loss.svg                                        the losses, drawn
END
