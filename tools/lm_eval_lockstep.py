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


# What lm_eval hands to every model, from options of its own.
HARNESS = {"batch_size", "max_batch_size", "device", "trust_remote_code"}


@register_model("lockstep")
class LockstepLM(LM):
    def __init__(self, run, layout="", batch=16, **others):
        unknown = others.keys() - HARNESS
        if unknown:
            raise ValueError(f"--model_args: {', '.join(sorted(unknown))}: expected run, layout or batch")
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
        """Requests that draw alike go together."""
        alike = {}
        for i, request in enumerate(requests):
            context, keys = request.args
            draws, record = asked_of(keys)
            alike.setdefault(tuple(draws.items()), []).append((i, {"prompt": context, **record}))
        texts = [None] * len(requests)
        for draws, asked in alike.items():
            written = self.model.write([record for _, record in asked], batch=self.batch, truncate=True,
                                       **dict(draws))
            for (i, _), text in zip(asked, written):
                texts[i] = text
        return texts


# The harness takes the first of these that is there.
MOST = ("max_gen_toks", "max_new_tokens", "max_tokens", "max_completion_tokens")
# Keys of other programs, and the values at which they change no text.
NEUTRAL = {"num_beams": 1, "repetition_penalty": 1, "min_p": 0, "typical_p": 1, "no_repeat_ngram_size": 0}


def asked_of(keys):
    """How a request's generation_kwargs draw, and the text's ends, as the harness reads them."""
    until = keys.get("until") or []
    until = [until] if isinstance(until, str) else [text for text in until if text]
    most = next((keys[name] for name in MOST if keys.get(name) is not None), 256)
    temperature = 0.0 if keys.get("do_sample") is False else float(keys.get("temperature") or 0)
    draws = {"temperature": temperature}
    if temperature > 0:
        draws.update(top_k=max(int(keys.get("top_k") or 0), 0), top_p=float(keys.get("top_p") or 1))
    for name in keys.keys() - {"until", "do_sample", "temperature", "top_k", "top_p", *MOST}:
        if keys[name] is not None and keys[name] != NEUTRAL.get(name):
            raise ValueError(f"generation_kwargs: {name}: {keys[name]!r}: not supported: leave it out")
    return draws, {"max_tokens": int(most), "stop": until}


class Request:
    """What lm_eval calls an Instance, as far as it is read here."""

    def __init__(self, *args):
        self.args = args


def self_test(run):
    try:
        LockstepLM(run, add_bos_token=True, batch_size=1)
        raise AssertionError("add_bos_token was passed over")
    except ValueError as error:
        assert "--model_args: add_bos_token: expected run" in str(error), error
    model = LockstepLM(run, batch_size=1, device=None, trust_remote_code=True)
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
    alone = {"max_new_tokens": 8, "do_sample": True, "temperature": 1, "top_k": 1, "num_beams": 1}
    greedy, drawn = model.generate_until([Request(text, {**alone, "do_sample": False}), Request(text, alone)])
    assert greedy == drawn, (greedy, drawn)
    try:
        model.generate_until([Request(text, {"repetition_penalty": 1.1})])
        raise AssertionError("repetition_penalty was passed over")
    except ValueError as error:
        assert "repetition_penalty: 1.1" in str(error), error
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
