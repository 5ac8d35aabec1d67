#!/usr/bin/env python3
"""Serves lm-evaluation-harness (lm_eval) with a run of Lockstep.

    tools/lm_eval_lockstep.py --model lockstep --model_args run=runs/demo --tasks hellaswag
    tools/lm_eval_lockstep.py --self-test RUN

takes the arguments of the program lm_eval, which must be installed. Keys of --model_args:

    run       the run, or a folder of a model
    layout    keys of the layout, with spaces between them: "parallel.tp=2 parallel.pp=2"
    lockstep  the program (default: build/lockstep beside this script, or lockstep)
    batch     prompts that are continued at a time (default: 16)

Requests go through files to `lockstep eval --requests` and `lockstep generate --prompts`, so the
model may be cut over ranks, and no process here holds any of it. --self-test asks a run without
lm_eval, and exits with 1 if an answer contradicts another.
"""

import json
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile

try:
    from lm_eval.api.model import LM
    from lm_eval.api.registry import register_model
except ImportError:
    LM = object

    def register_model(_name):
        return lambda cls: cls


def default_program():
    built = pathlib.Path(__file__).resolve().parents[1] / "build" / "lockstep"
    return str(built) if built.exists() else shutil.which("lockstep") or "lockstep"


@register_model("lockstep")
class LockstepLM(LM):
    def __init__(self, run, layout="", lockstep=None, batch=16, **_ignored):
        super().__init__()
        self.run = run
        self.layout = str(layout).split()
        self.program = lockstep or default_program()
        self.batch = int(batch)

    def ask(self, command, option, records, *more):
        """The answers of a command to records, in their order."""
        if not records:
            return []
        with tempfile.TemporaryDirectory() as folder:
            asked = os.path.join(folder, "asked.jsonl")
            answered = os.path.join(folder, "answered.jsonl")
            with open(asked, "w", encoding="utf-8") as file:
                for record in records:
                    file.write(json.dumps(record) + "\n")
            line = [self.program, command, self.run, option, asked, "--output", answered]
            done = subprocess.run(line + list(more) + self.layout, stderr=subprocess.PIPE, text=True)
            if done.returncode:
                raise RuntimeError(done.stderr.strip())
            with open(answered, encoding="utf-8") as file:
                return [json.loads(text) for text in file]

    def loglikelihood(self, requests, disable_tqdm=False):
        records = [{"context": r.args[0], "continuation": r.args[1]} for r in requests]
        answers = self.ask("eval", "--requests", records, "--truncate")
        return [(answer["loglikelihood"], answer["is_greedy"]) for answer in answers]

    def loglikelihood_rolling(self, requests, disable_tqdm=False):
        answers = self.ask("eval", "--requests", [{"text": r.args[0]} for r in requests])
        return [answer["loglikelihood"] for answer in answers]

    def generate_until(self, requests, disable_tqdm=False):
        """Requests of one temperature go together."""
        by_temperature = {}
        for i, request in enumerate(requests):
            context, keys = request.args
            until = keys.get("until") or []
            record = {"prompt": context, "max_tokens": int(keys.get("max_gen_toks", 256)),
                      "stop": [until] if isinstance(until, str) else list(until)}
            draws = keys.get("do_sample", "temperature" in keys)
            temperature = float(keys.get("temperature", 1)) if draws else 0.0
            by_temperature.setdefault(temperature, []).append((i, record))
        texts = [None] * len(requests)
        for temperature, asked in by_temperature.items():
            answers = self.ask("generate", "--prompts", [record for _, record in asked],
                               "--truncate", "--temperature", str(temperature),
                               "--batch", str(self.batch))
            for (i, _), answer in zip(asked, answers):
                texts[i] = answer["text"]
        return texts


class Request:
    """What lm_eval calls an Instance, as far as it is read here."""

    def __init__(self, *args):
        self.args = args


def self_test(run):
    model = LockstepLM(run, lockstep=os.environ.get("LOCKSTEP"))
    text = "in the beginning"
    (pair, _), (_, greedy), = model.loglikelihood([Request("", text), Request("in the", " end")])
    (rolling,) = model.loglikelihood_rolling([Request(text)])
    assert pair == rolling < 0, (pair, rolling)
    assert greedy in (True, False)
    keys = {"until": ["\n\n"], "max_gen_toks": 8, "do_sample": False}
    first, second = model.generate_until([Request(text, keys), Request("so", {"max_gen_toks": 3})])
    ((_, drawn),) = model.loglikelihood([Request(text, first)])
    assert drawn is True or not first or "\ufffd" in first or "<|" in first, first
    assert isinstance(second, str)
    print("lm_eval_lockstep: ok")


def main():
    if sys.argv[1:2] == ["--self-test"]:
        self_test(sys.argv[2])
        return
    if LM is object:
        sys.exit("lm_eval is not installed: pip install lm_eval")
    from lm_eval.__main__ import cli_evaluate

    cli_evaluate()


if __name__ == "__main__":
    main()
