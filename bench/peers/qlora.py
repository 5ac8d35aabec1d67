#!/usr/bin/env python3
"""LoRA over a base in few bits (lora.base), beside peft with bitsandbytes.

    bench/peers/qlora.py [--bases none,int8,nf4] [--rank 16] [--batch 2] [--tokens 256] [--rounds 3]
                         [--steps 3] [--layers 12] [--alone] [--lockstep build/lockstep]

A Llama of 124 million parameters (the shape of GPT-2's smallest) with random weights is written as a
folder. Lockstep trains adapters on it with each base, and peft with none and with NF4 of
bitsandbytes (load_in_4bit, bf16): the same random tokens, batch, AdamW, clipping, two threads. All
of them run in turns, round by round. Printed are, for each, the median of tokens a second, its
ratio to Lockstep's lora.base=none of the same round, and the largest resident set. --alone leaves
peft out. Needs torch, transformers, peft and numpy; bitsandbytes for NF4.
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

SHAPE = dict(vocab_size=50304, hidden_size=768, intermediate_size=2048, num_attention_heads=12,
             num_key_value_heads=12, max_position_embeddings=1024, tie_word_embeddings=True)
LR = 1e-4


def folder_write(folder, o):
    import torch
    import transformers
    torch.manual_seed(1)
    config = transformers.LlamaConfig(**SHAPE, num_hidden_layers=o.layers, bos_token_id=None,
                                      eos_token_id=None)
    transformers.LlamaForCausalLM(config).to(torch.bfloat16).save_pretrained(folder)


def peer(o):
    import numpy
    import peft
    import torch
    import transformers
    transformers.logging.set_verbosity_error()
    torch.set_num_threads(o.threads)
    more = {}
    if o.peer == "nf4":
        more["quantization_config"] = transformers.BitsAndBytesConfig(
            load_in_4bit=True, bnb_4bit_quant_type="nf4", bnb_4bit_compute_dtype=torch.bfloat16)
    model = transformers.AutoModelForCausalLM.from_pretrained(
        o.folder, dtype=torch.bfloat16, attn_implementation="sdpa", use_cache=False, **more)
    model = peft.get_peft_model(model, peft.LoraConfig(
        r=o.rank, lora_alpha=o.rank, target_modules="all-linear", task_type="CAUSAL_LM"))
    trained = [p for p in model.parameters() if p.requires_grad]
    optimizer = torch.optim.AdamW(trained, lr=LR, betas=(0.9, 0.95), weight_decay=0.1, fused=True)
    data = torch.from_numpy(numpy.fromfile(o.data, dtype=numpy.uint16).astype(numpy.int64))
    seconds = []
    for step in range(o.steps + 1):
        first = step * o.batch * o.tokens
        ids = data[first:first + o.batch * o.tokens].view(o.batch, o.tokens)
        targets = data[first + 1:first + o.batch * o.tokens + 1]
        begin = time.perf_counter()
        with torch.autocast("cpu", torch.bfloat16):
            logits = model(ids).logits
        loss = torch.nn.functional.cross_entropy(logits.flatten(0, 1).float(), targets)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(trained, 1.0)
        optimizer.step()
        optimizer.zero_grad()
        seconds.append(time.perf_counter() - begin)
    print(json.dumps({"step_s": statistics.median(seconds[1:]),
                      "rss": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024}))


def peer_run(o, folder, base):
    words = [sys.executable, __file__, "--peer", base, "--folder", folder / "model", "--data",
             folder / "data.bin", "--rank", o.rank, "--batch", o.batch, "--tokens", o.tokens,
             "--steps", o.steps, "--threads", o.threads]
    done = subprocess.run([str(w) for w in words], check=True, stdout=subprocess.PIPE, text=True,
                          env=dict(os.environ, OMP_NUM_THREADS=str(o.threads)))
    return json.loads(done.stdout.splitlines()[-1])


def ours(o, folder, base):
    out = folder / "run"
    subprocess.run(["rm", "-rf", str(out)], check=True)
    words = [o.lockstep, "train", f"model.from={folder / 'model'}", f"train.out={out}",
             f"data.train=u16:{folder / 'data.bin'}", f"data.sequence={o.tokens}",
             "data.shuffle=false", f"batch.global={o.batch}", f"numerics.leaf_sequences={o.batch}",
             f"train.steps={o.steps + 1}", f"optim.lr={LR}", "optim.schedule=constant",
             f"lora.rank={o.rank}", f"lora.base={base}", "numerics.precision=bf16",
             f"parallel.threads={o.threads}", "log.progress=off", "log.tensorboard=false",
             "log.hash_every=1000000", "train.save_every=0"]
    log = folder / "log"
    with open(log, "w", encoding="utf-8") as file:
        process = subprocess.Popen(words, stdout=file, stderr=file)
        _, status, usage = os.wait4(process.pid, 0)
    if status:
        sys.exit(log.read_text())
    records = [json.loads(line) for line in (out / "metrics.jsonl").read_text().splitlines()]
    steps = [record for record in records if "loss" in record]
    return {"step_s": statistics.median(s["step_s"] for s in steps[1:]),
            "rss": usage.ru_maxrss * 1024}


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    add = parser.add_argument
    add("--bases", default="none,int8,nf4")
    add("--rank", type=int, default=16)
    add("--batch", type=int, default=2)
    add("--tokens", type=int, default=256)
    add("--layers", type=int, default=12)
    add("--rounds", type=int, default=3)
    add("--steps", type=int, default=3)
    add("--alone", action="store_true")
    add("--threads", type=int, default=os.cpu_count())
    add("--lockstep", default="build/lockstep")
    for hidden in ("--peer", "--folder", "--data"):
        add(hidden, help=argparse.SUPPRESS)
    o = parser.parse_args()
    if o.peer == "write":
        folder_write(pathlib.Path(o.folder), o)
        return
    if o.peer:
        peer(o)
        return
    import numpy
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        # In a process of its own: what this one has had in memory counts as its children's peak.
        subprocess.run([sys.executable, __file__, "--peer", "write", "--folder",
                        str(folder / "model"), "--layers", str(o.layers)], check=True)
        count = o.batch * o.tokens * (o.steps + 1) + 1
        numpy.random.default_rng(1).integers(50000, size=count).astype(numpy.uint16).tofile(
            folder / "data.bin")
        programs = {f"lora.base={base}": (ours, base) for base in o.bases.split(",")}
        if not o.alone:
            programs |= {f"peft, {base}": (peer_run, base) for base in ("none", "nf4")}
        rounds = []
        for number in range(o.rounds):
            rounds.append({p: run(o, folder, base) for p, (run, base) in programs.items()})
            print(f"  round {number + 1}: " + ", ".join(
                f"{p} {o.batch * o.tokens / r['step_s']:.1f}" for p, r in rounds[-1].items()),
                flush=True)
        first = next(iter(programs))
        for p in programs:
            rate = statistics.median(o.batch * o.tokens / r[p]["step_s"] for r in rounds)
            ratio = statistics.median(r[first]["step_s"] / r[p]["step_s"] for r in rounds)
            rss = max(r[p]["rss"] for r in rounds) / 2**20
            print(f"{p:16} {rate:8.1f} tokens/s, {ratio:.2f} times {first}, {rss:.0f} MiB")


if __name__ == "__main__":
    main()
