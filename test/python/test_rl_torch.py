"""GRPO and DPO beside PyTorch and transformers: the same objective by autograd, update by update.
Without these it is skipped."""

import copy
import os
import pathlib
import sys

import numpy as np
import pytest

import lockstep as ls
from lockstep import preference, rl
from lockstep._loop import order

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")
os.environ.setdefault("LOCKSTEP_PEAK_FLOPS", "2e11")  # nothing is measured
ISA = "avx2" if "avx2" in pathlib.Path("/proc/cpuinfo").read_text() else "plain"

ROOT = pathlib.Path(__file__).resolve().parents[2]
VOCABULARY, LR, KL, CLIP, TEMPERATURE = 64, .5, .2, .01, .7
KEYS = {"data.sequence": 11, "batch.global": 8, "optim.schedule": "constant",
        "numerics.precision": "fp32", "numerics.isa": ISA, "parallel.threads": 1,
        "log.tensorboard": False}


def model_make(seed, context=12):
    torch.manual_seed(seed)
    return transformers.GPT2LMHeadModel(transformers.GPT2Config(
        vocab_size=VOCABULARY, n_positions=context, n_embd=32, n_layer=2, n_head=4, resid_pdrop=0.0,
        embd_pdrop=0.0, attn_pdrop=0.0, bos_token_id=None, eos_token_id=None))


def logprobs(model, ids):
    """[texts, tokens] of a dense batch at the temperature, 0 of the first one."""
    every = torch.log_softmax(model(ids[:, :-1]).logits / TEMPERATURE, -1)
    each = every.gather(2, ids[:, 1:, None])[:, :, 0]
    return torch.cat([torch.zeros(len(ids), 1), each], 1)


@pytest.mark.parametrize("tp", [1, 2])
def test_tensors_of_a_run_are_arguments_of_torch(tmp_path, tp):
    model_make(1).save_pretrained(tmp_path / "model")
    with ls.Run({**KEYS, "model.from": tmp_path / "model", "train.out": tmp_path / "run",
                 "parallel.tp": tp}, progress=False) as run:
        tensor, ones = run.params["h.0.attn.q.weight"], torch.ones(32, 32)
        values = torch.from_numpy(tensor.full())
        for made in (torch.add(ones, tensor), torch.add(tensor, ones), ones + tensor):
            assert torch.equal(made, values + 1)
        assert torch.equal(torch.cat([tensor, ones]), torch.cat([values, ones]))
        kept = ones
        kept += tensor
        assert kept is ones and torch.equal(ones, values + 1)
        torch.nn.init.normal_(tensor, generator=torch.Generator().manual_seed(1))
        values = torch.nn.init.normal_(values, generator=torch.Generator().manual_seed(1))
        with torch.inference_mode():
            torch.add(tensor, ones, out=tensor)
        np.testing.assert_array_equal(tensor.full(), values + ones)


def test_tensors_of_any_kind_are_arguments_or_named(tmp_path):
    """What the values are counts, not how they lie; what has none in memory is named."""
    ids = torch.tensor(np.random.RandomState(1).randint(0, VOCABULARY, (8, 12)))
    d = torch.randn(8, 12).bfloat16().float()
    model_make(1).save_pretrained(tmp_path / "model")
    with ls.Run({**KEYS, "model.from": tmp_path / "model", "train.out": tmp_path / "run"},
                progress=False) as run:
        def grad(tokens, derivative):
            run.backward(tokens, derivative)
            out = run.params["h.0.mlp.down.weight"].grad.full()
            run.discard()
            return out

        want = grad(ids.numpy(), d.numpy())
        for tokens in (ids.int(), ids.byte(), ids.t().contiguous().t(), ids.flip(0).numpy()[::-1],
                       torch._neg_view(-ids), list(ids)):
            np.testing.assert_array_equal(grad(tokens, d), want)
        for derivative in (d.bfloat16(), d.double(), torch.nn.Parameter(d), d.t().contiguous().t(),
                           torch._neg_view(-d), torch.stack([d, d], 2)[:, :, 1]):
            np.testing.assert_array_equal(grad(ids, derivative), want)
        for wrong, why in ((ids.to("meta"), "is on meta: expected memory of the host"),
                           (ids.to_sparse(), "expected a dense tensor"), (ids.float(), "expected whole")):
            with pytest.raises(ls.ArgumentError, match="^ids.*" + why):
                run.logprobs(wrong)
        for wrong, why in ((d.to("meta"), "is on meta"), (d.to_sparse(), "expected a dense tensor"),
                           (d.to(torch.complex64), "has type complex64"), (d / 0, "expected finite")):
            with pytest.raises(ls.ArgumentError, match="^d_logprobs.*" + why):
                run.backward(ids, wrong)
        with pytest.raises(ls.ArgumentError, match="^reward gave .*: expected a list of 8 finite numbers"):
            rl.GRPO(run, [[1, 2]], lambda _, texts: torch.ones(len(texts), device="meta"), n=4,
                    max_tokens=4, ends=[]).step()


def test_torch_shares_the_memory_of_tensors(tmp_path):
    """bf16 too, which numpy lacks: frozen weights are kept in it."""
    keys = {**KEYS, "model.arch": "gpt2", "model.layers": 1, "model.channels": 32, "model.heads": 4,
            "model.context": 12, "model.vocab": VOCABULARY, "train.out": tmp_path / "run"}
    with ls.Run({**keys, "lora.rank": 2, "numerics.precision": "bf16"}, progress=False) as run:
        frozen = run.params["h.0.attn.q.weight"]
        theirs = torch.from_dlpack(frozen)
        assert theirs.dtype == torch.bfloat16 and theirs.shape == (32, 32)
        np.testing.assert_array_equal(theirs.float().numpy(), np.asarray(frozen))
    with ls.Run(keys, {"train.out": tmp_path / "other"}, progress=False) as run:
        tensor, before = run.params["h.0.attn.q.weight"], run.hash()
        theirs = torch.from_dlpack(tensor)
        assert theirs.data_ptr() == tensor.numpy().ctypes.data
        theirs[3, 4] += 1
        assert tensor[3, 4] == theirs[3, 4].item() and run.hash() != before


@pytest.mark.parametrize("layout", [{}, {"parallel.tp": 2}, {"parallel.dp": 2, "parallel.zero": 3}], ids=str)
def test_a_loss_as_the_page_has_it_has_the_gradient_of_autograd(tmp_path, layout):
    """The lines of doc/python.md, beside autograd through the whole model."""
    page = (ROOT / "doc" / "python.md").read_text().splitlines()
    at = next(i for i, line in enumerate(page) if "requires_grad_()" in line)
    model = model_make(1)
    model.save_pretrained(tmp_path / "model")
    ids = torch.randint(0, VOCABULARY, (8, 12), generator=torch.Generator().manual_seed(1))

    def loss(logp):
        return .01 * (logp ** 2).mean() - torch.sigmoid(.3 * logp[:, 1:].mean(1)).mean()

    every = torch.log_softmax(model(ids[:, :-1]).logits, -1).gather(2, ids[:, 1:, None])[:, :, 0]
    loss(torch.cat([torch.zeros(8, 1), every], 1)).backward()
    theirs = model.transformer
    with ls.Run({**KEYS, "model.from": tmp_path / "model", "train.out": tmp_path / "run", **layout},
                progress=False) as run:
        exec("\n".join(line.strip() for line in page[at:at + 4]),
             {"torch": torch, "run": run, "ids": ids, "loss": loss})
        assert run.step_count == 1
        for name, wanted in (("wte.weight", theirs.wte.weight.grad), ("wpe.weight", theirs.wpe.weight.grad),
                             ("h.0.attn.q.weight", theirs.h[0].attn.c_attn.weight.grad[:, :32].T)):
            found = run.params[name].grad.full()
            assert abs(found - wanted.numpy()).max() < 1e-5 * abs(wanted.numpy()).max(), name


def test_entropy_is_that_of_torch(tmp_path):
    model = model_make(4)
    model.save_pretrained(tmp_path / "model")
    ids = np.random.RandomState(1).randint(0, VOCABULARY, (5, 12))
    with torch.no_grad():
        logp = torch.log_softmax(model(torch.tensor(ids)).logits.double() / TEMPERATURE, -1)
    want = -(logp.exp() * logp).sum(-1)[:, :-1].numpy()
    with ls.Model(tmp_path / "model", {"numerics.precision": "fp32", "numerics.isa": ISA}) as ours:
        got = ours.logprobs(ids, TEMPERATURE, entropy=True)[1][:, 1:]
    assert np.abs(got - want).max() < 1e-5 * np.log(VOCABULARY)


def test_gradients_of_entropies_are_those_of_autograd(tmp_path):
    """In double, parameter by parameter."""
    model, rng = model_make(5), np.random.RandomState(2)
    model.save_pretrained(tmp_path / "model")
    ids = rng.randint(0, VOCABULARY, (8, 12))
    d, e = rng.randn(8, 12), rng.randn(8, 12)
    with ls.Run({**KEYS, "model.from": tmp_path / "model", "train.out": tmp_path / "run",
                 "train.steps": 1, "optim.name": "sgd", "optim.momentum": 0, "optim.lr": 1,
                 "optim.clip": 0, "optim.weight_decay": 0}, progress=False) as run:
        before = run.state_dict()
        run.backward(ids, d, TEMPERATURE, d_entropies=e)
        run.step()
        after = run.state_dict()
    model.double()

    def farthest(entropy_share):
        model.zero_grad()
        logp = torch.log_softmax(model(torch.tensor(ids)).logits / TEMPERATURE, -1)[:, :-1]
        chosen = logp.gather(2, torch.tensor(ids)[:, 1:, None])[:, :, 0]
        entropies = -(logp.exp() * logp).sum(-1)
        loss = torch.tensor(d[:, 1:]) * chosen + entropy_share * torch.tensor(e[:, 1:]) * entropies
        loss.sum().backward()
        apart = []
        for name, weight in model.named_parameters():
            got = torch.tensor(before[name]).double() - torch.tensor(after[name])
            apart.append(((got - weight.grad).norm() / weight.grad.norm()).item())
        return min(apart), max(apart)

    print("relative distance of gradients:", farthest(1))
    assert farthest(1)[1] < 1e-5
    assert farthest(1.01)[0] > 1e-4  # twin


def grpo_by_torch(start, reference, batch, kl):
    """Parameters after two updates by plain SGD, by the formulas of the paper."""
    policy = copy.deepcopy(start)
    ids, mask = torch.tensor(batch["ids"]).long(), torch.tensor(batch["mask"])
    old, rewards = torch.tensor(batch["old"]), torch.tensor(batch["rewards"]).view(-1, 4)
    gains = (rewards - rewards.mean(1, keepdim=True)) / (rewards.std(1, keepdim=True) + 1e-4)
    gains = gains.view(-1, 1)
    with torch.no_grad():
        apart = logprobs(reference, ids)
    for _ in range(2):
        logp = logprobs(policy, ids)
        ratio = (logp - old).exp()
        each = torch.minimum(ratio * gains, ratio.clamp(1 - CLIP, 1 + CLIP) * gains)
        each = each - kl * ((apart - logp).exp() - (apart - logp) - 1)
        loss = -((each * mask).sum(1) / mask.sum(1)).mean()
        policy.zero_grad()
        loss.backward()
        with torch.no_grad():
            for weight in policy.parameters():
                weight -= LR * weight.grad
    return policy


def apart_share(ours, other, start):
    """Norm of the difference over that of the way from start to other."""
    names, apart, moved = dict(other.named_parameters()), 0.0, 0.0
    begin = dict(start.named_parameters())
    for name, weight in ours.named_parameters():
        apart += (weight - names[name]).double().square().sum().item()
        moved += (names[name] - begin[name]).double().square().sum().item()
    return (apart / moved) ** .5


def test_grpo_is_that_of_autograd(tmp_path):
    start, reference = model_make(1), model_make(2)
    start.save_pretrained(tmp_path / "start")
    reference.save_pretrained(tmp_path / "reference")
    seen = []

    class Seen(rl.GRPO):
        def _roll(self, first):
            seen.append(super()._roll(first))
            return seen[-1]

    with ls.Model(tmp_path / "reference",
                  {"numerics.precision": "fp32", "numerics.isa": ISA}) as other:
        with ls.Run({**KEYS, "model.from": tmp_path / "start", "train.out": tmp_path / "run",
                     "train.steps": 2, "optim.name": "sgd", "optim.momentum": 0, "optim.lr": LR,
                     "optim.clip": 0, "optim.weight_decay": 0}, progress=False) as run:
            m = Seen(run, [[1, 2, 3], [4, 5, 6]], lambda _, texts: [sum(t) % 7 for t in texts],
                     n=4, max_tokens=8, updates=2, clip=CLIP, kl=KL, reference=other,
                     temperature=TEMPERATURE, ends=[]).step()
            run.save_pretrained(tmp_path / "ours")
    assert m.clip_share > 0 and m.kl > 0
    ours = transformers.GPT2LMHeadModel.from_pretrained(tmp_path / "ours")
    assert apart_share(ours, grpo_by_torch(start, reference, seen[0], KL), start) < 1e-4
    assert apart_share(ours, grpo_by_torch(start, reference, seen[0], KL * 1.1), start) > 1e-3


def test_dpo_is_that_of_autograd(tmp_path):
    """The reference, its recipe and its limits are those of tools/interop_dpo.py."""
    sys.path.insert(0, str(ROOT / "tools"))
    import interop_dpo as tool

    start, texts = tool.model_make(3), tool.texts_make(3)
    start.save_pretrained(tmp_path / "start")
    pairs = [{"prompt": chosen[1][:chosen[0]], "chosen": chosen[1][chosen[0]:],
              "rejected": rejected[1][rejected[0]:]}
             for chosen, rejected in zip(texts[::2], texts[1::2])]
    keys = {**KEYS, "model.from": tmp_path / "start", "train.out": tmp_path / "run",
            "train.steps": tool.STEPS, "batch.global": tool.BATCH, "data.sequence": tool.TOKENS,
            "optim.lr": tool.LR, "optim.epsilon": tool.EPSILON, "optim.weight_decay": .1}
    with ls.Run(keys, progress=False) as run:
        losses = [m.loss for m in preference.DPO(run, pairs, beta=tool.BETA)]
        run.save_pretrained(tmp_path / "ours")
    ours = transformers.GPT2LMHeadModel.from_pretrained(tmp_path / "ours")
    places = order(0, 0, tool.STEPS * tool.BATCH // 2, len(pairs))
    read = [text for place in places for text in texts[2 * place:2 * place + 2]]
    wanted, other = tool.by_torch(start, read)
    assert tool.losses_apart(losses, wanted) <= tool.LOSS_LIMIT
    assert tool.parameters_apart(ours, other, start) <= tool.PARAMETERS_LIMIT
    off = tool.by_torch(start, read, "beta")
    assert tool.losses_apart(losses, off[0]) > tool.LOSS_LIMIT
    assert tool.parameters_apart(ours, off[1], start) > tool.PARAMETERS_LIMIT
