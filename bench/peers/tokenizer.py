#!/usr/bin/env python3
"""Encoding of a text with GPT-2's tokenizer, beside the packages tiktoken and tokenizers.

    bench/peers/tokenizer.py DIR [--text FILE] [--rounds 5] [--threads N] [--lockstep build/lockstep]

DIR holds gpt2-vocab.json, gpt2-merges.txt and, without --text, tinyshakespeare.txt. The programs run in
turns, on one thread and on several; a figure is the median over rounds of MB/s, a ratio the median of
the rounds' ratios. tokenizers encodes the whole text and, as its documentation has it, a batch of its
lines; the faster of both is the peer. All must give the same number of tokens."""
import argparse
import json
import os
import statistics
import subprocess
import sys
import time

os.environ["TOKENIZERS_PARALLELISM"] = "false"

import tiktoken
from tokenizers import ByteLevelBPETokenizer

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "tools"))
from golden_tokenizer import PATTERN, byte_characters


def rate(megabytes, call):
    begin = time.perf_counter()
    tokens = call()
    return megabytes / (time.perf_counter() - begin), tokens


def ours(o, path, threads):
    output = subprocess.run([o.lockstep, "bench", "tokenizer", f"tokenizer={o.dir}", f"text={path}",
                             f"threads={threads}"], check=True, capture_output=True, text=True).stdout
    found = json.loads(output.splitlines()[-1])
    return found["mb_per_s"], found["mb_per_s_threads"], found["tokens"]


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("dir")
    parser.add_argument("--text")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--threads", type=int, default=os.cpu_count())
    parser.add_argument("--lockstep", default="build/lockstep")
    o = parser.parse_args()
    path = o.text or os.path.join(o.dir, "tinyshakespeare.txt")
    vocab, merges = (os.path.join(o.dir, f) for f in ("gpt2-vocab.json", "gpt2-merges.txt"))
    with open(path, encoding="utf-8") as file:
        text = file.read()
    with open(vocab, encoding="utf-8") as file:
        ids = json.load(file)
    byte_of = byte_characters()
    ranks = {bytes(byte_of[c] for c in t): i for t, i in ids.items() if t != "<|endoftext|>"}
    openai = tiktoken.Encoding("gpt2", pat_str=tiktoken_pattern(), mergeable_ranks=ranks,
                               special_tokens={})
    face = ByteLevelBPETokenizer(vocab, merges)
    lines = text.splitlines(keepends=True)
    megabytes = len(text.encode()) / 1e6
    programs = {
        "tiktoken": lambda: len(openai.encode_ordinary(text)),
        "tiktoken, threads": lambda: sum(map(len, openai.encode_ordinary_batch(
            [text] * o.threads, num_threads=o.threads))),
        "tokenizers": lambda: len(face.encode(text).ids),
        "tokenizers, a batch": lambda: sum(len(e.ids) for e in face.encode_batch(lines)) and None,
    }
    rates = {name: [] for name in ["Lockstep", "Lockstep, threads", *programs]}
    for turn in range(o.rounds):
        one, several, expected = ours(o, path, o.threads)
        rates["Lockstep"].append(one)
        rates["Lockstep, threads"].append(several)
        for name, call in programs.items():
            times = o.threads if "threads" in name else 1
            found, tokens = rate(megabytes * times, call)
            assert tokens in (None, expected * times), f"{name}: {tokens} tokens, not {expected * times}"
            rates[name].append(found)
    print(f"{megabytes:.1f} MB of text, {o.threads} threads, median of {o.rounds} rounds")
    peer = {"tiktoken, threads": "Lockstep, threads"}
    for name, values in rates.items():
        against = rates[peer.get(name, "Lockstep")]
        ratio = statistics.median(a / b for a, b in zip(against, values))
        print(f"{name:22} {statistics.median(values):8.1f} MB/s"
              + ("" if name.startswith("Lockstep") else f"   Lockstep is {ratio:.1f} times as fast"))


def tiktoken_pattern():
    """What tiktoken itself uses, which is faster than the original and equal to it."""
    try:
        from tiktoken_ext.openai_public import r50k_pat_str
        return r50k_pat_str
    except ImportError:
        return PATTERN


if __name__ == "__main__":
    main()
