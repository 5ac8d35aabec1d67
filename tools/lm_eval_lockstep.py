#!/usr/bin/env python3
"""Serves lm-evaluation-harness (lm_eval) with a run of Lockstep.

    tools/lm_eval_lockstep.py --model lockstep --model_args run=runs/demo --tasks hellaswag
    tools/lm_eval_lockstep.py --self-test RUN

takes the arguments of the program lm_eval, which must be installed. Keys of --model_args:

    run       the run, or a folder of a model
    layout    keys of the layout, with spaces between them: "parallel.tp=2 parallel.pp=2"
    batch     prompts that are continued at a time (default: 16)

The model is opened once, by the Python package (installed, or this clone's), and may be cut over
ranks. --self-test asks a run without lm_eval, and exits with 1 if an answer contradicts another.
"""

import pathlib
import sys

try:
    import lockstep
except ImportError:
    sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "python"))
    import lockstep

try:
    from lm_eval.api.model import LM
    from lm_eval.api.registry import register_model
except ImportError:
    LM = object

    def register_model(_name):
        return lambda cls: cls


@register_model("lockstep")
class LockstepLM(LM):
    def __init__(self, run, layout="", batch=16, **_ignored):
        super().__init__()
        keys = dict(word.split("=", 1) for word in str(layout).split())
        self.model = lockstep.Model(run, keys)
        self.batch = int(batch)

    def scores(self, records, truncate):
        return self.model.score(records, truncate) if records else []

    def loglikelihood(self, requests, disable_tqdm=False):
        records = [{"context": r.args[0], "continuation": r.args[1]} for r in requests]
        return [(score.loglikelihood, score.greedy) for score in self.scores(records, True)]

    def loglikelihood_rolling(self, requests, disable_tqdm=False):
        records = [{"text": r.args[0]} for r in requests]
        return [score.loglikelihood for score in self.scores(records, False)]

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
            written = self.model.write([record for _, record in asked], temperature=temperature,
                                       batch=self.batch, truncate=True)
            for (i, _), text in zip(asked, written):
                texts[i] = text
        return texts


class Request:
    """What lm_eval calls an Instance, as far as it is read here."""

    def __init__(self, *args):
        self.args = args


def self_test(run):
    model = LockstepLM(run)
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
