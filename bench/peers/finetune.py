#!/usr/bin/env python3
"""Fine-tuning of a model of Hugging Face's, beside PyTorch with transformers (and peft).

    bench/peers/finetune.py [--precision fp32,bf16] [--lora RANK] [--batch 2] [--tokens 512]
                            [--rounds 3] [--steps 3] [--keys "KEY=VALUE ..."]
                            [--lockstep build/lockstep]

A Qwen2.5 of the shape of its 0.5B, with random weights, is written as a folder. Both programs start
from it and train on the same random tokens with the same batch: AdamW, gradients clipped to norm 1,
two threads. PyTorch runs as its users would have it: transformers' model with
scaled_dot_product_attention, torch.compile and, where that is faster, without it; bf16 is autocast
over float32 weights; fused AdamW. With --lora peft's adapters on every linear layer take the place of
the whole model. --keys are for Lockstep, beside those of the recipe: what takes less memory, such as
"optim.moments=bf16 memory.recompute=selective batch.micro=1".

The programs run in turns, round by round. Printed are the median of the rounds' ratios of tokens a
second, and the largest resident sets. Needs torch, transformers, peft and numpy.
"""
import argparse
import json
import os
import pathlib
import resource
import statistics
import subprocess
import sys
import tempfile
import time

SHAPE = dict(vocab_size=151936, hidden_size=896, intermediate_size=4864, num_hidden_layers=24,
             num_attention_heads=14, num_key_value_heads=2, max_position_embeddings=4096,
             tie_word_embeddings=True, rope_theta=1000000.0, rms_norm_eps=1e-6)
LR = 1e-5


# ---- PyTorch ------------------------------------------------------------------------------------

def folder_write(folder, o):
    import torch
    import transformers
    shape = dict(SHAPE, num_hidden_layers=o.layers)
    torch.manual_seed(1)
    config = transformers.Qwen2Config(**shape, bos_token_id=None, eos_token_id=None)
    transformers.Qwen2ForCausalLM(config).save_pretrained(folder)


def peer(o):
    import numpy
    import torch
    import transformers
    transformers.logging.disable_progress_bar()
    torch.set_num_threads(o.threads)
    model = transformers.AutoModelForCausalLM.from_pretrained(
        o.folder, dtype=torch.float32, attn_implementation="sdpa", use_cache=False)
    if o.lora:
        import peft
        model = peft.get_peft_model(model, peft.LoraConfig(
            r=o.lora, lora_alpha=2 * o.lora, target_modules="all-linear", task_type="CAUSAL_LM"))
    trained = [p for p in model.parameters() if p.requires_grad]
    optimizer = torch.optim.AdamW(trained, lr=LR, betas=(0.9, 0.95), weight_decay=0.1, fused=True)
    run = torch.compile(model) if o.peer == "compile" else model
    data = torch.from_numpy(numpy.fromfile(o.data, dtype=numpy.uint16).astype(numpy.int64))
    seconds, losses = [], []
    for step in range(o.steps + 1):
        first = step * o.batch * o.tokens
        ids = data[first:first + o.batch * o.tokens].view(o.batch, o.tokens)
        targets = data[first + 1:first + o.batch * o.tokens + 1]
        begin = time.perf_counter()
        with torch.autocast("cpu", torch.bfloat16, enabled=o.precision == "bf16"):
            logits = run(ids).logits
        loss = torch.nn.functional.cross_entropy(logits.flatten(0, 1).float(), targets)
        del logits
        loss.backward()
        torch.nn.utils.clip_grad_norm_(trained, 1.0)
        optimizer.step()
        optimizer.zero_grad()
        losses.append(loss.item())
        seconds.append(time.perf_counter() - begin)
    print(json.dumps({"step_s": statistics.median(seconds[1:]), "losses": losses,
                      "rss": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024}))


def peer_run(o, folder, precision, mode):
    words = [sys.executable, __file__, "--peer", mode, "--folder", str(folder / "model"), "--data",
             str(folder / "data.bin"), "--precision", precision, "--batch", o.batch, "--tokens",
             o.tokens, "--steps", o.steps, "--threads", o.threads, "--lora", o.lora]
    done = subprocess.run([str(w) for w in words], check=True, capture_output=True, text=True,
                          env=dict(os.environ, OMP_NUM_THREADS=str(o.threads)))
    return json.loads(done.stdout.splitlines()[-1])


# ---- Lockstep -----------------------------------------------------------------------------------

def ours(o, folder, precision):
    out = folder / "run"
    subprocess.run(["rm", "-rf", str(out)], check=True)
    words = [o.lockstep, "train", f"model.from={folder / 'model'}", f"train.out={out}",
             f"data.train=u16:{folder / 'data.bin'}", f"data.sequence={o.tokens}",
             "data.shuffle=false", f"batch.global={o.batch}", f"numerics.leaf_sequences={o.batch}",
             f"train.steps={o.steps + 1}", f"optim.lr={LR}", "optim.schedule=constant",
             f"numerics.precision={precision}", f"parallel.threads={o.threads}", "log.progress=off",
             "log.tensorboard=false", "log.hash_every=1000000"]
    if o.lora:
        words += [f"lora.rank={o.lora}", f"lora.alpha={2 * o.lora}"]
    words += o.keys.split()
    log = folder / "log"
    with open(log, "w", encoding="utf-8") as file:
        process = subprocess.Popen(words, stdout=file, stderr=file)
        _, status, usage = os.wait4(process.pid, 0)
    if status:
        sys.exit(log.read_text())
    records = [json.loads(line) for line in (out / "metrics.jsonl").read_text().splitlines()]
    steps = [record for record in records if "loss" in record]
    return {"step_s": statistics.median(s["step_s"] for s in steps[1:]),
            "losses": [s["loss"] for s in steps], "rss": usage.ru_maxrss * 1024}


# ---- the race -----------------------------------------------------------------------------------

def race(o, folder, precision):
    modes, rounds = ["compile", "eager"], []
    for number in range(o.rounds):
        row = {"Lockstep": ours(o, folder, precision)}
        row |= {mode: peer_run(o, folder, precision, mode) for mode in modes}
        best = min(modes, key=lambda mode: row[mode]["step_s"])
        rounds.append(row)
        apart = max(abs(a - b) / b for a, b in zip(row["Lockstep"]["losses"], row[best]["losses"]))
        shown = ", ".join(f"{name} {o.batch * o.tokens / r['step_s']:.1f} tokens/s "
                          f"{r['rss'] / 2**30:.2f} GiB" for name, r in row.items())
        print(f"  round {number + 1}: {shown}; losses at most {apart:.1e} apart", flush=True)
        if row[best]["step_s"] < 0.9 * max(row[mode]["step_s"] for mode in modes):
            modes = [best]
    best = modes[0]
    speed = statistics.median(r[best]["step_s"] / r["Lockstep"]["step_s"] for r in rounds)
    memory = max(r["Lockstep"]["rss"] for r in rounds) / min(r[best]["rss"] for r in rounds)
    print(f"{precision}{f', LoRA of rank {o.lora}' if o.lora else ''}"
          f"{f', {o.keys}' if o.keys else ''}: {speed:.2f} times PyTorch "
          f"({best}), with {memory:.2f} of its memory", flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    add = parser.add_argument
    add("--precision", default="fp32,bf16")
    add("--lora", type=int, default=0)
    add("--batch", type=int, default=2)
    add("--tokens", type=int, default=512)
    add("--layers", type=int, default=SHAPE["num_hidden_layers"])
    add("--rounds", type=int, default=3)
    add("--steps", type=int, default=3)
    add("--keys", default="")
    add("--threads", type=int, default=os.cpu_count())
    add("--lockstep", default="build/lockstep")
    for hidden in ("--peer", "--folder", "--data"):
        add(hidden, help=argparse.SUPPRESS)
    o = parser.parse_args()
    if o.peer:
        peer(o)
        return
    import numpy
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        folder_write(folder / "model", o)
        count = o.batch * o.tokens * (o.steps + 1) + 1
        numpy.random.default_rng(1).integers(50000, size=count).astype(numpy.uint16).tofile(
            folder / "data.bin")
        for precision in o.precision.split(","):
            race(o, folder, precision)


if __name__ == "__main__":
    main()
