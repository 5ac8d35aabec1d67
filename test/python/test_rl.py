"""Training on generated text: formulas against closed forms and differences, loops against
themselves in other layouts, beside twins that are broken. With torch and transformers also against
these (test_rl_torch.py)."""

import codecs
import contextlib
import inspect
import json
import os
import pathlib
import runpy
import shutil
import signal
import sys

import numpy as np
import pytest

import lockstep as ls
from lockstep import _loop, preference, rl
from lockstep._loop import order
from conftest import ALL, ISA, cases

os.environ.setdefault("LOCKSTEP_PEAK_FLOPS", "2e11")  # nothing is measured

LAYOUTS = [{}, {"parallel.dp": 2}, {"parallel.tp": 2}, {"parallel.pp": 2},
           {"parallel.dp": 4, "parallel.zero": 3},
           {"parallel.dp": 2, "parallel.tp": 2, "parallel.zero": 1}]
# Of a test that opens a run in each: every axis is in one of them.
CUTS = LAYOUTS if ALL else [LAYOUTS[0], LAYOUTS[3], LAYOUTS[5]]
ROLLOUTS = [({"parallel.dp": 2, "parallel.zero": 3}, {"rollout.dp": 2}),
            ({"parallel.pp": 2}, {"rollout.dp": 2}),
            ({"parallel.dp": 2, "parallel.zero": 1}, {"rollout.tp": 2}),
            ({"parallel.dp": 2, "parallel.tp": 2, "parallel.zero": 3}, {"rollout.pp": 2})]
PROMPTS = [{"prompt": f"{a}+{b}=", "sum": a + b} for a in range(3) for b in range(3)]
KEYS = {"data.sequence": 11, "batch.global": 8, "optim.lr": 3e-3, "optim.schedule": "constant",
        "train.steps": 4, "numerics.arithmetic": "fma", "numerics.isa": ISA,
        "parallel.threads": 1,
        "log.tensorboard": False, "data.tokenizer": "byte"}
PAIRS = [{"prompt": "a", "chosen": "bcd" * (1 + i % 2), "rejected": "x" * (1 + i)}
         for i in range(5)]


def reward(prompts, texts):
    """Anything that differs from text to text."""
    return [sum(text.encode()) % 7 + asked["sum"] for asked, text in zip(prompts, texts)]


@pytest.fixture(scope="module")
def start(tmp_path_factory):
    """A small model, trained for two steps."""
    out = tmp_path_factory.mktemp("rl") / "start"
    keys = {**KEYS, "model.arch": "gpt2", "model.layers": 2, "model.channels": 32,
            "model.heads": 4, "model.context": 12, "train.steps": 2, "train.out": out}
    with ls.Run(keys, progress=False) as run:
        for _ in run_steps(run):
            pass
    return out


def run_steps(run):
    tokens = np.arange(8 * 12).reshape(8, 12) % 97
    while not run.ended:
        yield run.step(tokens)


def opened(start, out, layout, **keys):
    return ls.Run({"model.from": start, "train.out": out, **KEYS, **keys}, layout, progress=False)


def tokenizer_write(folder, special=(), **settings):
    """tokenizer.json of the 256 bytes, in GPT-2's order and letters, and of special tokens behind them."""
    plain = [*range(33, 127), *range(161, 173), *range(174, 256)]
    others = [byte for byte in range(256) if byte not in plain]
    letters = [chr(byte) for byte in plain] + [chr(256 + i) for i in range(len(others))]
    added = [{"id": 256 + i, "content": token, "special": True} for i, token in enumerate(special)]
    level = {"type": "ByteLevel", "add_prefix_space": False}
    folder.mkdir(exist_ok=True)
    for name, content in (
            ("tokenizer.json", {"added_tokens": added, "pre_tokenizer": level, "decoder": level,
                                "model": {"type": "BPE", "vocab": {x: i for i, x in enumerate(letters)},
                                          "merges": []}}),
            ("tokenizer_config.json", settings)):
        (folder / name).write_text(json.dumps(content))


# ---- formulas -----------------------------------------------------------------------------------

def test_advantages_are_their_closed_forms():
    rewards = [[1, 0, 0, 1], [2, 2, 2, 2]]
    std = (4 * 0.25 / 3) ** 0.5
    assert np.allclose(rl.group_advantages(rewards)[0], np.array([.5, -.5, -.5, .5]) / (std + 1e-4))
    assert rl.group_advantages(rewards, scale=False)[0].tolist() == [.5, -.5, -.5, .5]
    assert (rl.group_advantages(rewards)[1] == 0).all()
    out = rl.leave_one_out([[3.0, 0, 6]])
    assert np.allclose(out, [[3 - 3, 0 - 4.5, 6 - 1.5]])


def test_advantages_by_the_deviation_of_the_batch():
    rewards = np.array([[1., 0, 0, 1], [2, 2, 2, 5]])
    apart = rewards - rewards.mean(1, keepdims=True)
    assert np.allclose(rl.group_advantages(rewards, "batch"), apart / (rewards.std(ddof=1) + 1e-4))
    assert not np.allclose(rl.group_advantages(rewards), rl.group_advantages(rewards, "batch"))


def test_k3_estimates_the_divergence():
    policy, reference = np.array([.2, .5, .3]), np.array([.4, .4, .2])
    each = rl.k3(np.log(policy), np.log(reference))
    assert np.isclose((policy * each).sum(), (policy * np.log(policy / reference)).sum())
    assert (each >= 0).all() and rl.k3(np.log(policy), np.log(policy)).tolist() == [0, 0, 0]


def test_weights_of_tokens():
    mask = np.array([[False, True, True], [False, True, False]])
    for how, want in (("text", [[0, .25, .25], [0, .5, 0]]), ("sum", [[0, .5, .5], [0, .5, 0]]),
                      ("tokens", np.array([[0, 1, 1], [0, 1, 0]]) / 3),
                      ("max", np.array([[0, 1, 1], [0, 1, 0]]) / 20)):
        assert np.allclose(rl.token_weights(mask, how, 10), want), how
    with pytest.raises(ls.ArgumentError, match="expected one of text, max"):
        rl.token_weights(mask, "mean", 10)


def drawn_case(seed):
    rng = np.random.RandomState(seed)
    old = -rng.rand(12, 8) * 3
    logp, reference = old + rng.randn(12, 8) * .3, old + rng.randn(12, 8) * .3
    weights = rl.token_weights(rng.rand(12, 8) < .8, "text", 8)
    return logp, old, rng.randn(12), weights, reference


def plain_grpo(logp, old, gains, weights, low, high, kl, reference):
    """The paper's objective, token by token."""
    total = 0.0
    for i in range(logp.shape[0]):
        for t in range(logp.shape[1]):
            ratio = np.exp(logp[i, t] - old[i, t])
            kept = min(max(ratio, 1 - low), 1 + high)
            apart = np.exp(reference[i, t] - logp[i, t]) - (reference[i, t] - logp[i, t]) - 1
            total -= weights[i, t] * (min(ratio * gains[i], kept * gains[i]) - kl * apart)
    return total


def slope_apart(logp, old, gains, weights, reference, clip, kl):
    """The derivative's greatest distance from a central difference of the paper's objective."""
    loss = rl.policy_loss(logp, old, gains, weights, (.2, .3), .5, reference)
    assert np.isclose(loss.value, plain_grpo(logp, old, gains, weights, .2, .3, .5, reference))
    slope, step = np.zeros(logp.shape), 1e-6
    for at in np.ndindex(*logp.shape):
        sides = []
        for sign in (1, -1):
            moved = logp.copy()
            moved[at] += sign * step
            sides.append(plain_grpo(moved, old, gains, weights, *clip, kl, reference))
        slope[at] = (sides[0] - sides[1]) / (2 * step)
    return np.abs(slope - loss.d_logprobs).max()


def test_grpo_is_the_slope_of_its_objective():
    logp, old, gains, weights, reference = case = drawn_case(1)
    loss = rl.policy_loss(logp, old, gains, weights, (.2, .3), .5, reference)
    assert loss.clipped.any() and not loss.clipped[weights > 0].all()
    assert slope_apart(*case, (.2, .3), .5) < 1e-8
    for clip, kl in (((.2, .2), .5), ((.2, .3), .4), ((9, 9), .5)):  # twins: another objective
        assert slope_apart(*case, clip, kl) > 1e-4, (clip, kl)


def plain_objective(logp, old, gains, weights, reference, of_texts, weighted):
    """As TRL writes it, of log-probabilities in double."""
    inside = weights > 0
    log_ratio = logp - old
    if of_texts:
        log_ratio = (log_ratio * inside).sum(1, keepdims=True) / np.maximum(inside.sum(1, keepdims=True), 1)
    ratio, gains = np.exp(log_ratio), gains[:, None]
    each = -np.minimum(ratio * gains, np.clip(ratio, .98, 1.03) * gains)
    kl = np.exp(reference - logp) - (reference - logp) - 1
    return (weights * (each + .5 * kl * (ratio if weighted else 1))).sum()


@pytest.mark.parametrize("how", [(True, False), (False, True), (True, True)], ids=str)
def test_other_ratios_and_divergences_are_slopes_of_theirs(how):
    logp, old, gains, weights, reference = drawn_case(3)
    given = {"ratio_of": "text" if how[0] else "token", "kl_weighted": how[1]}
    loss = rl.policy_loss(logp, old, gains, weights, (.02, .03), .5, reference, **given)
    plain = rl.policy_loss(logp, old, gains, weights, (.02, .03), .5, reference)

    def objective(values):
        return plain_objective(values, old, gains, weights, reference, *how)

    assert np.isclose(loss.value, objective(logp)) and loss.clipped.any()
    for at in np.ndindex(*logp.shape):
        up, down = logp.copy(), logp.copy()
        up[at] += 1e-6
        down[at] -= 1e-6
        assert np.isclose((objective(up) - objective(down)) / 2e-6, loss.d_logprobs[at], atol=1e-8)
    assert not np.allclose(plain.d_logprobs, loss.d_logprobs)  # twin


@pytest.mark.parametrize("smoothing", [0, .2])
def test_dpo_is_the_slope_of_its_loss(smoothing):
    rng = np.random.RandomState(2)
    logp, reference = rng.randn(3, 2) * 5, rng.randn(3, 2) * 5

    def plain(values):
        z = .3 * ((values[:, 0] - reference[:, 0]) - (values[:, 1] - reference[:, 1]))
        return np.mean((1 - smoothing) * np.log(1 + np.exp(-z)) + smoothing * np.log(1 + np.exp(z)))

    margins, slope = preference.preference_loss(logp, reference, .3, smoothing)
    assert np.isclose(preference.losses(margins, smoothing).mean(), plain(logp))
    for at in np.ndindex(3, 2):
        up, down = logp.copy(), logp.copy()
        up[at] += 1e-6
        down[at] -= 1e-6
        assert np.isclose((plain(up) - plain(down)) / 2e-6, slope[at], atol=1e-8)


@pytest.mark.parametrize("arch", [{"model.arch": "gpt2"},
                                  {"model.arch": "gemma2", "model.ffn": 64,
                                   "model.logit_softcap": .2}], ids=["gpt2", "gemma2"])
def test_log_probabilities_and_their_slope_at_a_temperature(tmp_path, arch):
    keys = {**KEYS, **arch, "model.layers": 2, "model.channels": 32, "model.heads": 4,
            "model.context": 12, "numerics.precision": "fp32", "train.out": tmp_path / "run"}
    with ls.Run(keys, progress=False) as run:
        every = [[97, v] for v in range(run.vocabulary)]
        at_one = run.logprobs(every)[:, 1].astype(np.float64)
        for off, want in ((1, True), (1.1, False)):
            scaled = at_one / (.5 * off)
            expected = scaled - np.log(np.exp(scaled).sum())
            assert np.allclose(run.logprobs(every, .5)[:, 1], expected, atol=1e-5) is want
        ids, rng = np.arange(8 * 12).reshape(8, 12) % 97, np.random.RandomState(0)
        d, e = rng.randn(8, 12), 3 * rng.randn(8, 12)
        assert (run.backward(ids, d, .5) == run.logprobs(ids, .5)).all()
        run.discard()
        tensor = run.params["h.0.mlp.down.weight"]
        kept = tensor.full()
        for of_logp, of_entropy in ((d, 0 * e), (d, e), (0 * d, e)):
            found = run.backward(ids, of_logp, .5, d_entropies=of_entropy)
            assert np.array_equal(found, run.logprobs(ids, .5, entropy=True))
            grad = tensor.grad.full()
            way, slope = np.sign(grad), float(np.abs(grad).sum())
            run.discard()
            sides = []
            for sign in (1, -1):
                tensor.set(kept + sign * np.float32(1e-3) * way)
                logp, entropies = run.logprobs(ids, .5, entropy=True)
                sides.append((logp * of_logp + entropies * of_entropy).sum(dtype=np.float64))
            tensor.set(kept)
            differences = (sides[0] - sides[1]) / 2e-3
            assert abs(slope / differences - 1) < 1e-2 and abs(1.1 * slope / differences - 1) > 5e-2
        for few in (0, 1e-45):
            with pytest.raises(ls.ArgumentError, match="temperature: expected a number above 0"):
                run.logprobs(ids, few)
        with pytest.raises(ls.ArgumentError, match="scaled: there are no log-prob"):
            run.generate("a", max_tokens=2, temperature=1e-45, scaled=True)
        with pytest.raises(ls.ArgumentError, match="scaled: there are no log-prob"):
            run.generate("a", max_tokens=2, temperature=0, scaled=True)


def exact_entropy(run, prefix, temperature):
    """Of what follows the prefix, from the log-probability of each token of the vocabulary."""
    every = run.logprobs([[*prefix, v] for v in range(run.vocabulary)], temperature)
    logp = every[:, -1].astype(np.float64)
    return float(-(np.exp(logp) * logp).sum())


def test_entropy_is_of_the_whole_vocabulary_and_has_one_set_of_bits(start, tmp_path):
    ids, found = [[97, 98, 99, 100, 101], [1, 2, 3]], []
    for i, layout in enumerate(CUTS):
        with opened(start, tmp_path / str(i), layout) as run:
            logp, entropy = run.logprobs(ids, .7, entropy=True)
            assert (logp == run.logprobs(ids, .7)).all()
            found.append(entropy.tobytes())
    assert len(set(found)) == 1
    assert entropy.shape == (2, 5) and (entropy[:, 0] == 0).all() and (entropy[1, 3:] == 0).all()
    with opened(start, tmp_path / "every", {}) as run:
        for row, t in ((0, 1), (0, 4), (1, 2)):
            assert abs(entropy[row, t] - exact_entropy(run, ids[row][:t], .7)) < 1e-5
            assert abs(entropy[row, t] - exact_entropy(run, ids[row][:t], 1)) > 1e-4  # twin


def test_a_gradient_of_entropies_has_one_set_of_bits(start, tmp_path):
    rng, found = np.random.RandomState(3), {}
    ids = rng.randint(0, 97, (8, 12))
    ids[5, 7:] = -1
    d, e = rng.randn(8, 12), rng.randn(8, 12)
    shifted = np.roll(e, 1, axis=1)
    given = [(layout, e) for layout in CUTS] + [({}, None), ({}, shifted)]  # twins
    for i, (layout, weights) in enumerate(given):
        with opened(start, tmp_path / str(i), layout) as run:
            answer = run.backward(ids, d, .7, d_entropies=weights)
            if weights is e:
                assert np.array_equal(answer, run.logprobs(ids, .7, entropy=True))
            run.step()
            found.setdefault(run.hash(), []).append(i)
    n = len(CUTS)
    assert list(found.values()) == [list(range(n)), [n], [n + 1]]


@pytest.mark.parametrize("kind", [rl.GRPO, rl.RLOO])
def test_a_bonus_keeps_the_entropy_up(start, tmp_path, kind):
    (plain, without), (hash_, bonus), (cut, again) = (
        looped(start, tmp_path / f"{c}{layout}", layout, kind, entropy=True, entropy_bonus=c)
        for c, layout in ((0, {}), (2, {}), (2, {"parallel.tp": 2})))
    assert hash_ == cut != plain
    assert [m[:4] + m[5:11] for m in bonus] == [m[:4] + m[5:11] for m in again]  # kl is NaN
    assert bonus[0].entropy == without[0].entropy
    assert all(a.entropy < b.entropy for a, b in zip(without[1:], bonus[1:]))
    with opened(start, tmp_path / "again", {}) as run:
        loop = grpo(run, kind)
        batch = loop._roll(0)
        each = run.logprobs(batch["ids"], entropy=True)[1]
        weights = rl.token_weights(batch["mask"], loop.normalise, loop.max_tokens)
    assert np.isclose(bonus[0].loss, without[0].loss - 2 * (weights * each).sum(), rtol=1e-12)
    with opened(start, tmp_path / "refused", {}) as run:
        with pytest.raises(ls.ArgumentError, match="entropy_bonus is -1: expected a number from 0"):
            grpo(run, kind, entropy_bonus=-1)
        for wrong, why in ((np.zeros((8, 3)), "has shape"), (np.full((8, 12), np.nan), "finite")):
            with pytest.raises(ls.ArgumentError, match="d_entropies.*" + why):
                run.backward(np.zeros((8, 12), int), np.zeros((8, 12)), d_entropies=wrong)


def test_a_loop_measures_the_entropy_it_is_asked_for(start, tmp_path, one_rank):
    _, estimated = one_rank
    hash_, exact = looped(start, tmp_path / "run", {"parallel.tp": 2}, entropy=True)
    assert hash_ == one_rank[0]
    with opened(start, tmp_path / "again", {}) as run:
        batch = grpo(run)._roll(0)
        each = run.logprobs(batch["ids"], entropy=True)[1][batch["mask"]]
    assert exact[0].entropy == float(each.mean(dtype=np.float64)) != estimated[0].entropy
    assert abs(exact[0].entropy - estimated[0].entropy) < .5


@pytest.mark.parametrize("options, forwards", [
    ({}, 0), ({"entropy_bonus": .5}, 0), ({"temperature": .7}, 0), ({"shuffle": True}, 1),
    ({"updates": 2}, 2), ({"dropout": .1}, 1)], ids=str)
def test_entropies_come_of_the_forward_of_the_update(start, tmp_path, options, forwards):
    """The same as of a pass of their own, which is taken where the update sees another model."""
    dropout = {"model.dropout": options.pop("dropout", 0)}
    with opened(start, tmp_path / "run", {"parallel.tp": 2}, **dropout) as run:
        loop, asked, logprobs = grpo(run, entropy=True, **options), [], run.logprobs
        batch = grpo(run, **options)._roll(0)
        want = logprobs(batch["ids"], options.get("temperature", 1), entropy=True)[1][batch["mask"]]
        run.logprobs = lambda ids, *rest, **more: asked.append(ids) or logprobs(ids, *rest, **more)
        assert loop.step().entropy == float(want.mean(dtype=np.float64))
        assert len(asked) == forwards


def test_order_goes_through_all_prompts_and_only_by_its_place():
    whole = order(3, 0, 20, 5)
    assert [sorted(whole[i:i + 5]) for i in range(0, 20, 5)] == [[0, 1, 2, 3, 4]] * 4
    assert whole[:5] != whole[5:10] and order(4, 0, 20, 5) != whole
    assert [i for at in range(0, 20, 4) for i in order(3, at, 4, 5)] == whole


# ---- loops --------------------------------------------------------------------------------------

class Stale(rl.GRPO):
    """Twin: the texts' log-probabilities are of weights that are not these."""

    def _roll(self, first):
        batch = super()._roll(first)
        weights = self.run.params["h.0.mlp.down.weight"]
        kept = weights.numpy().copy()
        weights[...] = kept * np.float32(1.5)
        batch["old"] = self.run.logprobs(batch["ids"])
        weights[...] = kept
        return batch


def test_functions_are_added_by_weight_and_called_as_trl_does(start, tmp_path):
    """With prompts, texts, ids and every other key of the dicts, by name."""
    seen = []

    def by_name(completions, sum, **others):
        seen.append({"completions": completions, "sum": sum, **others})
        return [len(text) + each for text, each in zip(completions, sum)]

    def few(completions, completion_ids):
        return [len(ids) for ids in completion_ids]

    with opened(start, tmp_path / "run", {}) as run:
        loop = grpo(run, reward=[reward, by_name, few], reward_weights=[1, .5, -2])
        batch, m = loop._roll(0), loop.step()
    asked, = seen[:1]
    assert sorted(asked) == ["completion_ids", "completions", "prompts", "sum"]
    rows = [next(one for one in PROMPTS if one["prompt"] == each) for each in asked["prompts"]]
    assert asked["sum"] == [row["sum"] for row in rows]
    each = [reward(rows, asked["completions"]), by_name(**asked), few([], asked["completion_ids"])]
    assert np.allclose(batch["rewards"], np.array([1, .5, -2]) @ np.array(each))
    assert np.allclose(m.rewards, np.mean(each, axis=1)) and np.isclose(m.reward, batch["rewards"].mean())


class Other(rl.GRPO):
    """Twin: what is drawn depends on the number of ranks."""

    def _roll(self, first):
        return super()._roll(first + self.run.ranks)


def grpo(run, kind=rl.GRPO, **options):
    return kind(run, PROMPTS, **{"reward": reward, "n": 4, "max_tokens": 5, "seed": 5, **options})


def looped(start, out, layout, kind=rl.GRPO, **options):
    """The hash after three updates with one a batch, and all metrics."""
    with opened(start, out, layout, **{"train.steps": 3}) as run:
        metrics = list(grpo(run, kind, **options))
        return run.hash(), metrics


@pytest.fixture(scope="module")
def one_rank(start, tmp_path_factory):
    return looped(start, tmp_path_factory.mktemp("one") / "run", {})


@pytest.mark.parametrize("layout", LAYOUTS[1:], ids=str)
def test_ratio_is_one_and_the_hash_is_one(start, tmp_path, layout, one_rank):
    hash_, metrics = looped(start, tmp_path / "run", layout)
    assert [m.step for m in metrics] == [1, 2, 3]
    assert all(m.ratio_min == m.ratio_max == 1.0 for m in metrics + one_rank[1])
    assert all(m.clip_share == 0 and m.grad_norm > 0 for m in metrics)
    assert [m.reward for m in metrics] == [m.reward for m in one_rank[1]]
    assert hash_ == one_rank[0]


@pytest.mark.parametrize("layout, rollout", ROLLOUTS, ids=str)
def test_rollouts_in_a_layout_of_their_own_change_nothing(start, tmp_path, layout, rollout,
                                                          one_rank):
    hash_, metrics = looped(start, tmp_path / "run", {**layout, **rollout})
    assert hash_ == one_rank[0]
    assert [m[:3] + m[6:11] for m in metrics] == [m[:3] + m[6:11] for m in one_rank[1]]
    assert all(m.ratio_min == m.ratio_max == 1.0 for m in metrics)


def test_a_rollout_has_the_weights_of_this_moment(start, tmp_path):
    """After a step, a write through a view and a load, beside one without a layout of its own."""
    found, ids = [], np.arange(24).reshape(2, 12)
    for i, layout in enumerate(({}, *({**layout, **own} for layout, own in cases(ROLLOUTS[1::2],
                                                                                 ROLLOUTS[::2])))):
        with opened(start, tmp_path / str(i), layout) as run:
            told = [run.logprobs(ids)]
            run.step(np.arange(8 * 12).reshape(8, 12) % 97)
            told.append(run.logprobs(ids))
            run.params["h.1.mlp.up.weight"] *= 1.5
            told.append(run.logprobs(ids))
            drawn, logp = run.generate(["a", "bcd"], n=2, max_tokens=4, seed=3)
            told += [logp, run.logprobs(drawn)]
            run.load(start)
            told.append(run.logprobs(ids))
            assert np.array_equal(told[0], told[5]) and np.array_equal(told[3], told[4])
            assert not any(np.array_equal(told[0], told[i]) for i in (1, 2))  # twins
            found.append([one.tobytes() for one in told])
    assert all(one == found[0] for one in found)


class Unscaled(rl.GRPO):
    """Twin: draws at a temperature, and takes the log-probabilities at 1."""

    def _roll(self, first):
        batch = super()._roll(first)
        return {**batch, "old": self.run.logprobs(batch["ids"])}


@pytest.mark.parametrize("temperature", cases([.6], [1.5]))
def test_ratio_is_one_at_each_temperature(start, tmp_path, temperature, one_rank):
    hashes = set()
    for i, layout in enumerate(({}, {"parallel.tp": 2}, {"parallel.dp": 2, "parallel.pp": 2})):
        hash_, metrics = looped(start, tmp_path / str(i), layout, temperature=temperature)
        assert all(m.ratio_min == m.ratio_max == 1.0 for m in metrics)
        hashes.add(hash_)
    assert len(hashes) == 1 and hashes != {one_rank[0]}
    _, metrics = looped(start, tmp_path / "twin", {}, Unscaled, temperature=temperature)
    assert all(m.ratio_max - m.ratio_min > 1e-3 for m in metrics)


def test_masked_texts_count_for_nothing(start, tmp_path):
    def one(out, **options):
        with opened(start, tmp_path / out, {}) as run:
            return grpo(run, ends=range(60), **options).step()
    plain, masked = one("plain"), one("masked", mask_truncated=True)
    assert 0 < plain.truncated < 1 and plain.truncated == masked.truncated
    assert plain.reward == masked.reward and plain.grad_norm != masked.grad_norm > 0
    assert plain.length == plain.tokens / 8 and plain.entropy > 0
    with opened(start, tmp_path / "none", {}) as run:
        m = grpo(run, ends=[], mask_truncated=True).step()
        assert m.truncated == 1 and m.grad_norm == 0 and np.isnan(m.ratio_min)


def minibatched(start, out, parts, kind=rl.GRPO, **options):
    """Batches of two minibatches, two updates each, stopped after each part: (steps, layout)."""
    metrics = []
    for i, (steps, layout) in enumerate(parts):
        with opened(start, out, layout, **{
                "train.steps": 8, "train.resume": "auto" if i else "never"}) as run:
            loop = grpo(run, kind, updates=2, minibatches=2, clip=.02, temperature=.7,
                        **options)
            while run.step_count < steps:
                if steps - run.step_count < 4:  # in the middle of a batch
                    stop_at(run, steps)
                metrics.append(loop.step())
            hash_ = run.hash()
    return hash_, metrics


def stop_at(run, step):
    """The run ends with that step."""
    backward = run.backward

    def stopping(*arguments, **more):
        if run.step_count == step - 1:
            run.stop()
        return backward(*arguments, **more)
    run.backward = stopping


class Whole(rl.GRPO):
    """Twin: each update takes the first minibatch."""

    def _part(self, batch, number):
        return super()._part(batch, 0)


SPECIAL = ("<|endoftext|>", "<|im_start|>", "<|im_end|>")  # tokens 256, 257, 258


@pytest.fixture(scope="module")
def chat(start, tmp_path_factory):
    """A folder of transformers: a random model whose turns end with <|im_end|>."""
    folder = tmp_path_factory.mktemp("chat")
    keys = {**KEYS, "model.arch": "gpt2", "model.layers": 1, "model.channels": 16, "model.heads": 2,
            "model.context": 12, "model.vocab": 260, "train.out": folder / "run"}
    with ls.Run(keys, progress=False) as run:
        run.save_pretrained(folder / "hf")
    tokenizer_write(folder / "hf", SPECIAL, eos_token="<|im_end|>")
    (folder / "hf" / "generation_config.json").write_text('{"eos_token_id": [258, 256]}')
    return folder / "hf"


def opened_chat(chat, out, **keys):
    return opened(chat, out, {}, **{"data.tokenizer": None, **keys})


def test_a_run_has_the_tokenizer_of_its_model(chat, tmp_path):
    """If no data is given, whose tokenizer it would be: also where the run goes on, and as a model."""
    drawn = []

    def told(prompts, texts):
        drawn.extend(texts)
        return [float(len(text)) for text in texts]

    away = chat.with_name("away")
    with opened_chat(chat, tmp_path / "run") as run:
        assert run.encode("ab<|im_end|>") == [64, 65, 258] and run.decode([65]) == "b"
        rl.GRPO(run, ["ab"], told, n=8, max_tokens=3).step()
        assert all(isinstance(text, str) for text in drawn)
    chat.rename(away)
    try:
        with opened_chat(chat, tmp_path / "run", **{"train.resume": "auto"}) as run, \
                ls.Model(run.out) as model:
            assert run.encode("b<|im_end|>") == model.encode("b<|im_end|>") == [65, 258]
    finally:
        away.rename(chat)
    large = json.loads((chat / "tokenizer.json").read_text())
    large["added_tokens"] = []
    large["model"]["vocab"].update({f"token {i}": i for i in range(256, 270)})
    for name, tokenizer in (("unknown", {}), ("large", large)):  # it has more tokens than the model
        shutil.copytree(chat, tmp_path / name)
        (tmp_path / name / "tokenizer.json").write_text(json.dumps(tokenizer))
        with opened_chat(tmp_path / name, tmp_path / f"{name}-run") as run:
            with pytest.raises(ls.ConfigError, match="has none that can be read: name one with data.tok"):
                run.generate("a")


def test_a_run_ends_texts_as_its_model_does(chat, tmp_path):
    def ends(model, **options):
        out = model.generate("ab", n=200, max_tokens=9, seed=1, **options)
        return {row[row >= 0][-1] for row, why in zip(out.ids, out.finish) if why == "end"}

    with opened_chat(chat, tmp_path / "run", **{"parallel.dp": 2}) as run, ls.Model(chat) as model:
        assert ends(run) == ends(model) == {256, 258}
        assert ends(run, ends=[258]) == {258} and not ends(run, ends=[])
        run.save()
    with ls.Model(run.out) as model:
        assert ends(model) == {256, 258}
    (chat / "generation_config.json").rename(chat / "kept")
    try:  # config.json says nothing: what ends a document
        with opened_chat(chat, tmp_path / "none") as run:
            assert ends(run) == {256}
    finally:
        (chat / "kept").rename(chat / "generation_config.json")


@pytest.fixture(scope="module")
def in_order(start, tmp_path_factory):
    return minibatched(start, tmp_path_factory.mktemp("minibatches") / "run", [(8, {})])


def test_kl_old_is_of_the_policy_that_drew(start, tmp_path, monkeypatch):
    asked, of = [], rl.k3
    monkeypatch.setattr(rl, "k3", lambda *pair: asked.append(pair) or of(*pair))
    _, metrics = minibatched(start, tmp_path / "run", [(4, {})])
    log_ratio = next(each for each in asked[-1] if np.ndim(each))
    assert np.isclose(np.exp(log_ratio.max()), metrics[0].ratio_max)  # of new to old
    assert np.isclose(metrics[0].kl_old, (np.exp(log_ratio) - 1 - log_ratio).mean(), rtol=1e-6)


def test_minibatches_go_on_in_another_layout(start, tmp_path, in_order):
    whole, metrics = in_order
    assert [m.step for m in metrics] == [4, 8] and metrics[0].kl_old > 0
    assert metrics[0].tokens > 8 * 5  # of 16 texts
    assert all(m.ratio_min < 1 < m.ratio_max and m.clip_share > 0 for m in metrics)
    parts = [(1, {"parallel.tp": 2}), (3, {"parallel.pp": 2}), (6, {"parallel.dp": 2}), (8, {})]
    again, stopped = minibatched(start, tmp_path / "parts", parts)
    assert again == whole and [m.step for m in stopped] == [1, 3, 4, 6, 8]
    assert stopped[0].ratio_min == stopped[0].ratio_max == 1
    assert stopped[1].ratio_min < 1 < stopped[1].ratio_max
    assert minibatched(start, tmp_path / "twin", [(8, {})], Whole)[0] != whole


class Forgets(rl.GRPO):
    """Twin: it leaves a gradient that did not come to its update."""

    def _backward(self, *gradient, **more):
        return self.run.backward(*gradient, **more)


def fails_once(owner, name, at, error, done=False):
    """That call, or the function that it gives, fails the at-th time, done: behind what it does."""
    call, left = getattr(owner, name), [at]

    def failing(*arguments, **more):
        left[0] -= 1
        given = call(*arguments, **more) if left[0] or done else None
        if not left[0]:
            raise error
        return given
    setattr(owner, name, failing)


@pytest.mark.parametrize("layout", cases([{"parallel.dp": 2, "rollout.tp": 2}], LAYOUTS), ids=str)
def test_a_loop_goes_on_behind_errors(start, tmp_path, in_order, layout):
    """Wherever in a batch: the bits are those of one that was not disturbed."""
    for kind in (rl.GRPO, Forgets):
        with opened(start, tmp_path / kind.__name__, layout, **{"train.steps": 8}) as run:
            loop = grpo(run, kind, updates=2, minibatches=2, clip=.02, temperature=.7)
            for place in ((loop, "reward", 1, KeyError()), (loop, "reward", 2, KeyboardInterrupt()),
                          (run, "generate", 3, OSError(), True), (run, "logprobs", 2, ValueError()),
                          (run, "backward", 5, KeyboardInterrupt(), True), (run, "step", 2, OSError()),
                          (run, "step", 7, SystemExit(), True)):
                fails_once(*place)
            errors = []
            while not run.ended and len(errors) < 9:
                try:
                    loop.step()
                except BaseException as error:
                    errors.append(error)
            if kind is rl.GRPO:
                assert run.hash() == in_order[0] and len(errors) == 7
            else:
                assert "waits for its update" in str(errors[-1])


def test_a_loop_begins_its_own_gradient(start, tmp_path, in_order):
    """Whoever left one: the caller, or a loop before, of which Ctrl-C ended the backward."""
    with opened(start, tmp_path / "run", {}, **{"train.steps": 8}) as run:
        options = {"updates": 2, "minibatches": 2, "clip": .02, "temperature": .7}
        run.backward(np.ones((8, 12), int), np.ones((8, 12)))
        fails_once(run, "backward", 3, KeyboardInterrupt(), True)
        with pytest.raises(KeyboardInterrupt):
            list(grpo(run, **options))
        list(grpo(run, **options))
        assert run.hash() == in_order[0]


@pytest.mark.parametrize("error", [KeyError, KeyboardInterrupt])
def test_a_batch_whose_update_was_made_has_its_record(start, tmp_path, error):
    """Whatever a callback raises behind the update; the step that failed has none."""
    def on_step(step):
        if step.step in (2, 3):
            raise error("mine")

    with opened(start, tmp_path / "run", {}, **{"train.steps": 5}) as run:
        run._on_step, taken = on_step, []
        for loop in (grpo(run, updates=2), preference.DPO(run, PAIRS)):
            while run.step_count < (2 if isinstance(loop, rl.GRPO) else 4):
                try:
                    taken.append(loop.step().step)
                except error as raised:
                    assert "mine" in str(raised)
        fails_once(run, "step", 1, OSError())
        with pytest.raises(OSError):
            loop.step()
        lines = (tmp_path / "run" / "rl.jsonl").read_text().splitlines()
    assert [json.loads(line)["step"] for line in lines] == [2, 3, 4] and taken == [4]


@pytest.mark.parametrize("kind", [rl.GRPO, preference.DPO])
def test_an_interrupt_at_any_line_behind_an_update_leaves_its_record(start, tmp_path, kind,
                                                                     monkeypatch):
    """Of the loops; test_run.py has the lines below them."""
    files = {_loop.__file__, rl.__file__, preference.__file__}
    before = signal.signal(signal.SIGINT, signal.default_int_handler)

    def interrupted_at(n, loop):
        left, first = [n], loop.run.step_count

        def trace(frame, event, argument):
            if frame.f_code.co_filename not in files:
                return None
            if event == "line" and loop.run._step > first:
                left[0] -= 1
                if not left[0]:
                    signal.raise_signal(signal.SIGINT)
            return trace

        sys.settrace(trace)
        try:
            loop.step()
            return False
        except KeyboardInterrupt:
            return True
        finally:
            sys.settrace(None)

    def records():
        lines = (tmp_path / "run" / "rl.jsonl").read_text().splitlines()
        return [json.loads(line)["step"] for line in lines]

    def begun(resume):
        run = opened(start, tmp_path / "run", {}, **{"train.steps": 1000, "train.resume": resume})
        return run, grpo(run, updates=2) if kind is rl.GRPO else preference.DPO(run, PAIRS)

    run, loop = begun("never")
    try:
        n = 1
        while interrupted_at(n, loop):
            assert records()[-1] == run.step_count
            if run.ended:  # before the second update: that step is the last one
                run.close()
                run, loop = begun("auto")
            n += 1 if ALL else 19
        assert n > 20 and signal.getsignal(signal.SIGINT) is signal.default_int_handler
        assert sorted(set(records())) == records()
        monkeypatch.setattr(_loop, "uninterrupted", lambda _: contextlib.nullcontext([]))
        assert interrupted_at(3, loop) and records()[-1] < run.step_count  # the twin
    finally:
        signal.signal(signal.SIGINT, before)
        run.close()


class Fixed(rl.GRPO):
    """Twin: each pass of each batch has the order of the first one."""

    def _part(self, batch, number):
        return super()._part({**batch, "first": 0}, number % 2)


def test_shuffled_minibatches_go_on_in_another_layout(start, tmp_path, in_order):
    whole, metrics = minibatched(start, tmp_path / "whole", [(8, {})], shuffle=True)
    parts = [(3, {"parallel.tp": 2}), (5, {"parallel.dp": 2}), (8, {"parallel.pp": 2})]
    again, stopped = minibatched(start, tmp_path / "parts", parts, shuffle=True)
    assert again == whole and [m.step for m in stopped] == [3, 4, 5, 8]
    assert stopped[0].reward == metrics[0].reward
    assert in_order[0] != whole  # twins
    assert minibatched(start, tmp_path / "fixed", [(8, {})], Fixed, shuffle=True)[0] != whole


def test_a_pass_takes_each_text_once(run):
    loop = grpo(run, updates=2, minibatches=3, shuffle=True)
    batch = {"first": np.int64(6), "rewards": np.arange(24.), "ids": np.arange(24)}
    passes = [np.concatenate([loop._part(batch, i)["ids"] for i in part])
              for part in ((0, 1, 2), (3, 4, 5))]
    assert all(sorted(taken) == list(range(24)) for taken in passes)
    assert (passes[0] != passes[1]).any() and (passes[0] != np.arange(24)).any()


def test_twins_are_seen(start, tmp_path, one_rank):
    _, metrics = looped(start, tmp_path / "stale", {}, Stale)
    assert all(m.ratio_min < 1 < m.ratio_max for m in metrics)
    assert looped(start, tmp_path / "other", {"parallel.dp": 2}, Other)[0] != one_rank[0]


def several(start, out, parts, kind, **options):
    """Two updates a batch, near to a reference, with a stop after each part: (updates, layout)."""
    records = []
    with ls.Model(start, {"numerics.isa": ISA}) as reference:
        for i, (updates, layout) in enumerate(parts):
            with opened(start, out, layout, **{
                    "train.steps": 4, "train.resume": "auto" if i else "never"}) as run:
                loop = grpo(run, kind, updates=2, kl=.1, clip=.02, reference=reference, **options)
                while run.step_count < updates:
                    if updates % 2 and run.step_count == updates - 1:
                        run.stop()
                    loop.step()
                hash_ = run.hash()
        with open(os.path.join(out, "rl.jsonl"), encoding="utf-8") as file:
            records = [json.loads(line) for line in file]
    return hash_, records


@pytest.mark.parametrize("kind", cases([rl.GRPO], [rl.RLOO]))
def test_a_loop_goes_on_in_another_layout(start, tmp_path, kind):
    whole, records = several(start, tmp_path / "whole", [(4, {})], kind)
    assert [r["step"] for r in records] == [2, 4]
    assert records[0]["kl"] == 0 and records[1]["kl"] > 0
    assert all(r["ratio_min"] < 1 < r["ratio_max"] and r["clip_share"] > 0 for r in records)
    parts = [(2, {"parallel.tp": 2}), (3, {"parallel.pp": 2}), (4, {"parallel.dp": 2})]
    again, lines = several(start, tmp_path / "parts", parts, kind)
    assert [r["step"] for r in lines] == [2, 3, 4]
    assert [r["reward"] for r in lines] == [r["reward"] for r in records[:1] + records[1:] * 2]
    assert again == whole
    options = {"normalise": "max", "scale": False} if kind is rl.GRPO else {"normalise": "tokens"}
    assert several(start, tmp_path / "other", [(4, {})], kind, **options)[0] != whole


def test_a_loop_goes_on_from_a_checkpoint_within_an_older_batch(start, tmp_path):
    """The texts of batches that no checkpoint stands in go, but the newest two."""
    def batches(count, **keys):
        with opened(start, tmp_path / "run", {"train.steps": 12, "train.keep": 9, **keys}) as run:
            loop = grpo(run, updates=2)
            if not keys:
                stop_at(run, 3)
            return run.step_count, [loop.step().reward for _ in range(count)]

    _, first = batches(2)
    begun, then = batches(3, **{"train.resume": "auto"})
    assert begun == 3 and then[0] == first[1]
    assert sorted(p.name for p in (tmp_path / "run").glob("rl-batch*")) == [
        "rl-batch-2.npz", "rl-batch-4.npz", "rl-batch-6.npz"]
    batches(1, **{"train.resume": "auto"})
    assert not (tmp_path / "run" / "rl-batch-4.npz").exists()
    named = str(tmp_path / "run" / "checkpoints" / "step-00000003")
    assert batches(2, **{"train.resume": named}) == (3, then[:2])


def test_a_batch_that_is_not_there_is_named(start, tmp_path):
    with opened(start, tmp_path / "run", {}) as run:
        loop = grpo(run, updates=2)
        run.step(np.ones((8, 12), int))
        with pytest.raises(ls.DataError, match="rl-batch-0.npz.*expected the texts of step 0"):
            loop.step()
        for content in (b"", b"PK\3\4 damaged"):
            pathlib.Path(loop._kept(0)).write_bytes(content)
            with pytest.raises(ls.DataError, match="rl-batch-0.npz: .*multiple of 2 steps"):
                loop.step()
        np.savez(loop._kept(0), first=6)
        with pytest.raises(ls.DataError, match="is of step 6: expected the texts of step 0"):
            loop.step()
        pathlib.Path(loop._records).write_text("{\n")
        with pytest.raises(ls.DataError, match="rl.jsonl: expected one JSON object"):
            grpo(run)


def dpo(start, out, parts, **options):
    for i, (steps, layout) in enumerate(parts):
        with opened(start, out, layout, **{
                "train.steps": 4, "train.resume": "auto" if i else "never"}) as run:
            loop = preference.DPO(run, PAIRS, beta=.5, **options)
            metrics = [loop.step() for _ in range(steps)]
            hash_ = run.hash()
    return hash_, metrics


def test_dpo_goes_on_in_another_layout(start, tmp_path):
    whole, metrics = dpo(start, tmp_path / "whole", [(4, {})])
    assert np.isclose(metrics[0].loss, np.log(2)) and metrics[-1].loss < metrics[0].loss
    parts = [(2, {"parallel.tp": 2}), (2, {"parallel.dp": 2, "parallel.pp": 2})]
    assert dpo(start, tmp_path / "parts", parts)[0] == whole
    with ls.Model(start, {"numerics.isa": ISA}) as reference:
        assert dpo(start, tmp_path / "model", [(4, {})], reference=reference)[0] == whole


def test_pairs_of_token_ids_are_sequences_and_arrays(start, tmp_path):
    def losses(out, give):
        with opened(start, tmp_path / out, {}) as run:
            loop = preference.DPO(run, [{name: give(list(text.encode())) for name, text in pair.items()}
                                        for pair in PAIRS])
            return loop.step().loss, loop.step().loss

    assert losses("lists", list) == losses("tuples", tuple) == losses("arrays", np.array)
    with opened(start, tmp_path / "odd", {}) as run:
        ended = [list(b"bcd"), [*b"bcd", run.end_of_document]]
        loops = [preference.DPO(run, [{**PAIRS[0], "chosen": ids}]) for ids in ended]
        assert loops[0]._texts == loops[1]._texts  # one end, whoever put it there
        with pytest.raises(ls.ArgumentError, match="label_smoothing is 0.5: expected a number below 0.5"):
            preference.DPO(run, PAIRS, label_smoothing=.5)
        for ids, why in (([98, 999], r"\[0, 1\] is 999: expected a token id from 0"), ([1.5], "has type"),
                         ([98, -1], r"\[0, 1\] is -1"), (["b"], "has type"), ([{}], "of numbers")):
            with pytest.raises(ls.ArgumentError, match=r"^pairs\[1\]: chosen.*" + why):
                preference.DPO(run, [PAIRS[0], {**PAIRS[1], "chosen": ids}])


def test_special_tokens_of_pairs_are_tokens(chat, tmp_path):
    """As in transformers; behind a text is the end of a turn, once, or whatever else ends it."""
    def encoded(run, prompt, chosen):
        [[chosen, rejected]] = preference.DPO(run, [{"prompt": prompt, "chosen": chosen, "rejected": "c"}])._texts
        assert rejected[0][-2:] == [66, 258]
        return chosen[0][chosen[1]:]

    with opened_chat(chat, tmp_path / "run") as run:
        assert encoded(run, "<|im_start|>a", "b") == encoded(run, "a", "b<|im_end|>") == [65, 258]
        assert encoded(run, [64], [65]) == encoded(run, [64], [65, 258]) == [65, 258]
        assert encoded(run, "a", "b<|endoftext|>") == encoded(run, [64], [65, 256]) == [65, 256]
        assert encoded(run, "a", "<|im_start|>b") == [257, 65, 258]
    tokenizer_write(tmp_path / "around", SPECIAL, eos_token="<|im_end|>", bos_token="<|im_start|>",
                    tokenizer_class="LlamaTokenizerFast", add_bos_token=True)
    with opened_chat(chat, tmp_path / "begins", **{"data.tokenizer": tmp_path / "around"}) as run:
        assert run.encode("b") == [257, 65] and encoded(run, "a", "b") == [65, 258]


def test_a_tokenizer_may_have_no_token_that_ends_a_document(start, tmp_path):
    tokenizer_write(tmp_path / "plain")
    with opened(start, tmp_path / "run", {}, **{"data.tokenizer": tmp_path / "plain"}) as run:
        assert run.end_of_document is None and run.generate("a", max_tokens=3).finish == ["length"]
        loop = preference.DPO(run, PAIRS)
        assert [ids for ids, _ in loop._texts[0]] == [run.encode("abcd"), run.encode("ax")]
        loop.step()
        grpo(run).step()  # of texts, not of ids
        with pytest.raises(ls.ConfigError, match="context is empty, and no tokenizer .* end-of-document"):
            run.score([{"text": "abc"}])
        run.save_pretrained(tmp_path / "hf")
    assert json.loads((tmp_path / "hf" / "config.json").read_text())["eos_token_id"] is None


def test_the_example_runs(tmp_path, monkeypatch, capsys):
    path = pathlib.Path(__file__).resolve().parents[2] / "examples" / "grpo_arithmetic.py"
    monkeypatch.setattr(sys, "argv", [str(path), "--out", str(tmp_path), "--numbers", "4",
                                      "--warm-up", "3", "--steps", "2"])
    runpy.run_path(str(path), run_name="__main__")
    told = capsys.readouterr().out
    assert "step   2  reward" in told and "ratio 1.0 to 1.0" in told and "after" in told
    assert "<polyline" in (tmp_path / "reward.svg").read_text()


# ---- what is refused ----------------------------------------------------------------------------

@pytest.fixture(scope="module")
def run(start, tmp_path_factory):
    with opened(start, tmp_path_factory.mktemp("bad") / "run", {}) as run:
        yield run


@pytest.mark.parametrize("options, text", [
    ({"n": 3}, "n is 3: expected a divisor of batch.global = 8"),
    ({"n": 1}, "n is 1: expected a whole number from 2 to 8"),
    ({"minibatches": 0}, "minibatches is 0: expected a whole number from 1"),
    ({"temperature": 0}, "temperature is 0: expected a number above 0"),
    ({"updates": 0}, "updates is 0: expected a whole number from 1"),
    ({"max_tokens": 12}, "max_tokens is 12: expected a whole number from 1 to 11"),
    ({"kl": .1}, "expected a reference"), ({"seed": -1}, "seed is -1"),
    ({"n": 2.5}, "n is 2.5: expected a whole"), ({"n": "4"}, "n is '4': expected a whole"),
    ({"updates": 1.5}, "updates is 1.5: expected a whole"), ({"seed": .5}, "seed is 0.5"),
    ({"temperature": float("inf")}, "temperature is inf: expected"), ({"clip": None}, "clip is "),
    ({"temperature": "1"}, "temperature is '1': expected"), ({"kl": float("nan")}, "kl is nan: exp"),
    ({"prompts": "ab"}, "prompts: got str: expected a list"), ({"prompts": None}, "prompts: got None"),
    ({"prompts": [{}]}, 'prompts.0. is {}: expected a text, .* whose "prompt" is one'),
    ({"prompts": ["a", {"prompt": [{"role": "user", "content": "a"}]}]}, "prompts.1. is a conversation: exp"),
    ({"prompts": [5]}, "prompts.0. is 5: expected a text"), ({"reward": None}, "reward is None: exp"),
    ({"prompts": [[1, 2], "a"]}, "got str: expected a list of token ids, as all of them are"),
    ({"reward": lambda prompts, texts: None}, "reward gave None: expected a list of 8 finite numbers"),
    ({"reward": lambda prompts, texts: ["a"] * 8}, "reward gave .*expected a list of 8 finite numbers"),
    ({"kl": .1, "reference": lambda ids: None}, "reference: expected an array of numbers"),
    ({"kl": .1, "reference": lambda ids: ids[:, :1]}, "reference has shape .8, 1.: expected"),
    ({"kl": .1, "reference": lambda ids: ids * np.nan}, "reference.0, 0. is nan: expected finite"),
    ({"ends": 5}, "ends: got int: expected a list"), ({"stop": 5}, "stop: got int: expected a list"),
    ({"reference": 3}, "reference: expected a Model"),
    ({"normalise": "mean"}, "expected one of text"),
    ({"scale": "none"}, "scale is 'none': expected True"), ({"ratio": "sequence"}, "ratio is 'sequence': exp"),
    ({"kl_weighted": True}, "kl_weighted: expected kl above 0"),
    ({"reward": []}, "reward is an empty list"), ({"reward": [reward, 3]}, "reward.1. is 3: expected"),
    ({"reward_weights": [1, 2]}, "reward_weights is .1, 2.: expected 1 finite numbers"),
    ({"reward": [reward, lambda prompts, texts: []]}, "reward.1. gave .*expected a list of 8"),
    ({"clip": -1}, "clip is -1: expected"), ({"clip": (.1,)}, "or two, down and up"),
    ({"prompts": []}, "prompts: expected a list, of at least one text"),
    ({"top_k": 5}, "top_k: texts would be drawn from another.*: leave it out, and lower temp"),
    ({"top_p": .9}, "top_p: texts would be drawn from another"),
    ({"min_p": .1}, "min_p: texts would be drawn from another"),
    ({"reward": lambda prompts, texts: [1.0]}, "expected a list of 8 finite numbers"),
    ({"reward": lambda prompts, texts: [float("nan")] * 8}, "expected a list of 8 finite numbers"),
    ({"reward": lambda prompts, texts: dict.fromkeys(range(8), 1)}, "expected a list of .*: got dict"),
    ({"reward": lambda prompts, texts: "1" * 8}, "expected a list of .*: got str"),
    ({"reward": lambda prompts, texts: [1e300] * 8}, "gave 1e.300: expected numbers up to 3.4e38"),
    ({"reward": lambda prompts, texts: [10**400] * 8}, "expected a list of .*: int too large"),
    ({"prompts": ["12345678"], "max_tokens": 11},
     r"prompts\[0\]: 8 tokens, and 11 drawn: expected data.sequence \+ 1"),
], ids=str)
def test_wrong_arguments_are_named(run, options, text):
    given = {"prompts": PROMPTS, "reward": reward, "n": 4, "max_tokens": 5, **options}
    with pytest.raises(ls.ArgumentError, match=text):
        rl.GRPO(run, **given).step()
    assert run.step_count == 0


def test_an_option_that_rloo_has_no_use_for_is_refused(run):
    with pytest.raises(ls.ArgumentError, match="scale: RLOO's advantages are not divided: leave it"):
        rl.RLOO(run, PROMPTS, reward, n=4, max_tokens=5, scale=True)


def test_names_of_trl_are_known(run):
    with pytest.raises(TypeError, match="argument 'beta': it is kl here"):
        rl.GRPO(run, PROMPTS, reward, n=4, beta=.1)
    with pytest.raises(TypeError, match="argument 'gamma'$"):
        rl.GRPO(run, PROMPTS, reward, n=4, gamma=.1)
    assert set(rl.THEIRS.values()) <= set(inspect.signature(rl.GRPO).parameters)


def test_texts_begin_with_their_prompts(run):
    ids = run.generate(["1+2=", "7\n"], n=2, max_tokens=3).ids
    assert ids[:, :5].tolist()[::2] == [[*b"1+2=", ids[0, 4]], [*b"7\n", *ids[2, 2:5]]]


@pytest.mark.parametrize("error", [KeyError, KeyboardInterrupt, SystemExit])
def test_who_waits_for_rewards_hears_that_there_are_none(run, monkeypatch, error):
    """Other processes, whatever ended the function in rank 0."""
    def broken(prompts, texts):
        raise error("mine")

    told, share = [], run.share
    monkeypatch.setattr(run, "share", lambda value: told.append(value) or share(value))
    with pytest.raises(error, match="mine"):
        rl.GRPO(run, PROMPTS, broken, n=4, max_tokens=5).step()
    assert np.isnan(np.frombuffer(told[-1])).all()


@pytest.mark.parametrize("line, text", [
    ("{", "pairs.jsonl:2: .*expected one JSON object a line"),
    ("[" * 30000, "pairs.jsonl:2: .*expected one JSON object a line"),
    (b"\xe9", "pairs.jsonl:2: .*expected one JSON object a line, in UTF-8"),
    ('{"prompt": "a", "chosen": [{"role": "assistant", "content": "b"}], "rejected": "c"}',
     '"chosen" is a list of messages'),
    ('{"prompt": "a", "chosen": "b"}', 'pairs.jsonl:2: no "rejected"'),
    ('{"prompt": "a", "chosen": "b", "rejected": 5}', 'no "rejected"'),
    ('{"prompt": "", "chosen": "b", "rejected": "c"}', "expected a prompt"),
    ('{"prompt": "aaaaaaaaa", "chosen": "b", "rejected": "ccc"}', "rejected: 9 tokens and 13"),
], ids=str)
def test_wrong_pairs_are_named(run, tmp_path, line, text):
    path = tmp_path / "pairs.jsonl"
    line = line if isinstance(line, bytes) else line.encode()
    path.write_bytes(codecs.BOM_UTF8 + json.dumps(PAIRS[0]).encode() + b"\n" + line + b"\n")
    with pytest.raises(ls.DataError, match=text) as error:
        preference.DPO(run, path)
    assert error.value.line == 2
    with pytest.raises(ls.DataError, match="holds no pairs"):
        preference.DPO(run, [])
