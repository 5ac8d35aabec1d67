#!/usr/bin/env python3
"""Generation with a cache, beside transformers and llama.cpp: tokens a second.

    bench/peers/generate.py [--prompts 1,16] [--rounds 3] [--lockstep build/lockstep]
                            [--llama-bench PROGRAM] [--llama-batched PROGRAM]

A Qwen2.5 of the shape of its 0.5B, with random weights, continues prompts of 128 tokens by 64,
greedily, in bf16 on all cores: one prompt alone, and 16 at once. transformers' generate runs as it
is, and compiled with a static cache. llama.cpp's own llama-bench and llama-batched-bench run the
exported GGUF in BF16, if they are named. A figure is new tokens a second from the first prompt token
to the last new one; the median over rounds, in turns. Needs torch, transformers and numpy.
"""
import argparse
import json
import os
import pathlib
import re
import statistics
import subprocess
import sys
import tempfile
import time

from finetune import folder_write

PROMPT, NEW = 128, 64


def peer(o):
    import torch
    import transformers
    torch.set_num_threads(os.cpu_count())
    transformers.logging.set_verbosity_error()
    transformers.logging.disable_progress_bar()
    model = transformers.AutoModelForCausalLM.from_pretrained(
        o.folder, dtype=torch.bfloat16, attn_implementation="sdpa").eval()
    words = dict(max_new_tokens=NEW, min_new_tokens=NEW, do_sample=False, pad_token_id=0)
    if o.peer == "compile":
        model.forward = torch.compile(model.forward)
        words["cache_implementation"] = "static"
    for count in map(int, o.prompts.split(",")):
        ids = torch.randint(0, 256, (count, PROMPT), generator=torch.Generator().manual_seed(1))
        rates = []
        for _ in range(2): # the first one compiles, or warms up
            begin = time.perf_counter()
            with torch.inference_mode():
                model.generate(ids, attention_mask=torch.ones_like(ids), **words)
            rates.append(count * NEW / (time.perf_counter() - begin))
        print(json.dumps({"prompts": count, "rate": rates[-1]}), flush=True)


def peer_rates(o, folder, mode):
    done = subprocess.run([sys.executable, __file__, "--peer", mode, "--folder", folder / "model",
                           "--prompts", o.prompts], check=True, capture_output=True, text=True)
    rows = [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]
    return {row["prompts"]: row["rate"] for row in rows}


def our_rates(o, folder):
    rates = {}
    for count in map(int, o.prompts.split(",")):
        path = folder / "prompts.txt"
        path.write_text("".join(f"{i:0{PROMPT}d}\n" for i in range(count)))
        done = subprocess.run(
            [o.lockstep, "generate", folder / "model", "data.tokenizer=byte", "--prompts", path,
             "--tokens", str(NEW), "--temperature", "0", "--eos", "none", "--batch", str(count),
             "--output", folder / "texts"], check=True, capture_output=True, text=True)
        seconds = re.search(r"written in ([0-9.]+) s", done.stdout + done.stderr)
        rates[count] = count * NEW / float(seconds.group(1))
    return rates


def llama_rates(o, folder):
    """Both print what a step of each kind takes; a whole text is made of both."""
    rates, threads = {}, str(os.cpu_count())
    if o.llama_bench:
        done = subprocess.run([o.llama_bench, "-m", folder / "model.gguf", "-p", str(PROMPT), "-n",
                               str(NEW), "-t", threads, "-r", "1", "-o", "json"], check=True,
                              capture_output=True, text=True)
        rows = json.loads(done.stdout)
        rates[1] = NEW / sum((row["n_prompt"] + row["n_gen"]) / row["avg_ts"] for row in rows)
    if o.llama_batched:
        done = subprocess.run([o.llama_batched, "-m", folder / "model.gguf", "-c",
                               str(16 * (PROMPT + NEW)), "-npp", str(PROMPT), "-ntg", str(NEW),
                               "-npl", "16", "-t", threads, "--output-format", "jsonl"],
                              check=True, capture_output=True, text=True)
        row = [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")][-1]
        rates[16] = 16 * NEW / row["t"]
    return rates


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    add = parser.add_argument
    add("--prompts", default="1,16")
    add("--rounds", type=int, default=3)
    add("--layers", type=int, default=24)
    add("--lockstep", default="build/lockstep")
    add("--llama-bench")
    add("--llama-batched")
    for hidden in ("--peer", "--folder"):
        add(hidden, help=argparse.SUPPRESS)
    o = parser.parse_args()
    if o.peer:
        peer(o)
        return
    with tempfile.TemporaryDirectory() as name:
        folder, rounds = pathlib.Path(name), []
        folder_write(folder / "float", o)
        subprocess.run([o.lockstep, "export", folder / "float", "--dtype", "bf16", "--out",
                        folder / "model"], check=True, stdout=subprocess.DEVNULL)
        if o.llama_bench or o.llama_batched:
            subprocess.run([o.lockstep, "export", folder / "float", "--format", "gguf", "--dtype",
                            "bf16", "--out", folder / "model.gguf"], check=True,
                           stdout=subprocess.DEVNULL)
        for number in range(o.rounds):
            row = {"Lockstep": our_rates(o, folder),
                   "transformers": peer_rates(o, folder, "eager"),
                   "transformers, compiled": peer_rates(o, folder, "compile"),
                   "llama.cpp": llama_rates(o, folder)}
            rounds.append(row)
            print(f"round {number + 1}:", json.dumps(row), flush=True)
        for count in map(int, o.prompts.split(",")):
            print(f"{count} at once: " + ", ".join(
                f"{name} {statistics.median(row[name][count] for row in rounds):.1f} tokens/s"
                for name in rounds[0] if count in rounds[0][name]))


if __name__ == "__main__":
    main()
