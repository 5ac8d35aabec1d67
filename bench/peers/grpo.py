#!/usr/bin/env python3
"""GRPO beside TRL with transformers: tokens a second of rollout and update.

    bench/peers/grpo.py [--n 8] [--prompts 4] [--tokens 64] [--steps 3] [--rounds 3] [--threads 2]
                      [--layers 4] [--channels 256] [--keys "parallel.dp=2 parallel.threads=1"]...
                      [--alone]

A GPT-2 with random weights is written as a folder. Both programs start from it with the same
prompts (ids), as many texts of each, as many drawn tokens in each text (nothing ends a text), one
update a batch, AdamW, gradients clipped to norm 1, float32, two threads. Lockstep runs
lockstep.rl.GRPO, its two threads as two ranks unless --keys say otherwise; TRL its GRPOTrainer on
the CPU, which generates with transformers. With --alone TRL does not run; several --keys are
several runs of Lockstep. All run in turns, round by round; printed are the medians of all steps
but each round's first. `rollout` is generation with rewards; `update` is the rest of the step.
Rewards are the same function of the texts' tokens.

Needs numpy; TRL's side needs torch, transformers, datasets and trl in --python, and is said to be
missing where it is.
"""
import argparse
import json
import os
import pathlib
import statistics
import subprocess
import sys
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parents[2]
VOCABULARY, PROMPT = 512, 8


def prompts_make(count):
    return [[(7 * i + 3 * j + 1) % VOCABULARY for j in range(PROMPT)] for i in range(count)]


def worth(ids):
    return float(sum(ids) % 7)


def told(seconds, tokens):
    """One line for the parent: of each step but the first (rollout, update)."""
    print("RESULT " + json.dumps({"steps": seconds[1:], "tokens": tokens}), flush=True)


# ---- Lockstep -----------------------------------------------------------------------------------

def lockstep(o):
    sys.path.insert(0, str(ROOT / "python"))
    import lockstep as ls
    keys = {"model.from": o.folder, "train.out": o.out, "train.steps": o.steps + 1,
            "batch.global": o.n * o.prompts, "data.sequence": PROMPT + o.tokens,
            "optim.lr": 1e-5, "optim.schedule": "constant", "numerics.precision": "fp32",
            "log.progress": "off",
            **{key: int(value) for key, value in (pair.split("=") for pair in o.keys[-1].split())}}
    with ls.Run(keys, progress=False) as run:
        loop = ls.rl.GRPO(run, prompts_make(o.prompts), lambda _, texts: [worth(t) for t in texts],
                          n=o.n, max_tokens=o.tokens, ends=[])
        metrics = list(loop)
    told([(m.rollout_s, m.update_s) for m in metrics], metrics[-1].tokens)


# ---- TRL ----------------------------------------------------------------------------------------

def tokenizer_make():
    """TRL asks for a tokenizer: words w0, w1, ... are ids."""
    import tokenizers
    import transformers
    words = {f"w{i}": i for i in range(VOCABULARY)}
    inner = tokenizers.Tokenizer(tokenizers.models.WordLevel(words, unk_token="w0"))
    inner.pre_tokenizer = tokenizers.pre_tokenizers.WhitespaceSplit()
    return transformers.PreTrainedTokenizerFast(tokenizer_object=inner, pad_token="w0",
                                                eos_token="w0", padding_side="left")


def trl(o):
    import datasets
    import torch
    import transformers
    import trl as library
    torch.set_num_threads(o.threads)
    transformers.logging.set_verbosity_error()
    model = transformers.AutoModelForCausalLM.from_pretrained(o.folder, dtype=torch.float32)
    rows = [{"prompt": " ".join(f"w{i}" for i in ids)} for ids in prompts_make(o.prompts)]
    marks, rolled, counts = [], [], []

    def reward(completion_ids, **_):
        counts.append(sum(map(len, completion_ids)))
        return [worth(ids) for ids in completion_ids]

    class Timed(library.GRPOTrainer):
        """Its generation and scoring are the rollout."""

        def _generate_and_score_completions(self, *words, **more):
            begin = time.perf_counter()
            out = super()._generate_and_score_completions(*words, **more)
            rolled.append(time.perf_counter() - begin)
            return out

        def training_step(self, *words, **more):
            marks.append(time.perf_counter())
            return super().training_step(*words, **more)

    class Ends(transformers.TrainerCallback):
        def on_step_end(self, *_, **__):
            marks.append(time.perf_counter())

    config = library.GRPOConfig(
        output_dir=o.out, per_device_train_batch_size=o.n * o.prompts, num_generations=o.n,
        max_completion_length=o.tokens, max_steps=o.steps + 1, num_iterations=1, beta=0.0,
        learning_rate=1e-5, lr_scheduler_type="constant", max_grad_norm=1.0, use_cpu=True,
        bf16=False, gradient_checkpointing=False, report_to=[], save_strategy="no",
        logging_strategy="no", disable_tqdm=True, temperature=1.0,
        generation_kwargs={"min_new_tokens": o.tokens})
    Timed(model=model, reward_funcs=reward, args=config, processing_class=tokenizer_make(),
          train_dataset=datasets.Dataset.from_list(rows), callbacks=[Ends()]).train()
    whole = [end - begin for begin, end in zip(marks[::2], marks[1::2])]
    told([(roll, every - roll) for roll, every in zip(rolled, whole)], counts[-1])


# ---- both, in turns -----------------------------------------------------------------------------

def folder_write(folder, o):
    """In the other Python, which has transformers."""
    import torch
    import transformers
    torch.manual_seed(1)
    transformers.GPT2LMHeadModel(transformers.GPT2Config(
        vocab_size=VOCABULARY, n_positions=PROMPT + o.tokens, n_embd=o.channels, n_layer=o.layers,
        n_head=o.channels // 64 or 1, bos_token_id=None, eos_token_id=None, resid_pdrop=0.0,
        embd_pdrop=0.0, attn_pdrop=0.0)).save_pretrained(folder)


def asked(o, side, folder, python, keys=""):
    with tempfile.TemporaryDirectory() as out:
        done = subprocess.run(
            [python, __file__, *sys.argv[1:], "--side", side, "--keys", keys, "--folder", folder,
             "--out", os.path.join(out, "run")], stdout=subprocess.PIPE, stderr=subprocess.PIPE,
            text=True, check=False, env={**os.environ, "OMP_NUM_THREADS": str(o.threads),
                                         "TOKENIZERS_PARALLELISM": "false"})
    found = [line[7:] for line in done.stdout.splitlines() if line.startswith("RESULT ")]
    if found:
        return json.loads(found[0])
    lines = (done.stderr or "ended without a result").strip().splitlines()
    return sys.exit("\n".join(lines)) if side == "lockstep" else lines[-1]


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    for name, value in (("n", 8), ("prompts", 4), ("tokens", 64), ("steps", 3), ("rounds", 3),
                        ("threads", 2), ("layers", 4), ("channels", 256)):
        parser.add_argument(f"--{name}", default=value, type=int)
    parser.add_argument("--keys", action="append", help="of a run of Lockstep's")
    parser.add_argument("--alone", action="store_true", help="Lockstep's runs alone")
    parser.add_argument("--python", default=sys.executable, help="has torch, transformers and trl")
    for name in ("side", "folder", "out"):
        parser.add_argument(f"--{name}", help=argparse.SUPPRESS)
    o = parser.parse_args()
    if o.side:
        return {"lockstep": lockstep, "trl": trl,
                "write": lambda o: (folder_write(o.folder, o), told([0], 0))}[o.side](o)
    with tempfile.TemporaryDirectory() as folder:
        wrote = asked(o, "write", os.path.join(folder, "model"), o.python)
        if isinstance(wrote, str):
            sys.exit(f"--python {o.python}: {wrote}: expected torch and transformers there")
        runs = [("lockstep", sys.executable, keys)
                for keys in o.keys or ["parallel.dp=2 parallel.threads=1"]]
        runs += [] if o.alone else [("trl", o.python, "")]
        results, missing = {run: [] for run in runs}, {}
        for _ in range(o.rounds):
            for run in runs:
                side, python, keys = run
                found = missing.get(run) or asked(o, side, os.path.join(folder, "model"), python,
                                                  keys)
                if isinstance(found, str):
                    missing[run] = found
                else:
                    results[run] += found["steps"]
                    tokens = found["tokens"]
    print(f"{o.prompts} prompts x {o.n} texts, {tokens} drawn tokens a step, {o.threads} threads")
    for run, steps in results.items():
        side, _, keys = run
        if run in missing:
            print(f"{side:9} missing: {missing[run]}")
            continue
        roll, update = (statistics.median(part) for part in zip(*steps))
        print(f"{side:9} rollout {tokens / roll:8.0f} tokens/s   update {tokens / update:8.0f} "
              f"tokens/s   both {tokens / (roll + update):8.0f} tokens/s   rollout "
              f"{roll / (roll + update):4.0%} of the time   {keys}".rstrip())
    return None


if __name__ == "__main__":
    main()
