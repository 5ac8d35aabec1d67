#!/usr/bin/env python3
"""Generation with a cache, beside transformers and llama.cpp: tokens a second.

    bench/peers/generate.py [--prompts 1,16,64] [--read 64] [--write 128] [--rounds 3]
                            [--precision bf16|fp32] [--layers 24] [--lockstep build/lockstep]
                            [--llama-rate build/llama_rate] [--no-compile] [--bases int8,nf4]

A Qwen2.5 of the shape of its 0.5B, with random weights, continues prompts, greedily, on all cores.
transformers' generate runs as it is, and compiled with a static cache. llama.cpp runs the exported
GGUF by bench/peers/llama_rate.cpp, which says how it is built. A figure is new tokens a second from
the first prompt token to the last new one; the median over rounds, in turns. A peer that is not
there is said to be missing.

With --bases the model has adapters (LoRA of rank 16) over frozen weights in so many bits, as rollouts
of a run with lora.base have them, beside peft over bitsandbytes' weights of the same kind; and the
largest resident sets of these are told. "none" is adapters over weights of --precision.

Needs numpy, torch and transformers, which make the model; peft and bitsandbytes with --bases.
"""
import argparse
import functools
import importlib.util
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

ROOT = pathlib.Path(__file__).resolve().parents[2]
RANK = 16  # of adapters


def peak_mib():
    """Of this program alone: getrusage counts what its parent had before it began."""
    status = pathlib.Path("/proc/self/status").read_text(encoding="utf-8")
    return int(re.search(r"VmHWM:\s+(\d+) kB", status).group(1)) / 1024


def adapted(o, folder):
    """Lockstep's rates with adapters over a base: by a run, which holds it as training does."""
    sys.path.insert(0, str(ROOT / "python"))
    import lockstep
    counts, rows = list(map(int, o.prompts.split(","))), []
    keys = {"model.from": folder / "model", "data.tokenizer": "byte", "train.out": folder / f"run-{o.base}",
            "numerics.precision": o.precision, "lora.rank": RANK, "lora.base": o.base, "train.steps": 1,
            "data.sequence": o.read + o.write, "log.tensorboard": False}
    with lockstep.Run(keys, progress=False) as run:
        for count in counts:
            texts = [f"{i:0{o.read}d}" for i in range(count)]
            made = run.generate(texts, max_tokens=o.write, temperature=0, ends=[], batch=count)
            rows.append({"prompts": count, "rate": count * o.write / made.seconds})
    return rows


def quantization(base):
    import torch
    import transformers
    return {} if base in ("", "none") else {"quantization_config": transformers.BitsAndBytesConfig(
        load_in_8bit=base == "int8", load_in_4bit=base == "nf4", bnb_4bit_quant_type="nf4",
        bnb_4bit_compute_dtype=torch.bfloat16)}


def peer(o):
    if o.peer == "adapted":
        told = adapted(o, pathlib.Path(o.folder).parent)
        rss = peak_mib()
        for row in told:
            print(json.dumps({**row, "rss": rss}))
        return
    import torch
    import transformers
    torch.set_num_threads(os.cpu_count())
    transformers.logging.set_verbosity_error()
    transformers.logging.disable_progress_bar()
    model = transformers.AutoModelForCausalLM.from_pretrained(
        o.folder, dtype=torch.bfloat16 if o.precision == "bf16" else torch.float32,
        attn_implementation="sdpa", **quantization(o.base)).eval()
    if o.base:
        import peft
        model = peft.get_peft_model(model, peft.LoraConfig(
            r=RANK, target_modules="all-linear", task_type="CAUSAL_LM")).eval()
    words = dict(max_new_tokens=o.write, min_new_tokens=o.write, do_sample=False, pad_token_id=0)
    if o.peer == "compile":
        model.forward = torch.compile(model.forward)
        words["cache_implementation"] = "static"
    for count in map(int, o.prompts.split(",")):
        ids = torch.randint(0, 256, (count, o.read), generator=torch.Generator().manual_seed(1))
        rates = []
        for _ in range(2): # the first one compiles, or warms up
            begin = time.perf_counter()
            with torch.inference_mode():
                model.generate(ids, attention_mask=torch.ones_like(ids), **words)
            rates.append(count * o.write / (time.perf_counter() - begin))
        print(json.dumps({"prompts": count, "rate": rates[-1],
                          "rss": peak_mib()}), flush=True)


def peer_rates(o, folder, mode, base=""):
    done = subprocess.run([sys.executable, __file__, "--peer", mode, "--folder", folder / "model",
                           "--prompts", o.prompts, "--read", str(o.read), "--write", str(o.write),
                           "--precision", o.precision, "--base", base], check=True,
                          stdout=subprocess.PIPE, text=True,
                          env=dict(os.environ, OMP_WAIT_POLICY="passive", TQDM_DISABLE="1"))
    rows = [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]
    if base:
        print(f"{mode}, {base}: {max(row['rss'] for row in rows):.0f} MiB", flush=True)
    return {row["prompts"]: row["rate"] for row in rows}


def our_rates(o, folder):
    rates = {}
    for count in map(int, o.prompts.split(",")):
        path = folder / "prompts.txt"
        path.write_text("".join(f"{i:0{o.read}d}\n" for i in range(count)))
        done = subprocess.run(
            [o.lockstep, "generate", folder / "model", "data.tokenizer=byte",
             f"numerics.precision={o.precision}", "--prompts", path,
             "--tokens", str(o.write), "--temperature", "0", "--eos", "none", "--batch", str(count),
             "--output", folder / "texts"], check=True, capture_output=True, text=True)
        seconds = re.search(r"written in ([0-9.]+) s", done.stdout + done.stderr)
        rates[count] = count * o.write / float(seconds.group(1))
    return rates


def llama_rates(o, folder):
    rates = {}
    for count in map(int, o.prompts.split(",")):
        done = subprocess.run([o.llama_rate, folder / "model.gguf", str(count), str(o.read),
                               str(o.write), str(os.cpu_count())], check=True,
                              capture_output=True, text=True)
        rates[count] = json.loads(done.stdout)["rate"]
    return rates


def peers(o, folder):
    """Who takes part, by name."""
    there = {"Lockstep": lambda: our_rates(o, folder)}
    if importlib.util.find_spec("transformers"):
        there["transformers"] = lambda: peer_rates(o, folder, "eager")
        if not o.no_compile:
            there["transformers, compiled"] = lambda: peer_rates(o, folder, "compile")
    else:
        print("transformers: missing")
    if o.llama_rate and pathlib.Path(o.llama_rate).exists():
        there["llama.cpp"] = lambda: llama_rates(o, folder)
    else:
        print("llama.cpp: missing (--llama-rate PROGRAM)")
    for base in filter(None, o.bases.split(",")):
        there[f"Lockstep, adapters over {base}"] = functools.partial(peer_rates, o, folder, "adapted",
                                                                     base)
        lacks = [name for name in ("transformers", "peft", "bitsandbytes")
                 if not importlib.util.find_spec(name)]
        if lacks:
            print(f"peft, {base}: missing ({', '.join(lacks)})")
        else:
            there[f"peft, {base}"] = functools.partial(peer_rates, o, folder, "peft", base)
    return there


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    add = parser.add_argument
    add("--prompts", default="1,16,64")
    add("--read", type=int, default=64)
    add("--write", type=int, default=128)
    add("--rounds", type=int, default=3)
    add("--layers", type=int, default=24)
    add("--precision", choices=("bf16", "fp32"), default="bf16")
    add("--lockstep", default="build/lockstep")
    add("--llama-rate")
    add("--no-compile", action="store_true")
    add("--bases", default="")
    for hidden in ("--peer", "--folder", "--base"):
        add(hidden, help=argparse.SUPPRESS)
    o = parser.parse_args()
    if o.peer:
        peer(o)
        return
    with tempfile.TemporaryDirectory() as name:
        folder, rounds = pathlib.Path(name), []
        folder_write(folder / "float", o)
        for form in ([], ["--format", "gguf"]):
            subprocess.run([o.lockstep, "export", folder / "float", "--dtype", o.precision, *form, "--out",
                            folder / ("model.gguf" if form else "model")], check=True,
                           stdout=subprocess.DEVNULL)
        there = peers(o, folder)
        for number in range(o.rounds):
            rounds.append({who: rates() for who, rates in there.items()})
            print(f"round {number + 1}:", json.dumps(rounds[-1]), flush=True)
        counts = list(map(int, o.prompts.split(",")))
        print("| | " + " | ".join(f"{count} at once" for count in counts) + " |")
        print("|---" * (len(counts) + 1) + "|")
        for who in there:
            rates = (statistics.median(row[who][count] for row in rounds) for count in counts)
            print(f"| {who} | " + " | ".join(f"{rate:.1f}" for rate in rates) + " |")


if __name__ == "__main__":
    main()
