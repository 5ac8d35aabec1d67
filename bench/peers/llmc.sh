#!/bin/sh
# Times llm.c's CPU trainer (train_gpt2.c): the peer for "the same model in plain C".
#
#   LLMC_DIR=/path/to/llm.c bench/peers/llmc.sh
#
# LLMC_DIR is a checkout of https://github.com/karpathy/llm.c; nothing is written there. The trainer
# has batch, sequence length and number of steps as constants in main, so a copy is edited on the
# way to the compiler: B, T and the steps become ours, and the validation batches (5 forward passes
# before the first step) become none. Flags are those of its Makefile. Weights and tokens are random
# (made by llmc_model.py): they do not change the time of a step.
#
# LLMC_BATCH=4 LLMC_TOKENS=64 (its own defaults) LLMC_STEPS=4 (the first is left out) THREADS=2.
# With longer sequences it makes fewer tokens a second, and at 4 x 1024 it holds the T x T attention
# matrices of all layers and their gradients, some 20 GB in all. So its defaults are the figure that
# is fairest to it.
#
# The last line on stdout is one JSON object: tokens_per_s, step_s (medians), step_s_all, losses,
# peak_rss_bytes, versions, options.
set -eu

here=$(cd "$(dirname "$0")" && pwd)
python=${PYTHON:-python3}
batch=${LLMC_BATCH:-4} tokens=${LLMC_TOKENS:-64} steps=${LLMC_STEPS:-4} threads=${THREADS:-2}
if [ ! -f "${LLMC_DIR:-}/train_gpt2.c" ]; then
    echo "llmc.sh: LLMC_DIR is '${LLMC_DIR:-}', want a checkout of llm.c (with train_gpt2.c)" >&2
    exit 2
fi
LLMC_DIR=$(cd "$LLMC_DIR" && pwd)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT INT TERM

sed -e "s/int B = 4;/int B = $batch;/" -e "s/int T = 64;/int T = $tokens;/" \
    -e "s/step <= 40;/step < $steps;/" -e "s/int val_num_batches = 5;/int val_num_batches = 0;/" \
    "$LLMC_DIR/train_gpt2.c" > "$work/train_gpt2.c"
for edit in "int B = $batch;" "int T = $tokens;" "step < $steps;" "int val_num_batches = 0;"; do
    grep -q "$edit" "$work/train_gpt2.c" || {
        echo "llmc.sh: train_gpt2.c has changed: '$edit' did not take" >&2
        exit 2
    }
done
${CC:-cc} -Ofast -march=native -fopenmp -DOMP -w -I"$LLMC_DIR" "$work/train_gpt2.c" \
    -o "$work/train_gpt2" -lm
"$python" "$here/llmc_model.py" "$work" --tokens $((batch * tokens * (steps + 1) + 1))

cd "$work"
commit=$(git -C "$LLMC_DIR" rev-parse --short HEAD 2>/dev/null || echo unknown)
OMP_NUM_THREADS=$threads "$python" - "$batch" "$tokens" "$threads" "$commit" <<'END'
import json, re, resource, statistics, subprocess, sys
batch, tokens, threads = (int(a) for a in sys.argv[1:4])
text = subprocess.run(["./train_gpt2"], stdout=subprocess.PIPE, check=True, text=True).stdout
rows = re.findall(r"^step \d+: train loss (\S+) \(took (\S+) ms\)", text, re.M)
step_s_all = [float(ms) / 1000 for _, ms in rows][1:]
step_s = statistics.median(step_s_all)
losses = [float(loss) for loss, _ in rows]
rss = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss * 1024
print(json.dumps({"tokens_per_s": batch * tokens / step_s, "step_s": step_s,
                  "step_s_all": step_s_all, "losses": losses, "loss": losses[-1],
                  "peak_rss_bytes": rss, "versions": {"llm.c": sys.argv[4]},
                  "options": {"batch": batch, "tokens": tokens, "threads": threads}}))
END
