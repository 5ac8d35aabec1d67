#!/bin/sh
# Tokens a second of `lockstep generate`, for 1 prompt and for 16: a model with random weights
# continues prompts of 128 tokens by 64, greedily.
#
#     bench/generate.sh [LOCKSTEP] [key=value]...
#
# LOCKSTEP is the program (build/lockstep); keys are of the model's configuration (default: GPT-2
# 124M in bf16 with a byte tokenizer's text). Prints what each run says of itself.
set -eu

program=build/lockstep
case "${1:-}" in
"" | *=*) ;;
*) program=$1 && shift ;;
esac
[ $# -gt 0 ] || set -- model.layers=12 model.channels=768 model.heads=12 model.context=1024

folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
# 16 lines of 128 bytes, and a corpus of them.
for i in 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16; do
    printf '%0128d\n' "$i"
done >"$folder/prompts.txt"
for i in 1 2 3 4 5 6 7 8; do
    cat "$folder/prompts.txt"
done >"$folder/text.txt"
head -n 1 "$folder/prompts.txt" >"$folder/one.txt"

"$program" data prepare --input "$folder/text.txt" --output "$folder/text" --tokenizer byte \
    --validation 0 >/dev/null
# The first checkpoint is of the initial values.
"$program" train data.train="$folder/text_train" data.sequence=64 model.arch=gpt2 batch.global=1 \
    numerics.precision=bf16 train.steps=1 train.save_first=true train.out="$folder/run" \
    log.tensorboard=false "$@" >/dev/null 2>&1

for prompts in one prompts; do
    "$program" generate "$folder/run" --step 0 --prompts "$folder/$prompts.txt" --tokens 64 \
        --temperature 0 --eos none --output "$folder/out"
done
