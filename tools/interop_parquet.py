#!/usr/bin/env python3
"""Reads Parquet by tools/parquet_to_jsonl.py, beside pyarrow.

    tools/interop.sh interop_parquet.py --lockstep build/lockstep

Files of drawn texts, in row groups and codecs of several kinds, are prepared through a pipe, and the
store is made text again: right are the texts that pyarrow reads. Bad files and columns must end with
an error that names them, and leave no store. Prints what was compared; ends with 1 at a difference.
"""
import argparse
import json
import pathlib
import random
import subprocess
import sys
import tempfile

import pyarrow
import pyarrow.parquet

ALPHABET = 'ab \n\t"\\{}\u00fc\u4e16\U0001f600\x7f\u2028'
TOOL = pathlib.Path(__file__).with_name("parquet_to_jsonl.py")


def draw_texts(rng, count):
    return [None if rng.random() < 0.05 else
            "".join(rng.choice(ALPHABET) for _ in range(1 + rng.randrange(200)))
            for _ in range(count)]


def prepare(lockstep, folder, files, columns, on_error="skip"):
    """What the pipe's two ends return, and what they say. Rows without a text are bad records."""
    reader = subprocess.Popen([sys.executable, TOOL, *files, "--columns", columns],
                              stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    writer = subprocess.run(
        [lockstep, "data", "prepare", "--input", "jsonl:-", "--output", folder / "c",
         "--tokenizer", "byte", "--validation", "0", "--json-keys", "body", "--on-error", on_error],
        stdin=reader.stdout, stderr=subprocess.PIPE, stdout=subprocess.PIPE, check=False)
    reader.stdout.close()
    said = reader.stderr.read().decode()
    return reader.wait(), writer.returncode, said + writer.stderr.decode()


def round_trip(lockstep, folder, seed):
    rng = random.Random(seed)
    files, expected = [], []
    for codec in ("none", "snappy", "zstd"):
        texts = draw_texts(rng, 1 + rng.randrange(3000))
        table = pyarrow.table({"id": list(range(len(texts))), "body": texts,
                               "tags": [["x", None]] * len(texts)})
        files.append(folder / f"{codec}.parquet")
        pyarrow.parquet.write_table(table, files[-1], compression=codec,
                                    row_group_size=1 + rng.randrange(1000))
        expected += [text for text in texts if text is not None]
    codes = prepare(lockstep, folder, files, "body,id")
    if codes[:2] != (0, 0):
        raise SystemExit(f"seed {seed}: {codes}")
    subprocess.run([lockstep, "data", "detokenize", folder / "c_train", "--output",
                    folder / "back.jsonl"], check=True, stdout=subprocess.DEVNULL)
    found = [json.loads(line)["text"] for line in open(folder / "back.jsonl", encoding="utf-8")]
    if found != expected:
        raise SystemExit(f"seed {seed}: {len(found)} texts came back, expected {len(expected)}")
    return len(found)


def refusals(lockstep, folder):
    good = folder / "none.parquet"
    bad = folder / "bad.parquet"
    bad.write_bytes(b"PAR1 and no more")
    binary = folder / "binary.parquet"
    pyarrow.parquet.write_table(pyarrow.table({"body": [b"\xff"]}), binary)
    latin = folder / "latin.parquet"  # a text that is no UTF-8, which Parquet lets pass
    text = pyarrow.Array.from_buffers(pyarrow.utf8(), 1, [
        None, pyarrow.py_buffer(b"\0\0\0\0\1\0\0\0"), pyarrow.py_buffer(b"\xff")])
    pyarrow.parquet.write_table(pyarrow.table({"body": text}), latin)
    cases = [([good, "--columns", "nothing"], "no column nothing; it has id, body, tags"),
             ([bad], "bad.parquet"), ([folder / "absent.parquet"], "absent.parquet"),
             ([binary], "JSON cannot hold"), ([latin], "latin.parquet")]
    for arguments, says in cases:
        run = subprocess.run([sys.executable, TOOL, *arguments], capture_output=True, text=True,
                             check=False)
        if run.returncode != 1 or says not in run.stderr or "Traceback" in run.stderr:
            raise SystemExit(f"{arguments}: {run.returncode}, {run.stderr}: expected {says}")
    # The reader of the pipe must not take what came before the error for all.
    whole = folder / "whole.parquet"
    pyarrow.parquet.write_table(pyarrow.table({"body": ["one", "two"]}), whole)
    (folder / "c_train.idx").unlink()
    for second in (bad, latin):
        read, written, said = prepare(lockstep, folder, [whole, second], "body", "stop")
        if read != 1 or written == 0 or "failed here" in said or (folder / "c_train.idx").exists():
            raise SystemExit(f"{second.name} after a good one: {read}, {written}, {said}")
    return len(cases) + 2


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--lockstep", required=True, type=lambda path: pathlib.Path(path).resolve())
    parser.add_argument("--seed", type=int, default=1)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        folder = pathlib.Path(folder)
        texts = sum(round_trip(arguments.lockstep, folder, arguments.seed + i) for i in range(3))
        refused = refusals(arguments.lockstep, folder)
    print(f"parquet: {texts} texts came back as pyarrow {pyarrow.__version__} reads them, "
          f"{refused} bad requests were refused")


if __name__ == "__main__":
    main()
