"""Runs of GPT-2 124M on two rank threads (ZeRO 1, 4 sequences of 1024 tokens a step), and what they record."""

import contextlib
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time

LOCKSTEP = os.path.join(os.path.dirname(os.path.abspath(__file__)), "../build/lockstep")
KEYS = ["data.train=corpus_train", "model.preset=gpt2-124m", "data.sequence=1024",
        "batch.global=4", "parallel.dp=2", "parallel.zero=1",
        "optim.decay_steps=1000", "train.keep=2", "log.progress=off", "log.tensorboard=false"]


@contextlib.contextmanager
def corpus_folder():
    """A folder with a corpus, under BENCH_DIR if that is set, which is removed at the end."""
    with tempfile.TemporaryDirectory(dir=os.environ.get("BENCH_DIR")) as folder:
        with open(os.path.join(folder, "text.txt"), "w", encoding="utf-8") as file:
            file.writelines(f"{i % 100} bottles of beer on the wall,\n" for i in range(3000))
        subprocess.run([LOCKSTEP, "data", "prepare", "--input", "text.txt", "--output", "corpus",
                        "--tokenizer", "byte"], cwd=folder, check=True, stdout=subprocess.DEVNULL)
        yield folder


def records_come(run, path, told):
    """Until the run ends: told each record that it has written. How it ended, and what it used."""
    ended, at = 0, 0
    while not ended:
        ended, status, used = os.wait4(run.pid, os.WNOHANG)
        with contextlib.suppress(FileNotFoundError), open(path, encoding="utf-8") as file:
            file.seek(at)
            for line in iter(file.readline, ""):
                if line.endswith("\n"):
                    told(json.loads(line))
                    at = file.tell()
        time.sleep(0 if ended else 0.1)
    return status, used


def records_of(folder, keys, told=lambda record: None):
    """The records of a run with these keys beside KEYS, each of which told gets as it comes, and its
    CPU seconds."""
    command = [LOCKSTEP, "train", *KEYS, *keys, "train.out=run"]
    records = []
    with subprocess.Popen(command, cwd=folder, stdout=subprocess.DEVNULL) as run:
        status, used = records_come(run, os.path.join(folder, "run", "metrics.jsonl"),
                                    lambda record: (records.append(record), told(record)))
        run.returncode = os.waitstatus_to_exitcode(status)
    if run.returncode:
        sys.exit(f"{' '.join(command)} ended with {run.returncode}")
    shutil.rmtree(os.path.join(folder, "run"))
    return records, used.ru_utime + used.ru_stime
