#!/usr/bin/env python3
"""Training of a byte-level BPE tokenizer, beside the package tokenizers.

    bench/peers/train_tokenizer.py TEXT [--vocab 32000] [--rounds 3] [--threads N] [--lockstep build/lockstep]

TEXT is cut into documents at empty lines. Lockstep reads them as JSONL; the package gets them as a list of
strings that is in memory, so reading costs it nothing. Both run in turns, on N threads; the times are from
text to tokenizer.json. Both must make the same vocabulary and the same merges."""
import argparse
import json
import os
import re
import statistics
import subprocess
import sys
import tempfile
import time


def documents_of(path, least):
    """Parts of a text that end behind an empty line, each of `least` characters or more."""
    with open(path, encoding="utf-8") as file:
        text = file.read()
    documents, begin = [], 0
    for end in (m.end() for m in re.finditer(r"\n\n+", text)):
        if end - begin >= least:
            documents.append(text[begin:end])
            begin = end
    return [d for d in documents + [text[begin:]] if d]


def theirs(documents, vocab, path):
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(vocab_size=vocab, min_frequency=2, special_tokens=["<|endoftext|>"],
                                  initial_alphabet=pre_tokenizers.ByteLevel.alphabet(), show_progress=False)
    begin = time.perf_counter()
    tokenizer.train_from_iterator(documents, trainer)
    tokenizer.save(path)
    return time.perf_counter() - begin


def ours(o, corpus, folder):
    begin = time.perf_counter()
    subprocess.run([o.lockstep, "data", "train-tokenizer", "--input", corpus, "--vocab", str(o.vocab),
                    "--output", folder, "--workers", str(o.threads)], check=True, stdout=subprocess.DEVNULL)
    return time.perf_counter() - begin


def model_of(path):
    with open(path, encoding="utf-8") as file:
        model = json.load(file)["model"]
    return model["vocab"], [m if isinstance(m, str) else " ".join(m) for m in model["merges"]]


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("text")
    parser.add_argument("--vocab", type=int, default=32000)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--threads", type=int, default=os.cpu_count())
    parser.add_argument("--lockstep", default="build/lockstep")
    o = parser.parse_args()
    os.environ["RAYON_NUM_THREADS"] = str(o.threads)
    os.environ["TOKENIZERS_PARALLELISM"] = "true"
    documents = documents_of(o.text, 2000)
    times = {"Lockstep": [], "tokenizers": []}
    with tempfile.TemporaryDirectory() as folder:
        corpus, found, expected = (os.path.join(folder, f) for f in ("corpus.jsonl", "ours", "theirs.json"))
        with open(corpus, "w", encoding="utf-8") as file:
            file.writelines(json.dumps({"text": d}, ensure_ascii=False) + "\n" for d in documents)
        for _ in range(o.rounds):
            times["Lockstep"].append(ours(o, corpus, found))
            times["tokenizers"].append(theirs(documents, o.vocab, expected))
        same = model_of(os.path.join(found, "tokenizer.json")) == model_of(expected)
    megabytes = os.path.getsize(o.text) / 1e6
    print(f"{megabytes:.1f} MB in {len(documents)} documents, vocabulary {o.vocab}, {o.threads} threads, "
          f"median of {o.rounds} rounds")
    for name, seconds in times.items():
        median = statistics.median(seconds)
        print(f"{name:12} {median:8.2f} s  {megabytes / median:8.1f} MB/s")
    ratio = statistics.median(b / a for a, b in zip(times["Lockstep"], times["tokenizers"]))
    print(f"Lockstep is {ratio:.1f} times as fast; the merges are {'equal' if same else 'DIFFERENT'}")
    sys.exit(0 if same else 1)


if __name__ == "__main__":
    main()
