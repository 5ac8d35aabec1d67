"""Runs from Python: the bits are the program's, in any layout; what is wrong is an error."""

import contextlib
import copy
import gc
import json
import linecache
import operator
import os
import pathlib
import pickle
import re
import resource
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import types
import weakref

import numpy as np
import pytest

import lockstep as ls
from lockstep import _lib, _where
from conftest import ALL, cases


def hashes(recipe, keys=None):
    with ls.Run(recipe, keys, progress=False) as run:
        losses = [m.loss for m in run]
        return losses, run.hash()


def test_a_run_has_the_bits_of_the_program(recipe, tmp_path):
    program = os.environ.get("LOCKSTEP") or str(_where.program())
    losses, found = hashes(recipe)
    assert len(losses) == 4
    other = {**recipe, "train": {**recipe["train"], "out": str(tmp_path / "other")}}
    (tmp_path / "c.yaml").write_text(json.dumps(other))
    told = subprocess.run([program, "train", str(tmp_path / "c.yaml")], capture_output=True, text=True,
                          check=True).stdout
    assert f"hash {found}" in told


def test_layouts_have_one_hash(recipe, tmp_path):
    one = hashes(recipe)
    for i, layout in enumerate(({"dp": 2}, {"tp": 2}, {"pp": 2}, {"dp": 2, "zero": 3})):
        keys = {f"parallel.{name}": value for name, value in layout.items()}
        assert hashes(recipe, {**keys, "train.out": str(tmp_path / str(i))}) == one, layout


def test_metrics_are_a_named_tuple_and_callbacks_hear_in_this_thread(recipe):
    told, threads = [], set()

    def on_step(step):
        told.append(step)
        threads.add(threading.get_ident())

    def on_event(event):
        threads.add(threading.get_ident())

    with ls.Run(recipe, on_step=on_step, on_event=on_event, progress=False) as run:
        made = list(run)
    assert made == told and [m.step for m in made] == [1, 2, 3, 4]
    assert made[0]._fields[:3] == ("step", "loss", "hash") and made[0].tokens == 64
    assert threads == {threading.get_ident()}


def test_a_run_that_is_dropped_ends_without_saving(recipe, tmp_path):
    for name, end in (("dropped", lambda run: None), ("closed", ls.Run.close)):
        run = ls.Run(recipe, {"train.out": str(tmp_path / name)}, progress=False)
        run.step()
        end(run)
        del run
    assert not os.listdir(tmp_path / "dropped" / "checkpoints")
    assert os.listdir(tmp_path / "closed" / "checkpoints") == ["step-00000001"]


def test_what_callbacks_may_call(recipe, tmp_path):
    """on_step all that the loop may; on_event, and another thread meanwhile, nothing but stop: what is
    refused leaves the run open, so that it saves when it is closed."""
    def on_step(step):
        if step.step == 1:
            made.append((run.hash(), run.save()[-1:], run.step().step, len(run.write("1", max_tokens=2))))

    def on_event(event):
        if event["event"] != "saved" or len(refused) > 9:
            return
        other = threading.Thread(target=tried)
        other.start(), other.join()
        tried()
        run.stop()

    def tried():
        for call in (run.hash, run.step, run.save, lambda: run.write("1"), run.close):
            try:
                call()
            except ls.ArgumentError as error:
                refused.append(str(error))

    made, refused = [], []
    run = ls.Run(recipe, on_step=on_step, on_event=on_event, progress=False)
    steps = [m.step for m in run]
    assert [one[1:] for one in made] == [("1", 2, 1)] and steps == [1] and run.step_count == 2  # stopped
    assert len(refused) == 10 and all("another order is under way" in text for text in refused)
    assert not run.closed
    with pytest.raises(ls.ArgumentError, match="stopped after step 2 of 4: close it, .* train.resume=auto"):
        run.step()
    run.close()
    with ls.Run(recipe, {"train.resume": "auto"}, progress=False) as again:
        assert again.step_count == 2


def test_a_run_with_adapters_loads_nothing(recipe):
    """They would be merged into what is frozen, and begin anew."""
    with ls.Run(recipe, {"lora.rank": 4, "lora.alpha": 4}, progress=False) as run:
        run.step()
        before = run.hash()
        for call in (lambda: run.load(run.save()), lambda: run.load_state_dict(run.state_dict())):
            with pytest.raises(ls.ConfigError, match="trains adapters"):
                call()
        assert run.hash() == before and run.step().step == 2


def test_a_folder_whose_name_is_no_text(recipe, tmp_path, monkeypatch):
    folder = os.fsencode(tmp_path) + b"/caf\xe9"
    os.mkdir(folder)
    monkeypatch.chdir(folder)
    with ls.Run(recipe, {"train.out": "run"}, progress=False) as run:
        run.step()
        assert run.out == "run" and run.save()
    assert os.listdir(folder + b"/run/checkpoints") == [b"step-00000001"]


def test_a_run_that_this_process_has_open_is_told_so(recipe):
    """As a cell of a notebook that is run again finds it."""
    with ls.Run(recipe, progress=False):
        with pytest.raises(ls.BusyError, match="that is this process: close its run first"):
            ls.Run(recipe, progress=False)


def test_a_run_without_a_step_is_shown_without_a_picture(recipe, tmp_path):
    with ls.Run(recipe, progress=False) as run:
        assert run._repr_html_() == repr(run)
        run.step()
        assert "<svg" in run._repr_html_()
        with pytest.raises(ls.ArgumentError, match="loss.png: .* expected a name that ends in .svg"):
            run.plot().save(tmp_path / "loss.png")


def test_a_step_is_what_the_answer_says_in_json(recipe):
    """Two ways to the same values: the report's members stand where the library has them."""
    with ls.Run(recipe, {"log.hash_every": 2}, progress=False) as run:
        for weights in (None, np.full((4, 17), 0.25)):
            step = run.step(np.arange(68).reshape(4, 17), weights=weights)
            told = json.loads(_lib.library().ls_session_answer(run._session._handle))
            assert {name: told.get(name) for name in step._fields} == step._asdict()
            assert told["ended"] is run.ended and (step.weight is None) == (weights is None)
        assert step.hash == run.hash()


def test_a_batch_of_arrays_is_a_step(recipe):
    rng = np.random.default_rng(1)
    tokens = rng.integers(0, 257, (4, 17))
    with ls.Run(recipe, progress=False) as run:
        first = run.step(tokens)
        assert np.isfinite(first.loss)
        for wrong, text in ((tokens[:, :1], "at least two"), (tokens + 300, "tokens"),
                            (tokens.astype(float), "tokens"), (tokens[0], "tokens"),
                            ([[1, 2], [3]], "tokens: expected an array of numbers, whose rows have"),
                            (np.ma.masked_equal(tokens, tokens[0, 0]), "tokens has masked elements"),
                            (np.zeros((5, 17), int), "sequences"), (np.zeros((4, 99), int), "tokens"),
                            ("text", "tokens")):
            with pytest.raises((ls.LockstepError, TypeError), match=text):
                run.step(wrong)
        with pytest.raises(ls.LockstepError, match="weights"):
            run.step(tokens, weights=np.full((4, 17), np.nan))
        padded = np.where(np.arange(17) == 3, -1, tokens)
        for given in (padded,), (padded[:, 3:], np.full((4, 14), -1)):
            with pytest.raises(ls.ArgumentError, match=r"tokens\[0\]: -1 ends a row: nothing may follow"):
                run.step(*given)
        with pytest.raises(ls.ArgumentError, match="need tokens"):
            run.step(targets=tokens)
        assert run.step(tokens[:, ::2]).step == 2  # not contiguous
        assert run.step(np.ma.array(tokens)).step == 3  # nothing is masked


def test_parameters_are_the_librarys_memory(recipe):
    with ls.Run(recipe, progress=False) as run:
        name = next(iter(run.params))
        weights = run.params[name].numpy()
        before = run.hash()
        weights[0, 0] += 1
        assert run.params[name].numpy()[0, 0] == weights[0, 0] and run.hash() != before
        weights[0, 0] -= 1
        kept = run.params[name]
    with pytest.raises(ls.ClosedError):
        kept.numpy()
    assert weights.shape == kept.shape and np.isfinite(weights).all()  # it outlives the run
    with pytest.raises(ls.ClosedError, match="closed"):
        run.step()
    run.close()


@pytest.mark.parametrize("layout", [{}, {"parallel.dp": 2}, {"parallel.pp": 2}])
def test_what_was_written_counts_though_the_array_is_gone(recipe, tmp_path, layout):
    def written(write, out):
        with ls.Run(recipe, {**layout, "train.out": str(tmp_path / out)}, progress=False) as run:
            run.step()
            write(run.params["h.0.attn.q.weight"])
            return [m.loss for m in run], run.hash()

    def by_set(tensor):
        values = tensor.full()
        values[0, 0] += 0.5
        tensor.set(values)

    def by_array(tensor):
        tensor.numpy()[0, 0] += 0.5

    def beside_a_state(tensor):
        state, values = tensor.state(0).numpy(), tensor.numpy()
        del state
        tensor.local()
        values[0, 0] += 0.5

    expected = written(by_set, "set")
    assert written(by_array, "array") == expected
    assert written(beside_a_state, "state") == expected


def test_states_say_their_type(recipe):
    with ls.Run(recipe, {"optim.moments": "bf16"}, progress=False) as run:
        run.step()
        tensor = run.params["h.0.attn.q.weight"]
        assert (tensor.dtype, tensor.state(0).dtype) == ("float32", "bfloat16")
        with pytest.raises(ls.ArgumentError, match="state 2 of .*: expected a number from 0 to 1"):
            tensor.state(2)
        with pytest.raises(ls.ArgumentError, match="only float32 tensors"):
            tensor.state(0).set(tensor.full())


def test_a_tensor_that_ranks_share_is_an_array_too(recipe):
    with ls.Run(recipe, {"parallel.tp": 2}, progress=False) as run:
        tensor = run.params["h.0.attn.q.weight"]
        np.testing.assert_array_equal(np.asarray(tensor), tensor.full())
        assert 3 not in run.params


@pytest.mark.parametrize("layout", [{}, {"parallel.tp": 2}], ids=["one", "shared"])
def test_a_tensor_is_read_and_written_like_an_array(recipe, layout):
    with ls.Run(recipe, layout, progress=False) as run:
        tensor = run.params["h.0.attn.q.weight"]
        values = tensor.full()
        for got, want in (
                (tensor == values, np.ones((32, 32), bool)), (tensor != values, values != values),
                (tensor == 0, values == 0), (tensor > 0, values > 0), (0 > tensor, 0 > values),
                (tensor + 1, values + 1), (1 - tensor, 1 - values), (tensor * tensor, values ** 2),
                (values - tensor, values * 0), (2 / tensor, 2 / values), (-tensor, -values),
                (abs(tensor), abs(values)), (tensor @ values, values @ values), (tensor ** 2, values ** 2),
                (tensor.T, values.T), (tensor.mean(), values.mean()), (tensor.sum(1), values.sum(1)),
                (tensor.std(axis=0), values.std(0)), (tensor.max(), values.max()),
                (tensor.reshape(-1), values.ravel()), (tensor.astype("f8"), values.astype("f8")),
                (tensor[1, 2:4], values[1, 2:4]), (list(tensor), values), (np.exp(tensor), np.exp(values)),
                (tensor.tolist(), values), (tensor[tensor > 0], values[values > 0])):
            np.testing.assert_array_equal(got, want)
        assert len(tensor) == 32 and values[3, 4] in tensor and 7.5 not in tensor
        with pytest.raises(ValueError, match="ambiguous"):
            bool(tensor == tensor)
        with pytest.raises(ValueError, match="ambiguous"):
            bool(tensor)
        with pytest.raises(AttributeError, match=r"no cumsum: tensor.numpy\(\) is an array"):
            tensor.cumsum()
        with pytest.raises(TypeError, match="unhashable"):
            hash(tensor)
        assert not hasattr(tensor, "__array_struct__")
        before, whole = run.hash(), tensor
        whole *= 2
        assert whole is tensor and (run.params["h.0.attn.q.weight"] == values * 2).all()
        assert run.hash() != before
        run.params["h.0.attn.q.weight"] /= 2
        assert run.hash() == before
        run.params["h.0.attn.q.weight"] = values + 1
        assert (tensor == values + 1).all()
        for name, other in (("ipow", 2), ("imatmul", values), ("ifloordiv", 0.5), ("imod", 3)):
            wanted = getattr(operator, name[1:])(tensor.full(), other)
            assert getattr(operator, name)(tensor, other) is tensor
            np.testing.assert_array_equal(tensor, wanted)
        tensor.set(values + 1)
        tensor[0] = 3
        assert (tensor[0] == 3).all() and (tensor[1:] == values[1:] + 1).all()


@pytest.mark.parametrize("tp", [1, 2])
def test_functions_of_torch_read_and_write_tensors(recipe, tp, monkeypatch):
    """As torch calls them, with numpy in its place; where ranks share a tensor, through a copy."""
    theirs = types.SimpleNamespace(  # numpy's own from_dlpack is read-only
        from_dlpack=lambda tensor: np.from_dlpack(tensor) is None or tensor.numpy(),
        from_numpy=np.asarray)
    monkeypatch.setitem(sys.modules, "torch", theirs)
    with ls.Run(recipe, {"parallel.tp": tp}, progress=False) as run:
        tensor = run.params["h.0.attn.q.weight"]
        values, before = tensor.full(), run.hash()

        def call(function, *arguments, **more):
            return ls.Tensor.__torch_function__(function, (ls.Tensor,), arguments, more)

        np.testing.assert_array_equal(call(np.add, values, tensor), values * 2)
        np.testing.assert_array_equal(call(np.stack, [tensor, values])[0], values)
        assert call(np.shares_memory, tensor, tensor) and run.hash() == before
        call(np.copyto, tensor, 2 * values)
        np.testing.assert_array_equal(tensor, 2 * values)
        call(np.multiply, tensor, np.float32(.5), out=tensor)
        assert run.hash() == before
        np.testing.assert_array_equal((tensor // 2, tensor % 2), (values // 2, values % 2))
        if tp > 1:
            with pytest.raises(ls.ArgumentError, match=r"cut over ranks.*: expected .* full\(\) is"):
                np.from_dlpack(tensor)
    with pytest.raises(ls.ClosedError):
        call(np.add, values, tensor)


def test_functions_of_torch_only_read_a_model(recipe, monkeypatch):
    theirs = types.SimpleNamespace(from_numpy=np.asarray)  # the library's memory is not asked for
    monkeypatch.setitem(sys.modules, "torch", theirs)
    with ls.Run(recipe, {"train.steps": 1, "numerics.precision": "fp32"}, progress=False) as run:
        run.step()
    with ls.Model(run.out) as model:
        tensor = model.params["wte.weight"]
        values, types_ = tensor.full(), (ls.Tensor,)
        assert not np.shares_memory(np.from_dlpack(tensor), tensor.numpy())
        with pytest.raises(ls.ArgumentError, match="only read"):
            tensor.__dlpack__(copy=False)
        np.testing.assert_array_equal(ls.Tensor.__torch_function__(np.add, types_, (tensor, 1)), values + 1)
        with pytest.raises(ls.ArgumentError, match="it is not trained"):
            ls.Tensor.__torch_function__(np.copyto, types_, (tensor, 2 * values))
        np.testing.assert_array_equal(tensor.full(), values)


def test_tensors_of_torch_are_operands(recipe):
    class Theirs:  # its operators go before numpy's, and refuse ours
        __module__, __array_priority__, dtype = "torch", 1000, "torch.float32"
        device = types.SimpleNamespace(type="cpu")

        def __radd__(self, other):
            raise TypeError("not ours")

        def detach(self):
            return self

        resolve_conj = resolve_neg = detach

        def numpy(self):
            return np.full((32, 32), 2, np.float32)

    class Nested(Theirs):
        __module__, is_nested = "torch", True

        @property
        def shape(self):
            raise RuntimeError("Internal error: no sizes. Please file an issue.")

        __iter__ = __len__ = tolist = lambda self: self.shape

    class Sparse(Theirs):
        __module__ = "torch.sparse"

        def numpy(self):
            raise TypeError("can't convert it.")

    with ls.Run(recipe, progress=False) as run:
        tensor = run.params["h.0.attn.q.weight"]
        values = tensor.full()
        np.testing.assert_array_equal(tensor + Theirs(), values + 2)
        tensor += Theirs()
        np.testing.assert_array_equal(tensor, values + 2)
        with pytest.raises(ls.ArgumentError, match="^values: can't convert it: expected a dense tensor"):
            tensor.set(Sparse())
        nested, tokens = Nested(), np.ones((4, 17), int)
        for name, call in (
                ("tokens", lambda: run.step(nested)), ("targets", lambda: run.step(tokens, nested)),
                ("weights", lambda: run.step(tokens, weights=nested)), ("values", lambda: tensor.set(nested)),
                ("ids", lambda: run.logprobs(nested)), ("ids[1]", lambda: run.logprobs([[1], nested])),
                ("tokens", lambda: run.backward(nested, tokens)), ("ids", lambda: run.decode(nested)),
                ("d_logprobs", lambda: run.backward(tokens, nested)),
                ("prompts", lambda: run.generate(nested)), ("prompts[0]", lambda: run.generate([nested])),
                ("ends", lambda: run.generate([[1]], ends=nested)),
                ("prompts[0]", lambda: ls.rl.GRPO(run, [nested], len, n=2, max_tokens=2).step()),
                ("score", lambda: run.score([{"tokens": nested, "prompt_tokens": 1}])),
                ("pairs[0]: chosen", lambda: ls.preference.DPO(
                    run, [{"prompt": [1], "chosen": nested, "rejected": [2]}]))):
            with pytest.raises(ls.ArgumentError, match=re.escape(name)) as told:
                call()
            assert "expected" in str(told.value) and "file an issue" not in str(told.value)


def test_bf16_is_read_as_its_values(recipe):
    with ls.Run(recipe, {"optim.moments": "bf16"}, progress=False) as run:
        run.step()
        state = run.params["h.0.attn.q.weight"].state(0)
        values = (state.numpy().astype(np.uint32) << 16).view(np.float32)
        assert state.numpy().dtype == np.uint16 and 0 < abs(values).max() < 1
        for got in (np.asarray(state), state[:], state + 0, state * np.float32(1), state.T.T):
            assert got.dtype == np.float32 and np.array_equal(got, values)
        assert state.mean() == values.mean() and not state[:].flags.writeable


def test_folders_above_an_export_are_made(recipe, tmp_path):
    with ls.Run(recipe, progress=False) as run:
        run.save_pretrained(tmp_path / "a" / "b" / "model")
        assert (tmp_path / "a" / "b" / "model" / "config.json").exists()
        with pytest.raises(ls.LockstepError, match="already exists"):
            run.save_pretrained(tmp_path / "a" / "b" / "model")


def test_an_export_says_that_no_token_pads(recipe, tmp_path):
    """Phi-3's is 32000 otherwise, for which transformers refuses a smaller vocabulary."""
    keys = {"model": {**recipe["model"], "arch": "phi3", "ffn": 64}}
    with ls.Run({**recipe, **keys}, progress=False) as run:
        run.save_pretrained(tmp_path / "model")
    config = json.loads((tmp_path / "model" / "config.json").read_text())
    assert config["vocab_size"] < 32000 and config["pad_token_id"] is None


def test_workers_train_and_what_needs_one_model_is_refused(recipe):
    keys = {"async.mode": "diloco", "async.workers": 2, "async.sync_every": 2}
    with ls.Run(recipe, keys, progress=False) as run:
        assert run.decode(run.encode("1 and 2")) == "1 and 2" and run.end_of_document == 256
        for call in (lambda: run.generate("1"), lambda: run.logprobs([[1, 2]]),
                     lambda: run.score([{"text": "1"}]), lambda: run.load(run.out),
                     lambda: run.params["h.0.attn.q.weight"].numpy(),
                     lambda: run.params["h.0.attn.q.weight"].set(np.zeros((32, 32)))):
            with pytest.raises(ls.ArgumentError, match="a model of its own"):
                call()
        with pytest.raises(ls.ConfigError, match="none can be given"):
            run.step(np.ones((4, 17), int))
        assert len(list(run)) == 4 and np.isfinite(run.evaluate().loss)
    with ls.Model(run.out) as model:
        assert model.generate("1", max_tokens=2).ids.shape[0] == 1


def test_a_run_closed_between_two_meetings_keeps_what_is_computed(recipe):
    keys = {"async.mode": "diloco", "async.workers": 2, "async.sync_every": 2}
    with ls.Run(recipe, keys, progress=False) as run:
        for _ in range(3):
            run.step()
        out = pathlib.Path(run.out)
    assert (out / "checkpoints" / "step-00000004").is_dir()


def test_a_weighted_step_tells_the_sum_of_its_weights(recipe, capsys):
    tokens, weights = np.ones((4, 17), int), np.full((4, 17), .25)
    with ls.Run(recipe, progress=True) as run:
        assert run.step().weight is None and "weight" not in capsys.readouterr().err
        assert run.step(tokens, weights=weights, sum=True).weight is None
        assert run.step(tokens, weights=weights).weight == 4 * 16 / 4  # the first has no target
        assert run.step(tokens, weights=2 * weights).weight == 32
        assert "over a weight of 32 " in capsys.readouterr().err
        records = open(os.path.join(run.out, "metrics.jsonl"), encoding="utf-8")
    with records:
        assert [json.loads(line).get("weight") for line in records
                if "loss" in json.loads(line)] == [None, None, 16, 32]


def test_runs_that_differ_on_a_batch_that_was_given_are_not_run_again(recipe, tmp_path):
    for name, batch in (("a", np.ones((4, 17), int)), ("b", np.full((4, 17), 2))):
        with ls.Run(recipe, {"train.out": str(tmp_path / name)}, progress=False) as run:
            run.step()
            run.step(batch)
    with pytest.raises(ls.NotSupportedError, match="step 2 of .*a was taken on a batch that"):
        ls.diff(tmp_path / "a", tmp_path / "b")
    assert ls.diff(tmp_path / "a", tmp_path / "b", rerun=False).step == 2
    program = os.environ.get("LOCKSTEP") or str(_where.program())

    def command(*more):
        done = subprocess.run([program, "diff", "a", "b", *more], cwd=tmp_path, capture_output=True,
                              text=True, check=False)
        return done.returncode, done.stdout + done.stderr
    code, told = command()
    assert code == 22 and "step 2 of a was taken on a batch that" in told
    code, told = command("--no-rerun")  # the records alone
    assert code == 1 and "the records differ at step 2" in told and "batch that" not in told


def test_home_is_known_in_paths(recipe, tmp_path, monkeypatch):
    monkeypatch.setenv("HOME", str(tmp_path))
    (tmp_path / "text.txt").write_text("1 and 2 are 3. " * 200)
    ls.data.prepare("~/text.txt", "~/own", validation=0)
    with ls.data.open("~/own_train") as store:
        assert len(store) > 1000
    with ls.Run(recipe, {"data.train": "~/own_train", "train.out": pathlib.Path("~/out")},
                progress=False) as run:
        run.step()
        assert run.out == str(tmp_path / "out")
    assert ls.report("~/out").startswith("<!") and os.listdir(tmp_path / "out")


def test_the_working_directory_may_change(recipe, tmp_path, monkeypatch):
    """As by %cd in a notebook: no file goes elsewhere."""
    monkeypatch.chdir(tmp_path)
    keys = {"train.out": "own", "checkpoint.also": "copies", "train.save_every": 1, "train.keep": 9}
    (tmp_path / "other").mkdir()
    with ls.Run(recipe, keys, progress=False) as run:
        run.step()
        with ls.Model("own") as model:
            os.chdir("other")
            assert len(list(run)) == 3 and run.save() == str(tmp_path / "own/checkpoints/step-00000004")
            assert run.plot().svg and model.state_dict()
    assert not os.listdir() and os.listdir(tmp_path / "copies")
    assert len(os.listdir(tmp_path / "own/checkpoints")) >= 4


def test_an_audit_names_the_first_step_on_a_batch_that_was_given(recipe):
    with ls.Run(recipe, progress=False) as run:
        run.step()
        run.step(np.ones((4, 17), int))
        out = run.out
        assert json.loads(open(os.path.join(out, "metrics.jsonl"), encoding="utf-8")
                          .read().splitlines()[-1])["given"] == 1
    with pytest.raises(ls.NotSupportedError, match="step 2 of"):
        ls.audit(out, steps=(1, 2))
    assert ls.audit(out, steps=(1, 1)).equal
    for wrong in (1, (1,), "1-2"):
        with pytest.raises(ls.ArgumentError, match="steps is .*: expected the first and the last"):
            ls.audit(out, steps=wrong)
    with pytest.raises(ls.ArgumentError, match=r"whole: expected no steps with it \(\(1, 1\)\)"):
        ls.audit(out, steps=(1, 1), whole=True)
    with pytest.raises(ls.ArgumentError, match="audit: last: expected first with it"):
        ls.audit(out, steps=(None, 1))
    with pytest.raises(ls.ArgumentError, match="got Run: expected a path: its folder is its .out"):
        ls.diff(run, out)


def test_frozen_weights_are_read_in_the_type_that_is_computed_with(recipe):
    with ls.Run(recipe, {"lora.rank": 2, "numerics.precision": "bf16"}, progress=False) as run:
        frozen = run.params["h.0.attn.q.weight"]
        assert not frozen.trained and frozen.dtype == "bfloat16"
        values = (frozen.numpy().astype(np.uint32) << 16).view(np.float32)
        assert np.isfinite(values).all() and values.std() > 0


def test_a_matrix_in_few_bits_has_no_tensor(recipe):
    recipe["model"]["channels"] = 64  # a block's values
    keys = {"lora.rank": 2, "lora.base": "nf4", "train.steps": 1}
    with ls.Run(recipe, keys, progress=False) as run:
        run.step()
        name = "h.0.attn.q.weight"
        for one in run, ls.Model(run.out):
            assert one.params["wte.weight"].full().std() > 0
            for read in (one.params[name].full, one.params[name].local, one.params[name].numpy):
                with pytest.raises(ls.ArgumentError, match=f"{name} is kept in blocks of few bits .lora.base."):
                    read()


def test_what_took_memory_by_dlpack_may_outlive_the_interpreter(recipe):
    """As torch does: numpy's from_dlpack holds a capsule of the same kind."""
    script = ("import lockstep as ls, json, sys, numpy as np\n"
              "run = ls.Run(json.loads(sys.argv[1]), progress=False)\n"
              "tensor = run.params['h.0.attn.q.weight']\n"
              "copied = np.from_dlpack(Copy(tensor))\n"
              "assert not np.shares_memory(copied, tensor.numpy())\n"
              "unused, kept = tensor.__dlpack__(), np.from_dlpack(tensor)\n"
              "assert np.shares_memory(kept, tensor.numpy())\n"
              "run.close()\n"
              "sys.modules['zz_kept'] = kept\n"
              "print('done')\n")
    script = ("class Copy:\n"
              "    def __init__(self, tensor): self.tensor = tensor\n"
              "    def __dlpack__(self, **more): return self.tensor.__dlpack__(copy=True)\n"
              "    def __dlpack_device__(self): return self.tensor.__dlpack_device__()\n") + script
    done = subprocess.run([sys.executable, "-c", script, json.dumps(recipe)], capture_output=True,
                          text=True, check=False, env=dict(os.environ))
    assert (done.returncode, done.stdout, done.stderr) == (0, "done\n", "")


def test_weights_have_the_names_of_transformers(recipe):
    """Of GPT2LMHeadModel.state_dict(): with a prefix, and a tied head by both names."""
    with ls.Run(recipe, {"parallel.dp": 2}, progress=False) as run:
        run.step()
        before, weights = run.hash(), run.state_dict()
        assert "transformer.h.0.attn.c_attn.weight" in weights
        np.testing.assert_array_equal(weights["lm_head.weight"], weights["transformer.wte.weight"])
        by_file = {name.replace("transformer.", ""): value for name, value in weights.items()
                   if name != "lm_head.weight"}
        for tensors in (weights, by_file):
            run.load_state_dict(tensors)
            assert run.hash() == before
        with pytest.raises(ls.ArgumentError, match="lm_head.weight differs"):
            run.load_state_dict({**weights, "lm_head.weight": weights["lm_head.weight"] + 1})
        with pytest.raises(ls.ArgumentError, match="missing h.0.attn.c_attn.bias"):
            run.load_state_dict({"lm_head.weight": weights["lm_head.weight"]})
        odd = {**by_file, "ln_f.bias": by_file["ln_f.bias"].copy()}
        odd["ln_f.bias"][3] = np.nan
        with pytest.raises(ls.ArgumentError, match=r"ln_f.bias\[3\] is nan: expected finite numbers"):
            run.load_state_dict(odd)
        assert run.hash() == before
        run.load_state_dict(odd, finite=False)
        assert np.isnan(run.state_dict()["transformer.ln_f.bias"]).tolist().index(True) == 3
        run.load_state_dict(by_file)
        run.load_state_dict({name: value + 1 for name, value in weights.items()})
        assert run.hash() != before


def test_a_finished_run_is_a_model_in_any_layout(recipe):
    with ls.Run(recipe, progress=False) as run:
        list(run)
    ids = [[1, 2, 3], [4, 5]]
    with ls.Model(run.out) as one, ls.Model(run.out, {"parallel.tp": 2}) as cut, \
            ls.Model(run.out, {"parallel": {"pp": 2}}) as staged:
        assert (one.ranks, cut.ranks, staged.ranks) == (1, 2, 2)
        for other in (cut, staged):
            np.testing.assert_array_equal(one.logprobs(ids), other.logprobs(ids))
        weights = one.params["wte.weight"].numpy()
        with pytest.raises(ValueError, match="read-only"):  # other ranks would not have it
            weights[0, 0] = 1
        assert one.write("1 and 2", max_tokens=4, seed=1) == one.write(["1 and 2"], max_tokens=4,
                                                                      seed=1)


@pytest.mark.parametrize("which", [None, "best"])
def test_a_model_is_written_as_it_was_opened(recipe, which):
    """Whatever its run has saved since, beside one that is opened then."""
    keys = {"eval.every": 1, "train.keep_best": True, "train.save_every": 1, "train.keep": 9}
    with ls.Run(recipe, keys, progress=False) as run:
        run.step()
        with ls.Model(run.out, which=which) as model:
            before = model.state_dict()["transformer.wte.weight"]
            list(run)
            np.testing.assert_array_equal(model.state_dict()["transformer.wte.weight"], before)
            with ls.Model(run.out, which=which) as newest:
                assert not np.array_equal(newest.state_dict()["transformer.wte.weight"], before)


def test_a_checkpoint_by_another_name_is_written_as_it_was_opened(recipe):
    """A copy in the run's folder, of a step that the run has otherwise now."""
    with ls.Run(recipe, {"train.save_every": 1, "train.keep": 9}, progress=False) as run:
        run.step()
        kept = shutil.copytree(f"{run.out}/checkpoints/step-00000001", f"{run.out}/checkpoints/good")
        before = ls.Model(kept).state_dict()["transformer.wte.weight"]
        shutil.rmtree(f"{run.out}/checkpoints/step-00000001")
        np.testing.assert_array_equal(ls.Model(kept).state_dict()["transformer.wte.weight"], before)


def test_an_answer_is_of_the_order_that_was_asked(recipe):
    """Three threads at one run: each call is done, and answered, or refused; none keeps the others off
    for good, since each has enough at last."""
    each, odd, steps, shapes = 20 if ALL else 10, [], [], []
    ended = threading.Condition()  # a call
    with ls.Run(recipe, {"train.steps": 100000}, progress=False) as run:
        def ask(call, answers):
            done = 0
            while done < each and not odd:
                before = len(steps) + len(shapes)
                try:
                    answer = call()
                    with ended:
                        answers.append(answer)
                        ended.notify_all()
                    done += 1
                except BaseException as error:  # told below
                    with ended:
                        if "under way" not in str(error):
                            odd.append(repr(error))
                            ended.notify_all()
                        ended.wait_for(lambda: odd or len(steps) + len(shapes) > before)

        threads = [threading.Thread(target=ask, args=asked) for asked in (
            (lambda: run.step().step, steps),
            *[(lambda: run.logprobs([[1, 2, 3]]).shape, shapes)] * 2)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert not odd and steps == list(range(1, each + 1)) and shapes == [(1, 3)] * 2 * each


@pytest.mark.parametrize("meanwhile", [None, "what hears the next order"])
def test_a_report_is_heard_though_another_thread_does(monkeypatch, meanwhile):
    """It does so, and may ask the next order, while this one looks whether there is a report."""
    session, told = _lib.Session(), []

    class Library:
        def ls_session_report(self, _handle, _report):
            session._unheard = meanwhile
            return True

    session._unheard = told.append
    with monkeypatch.context() as patched:
        patched.setattr(_lib, "library", Library)
        session.settle()
    assert len(told) == 1 and session._unheard == meanwhile


def test_arrays_stay_lent_until_their_order_is_over(monkeypatch):
    """Ctrl-C twice leaves an order under way; the library refuses the next ones, and ranks still read."""
    session, real, kept = _lib.Session(), _lib.library(), []

    class Library:
        refusal, cause = 0, 0

        def __getattr__(self, name):
            return getattr(real, name)

        def ls_session_ask(self, *arguments):
            arguments[-1]._obj.cause = self.cause
            return self.refusal

        def ls_session_wait(self, *_):
            if self.refusal == 0 and not kept:
                raise KeyboardInterrupt
            return 0

        def ls_session_stop(self, _handle):
            pass

        def ls_session_answer(self, _handle):
            return b"{}"

    library, first, second = Library(), _lib.Array(), _lib.Array()

    def lent(arrays):
        return [id(array) for array in arrays]

    with monkeypatch.context() as patched:
        patched.setattr(_lib, "library", lambda: library)
        patched.setattr(_lib, "_lent_for_ever", kept)
        with pytest.raises(KeyboardInterrupt):
            session.ask("step", None, [first])
        library.refusal = -1
        for library.cause in (0, _lib.GIVEN_UP):
            with pytest.raises(ls.LockstepError):
                session.ask("step", None, [second])
            assert lent(session._lent) == [id(first)]
        assert [lent(arrays) for arrays in kept] == [[id(first), id(second)]]
        library.refusal = library.cause = 0
        session.ask("step", None, [second])
        assert session._lent == []


@pytest.mark.parametrize("value, text", [(float("nan"), "optim.lr: nan: expected a finite number"),
                                         (float("inf"), "optim.lr: inf: expected a finite"),
                                         ("a\0b", "optim.lr: .*: expected a text without NUL"),
                                         ("\udc80", "optim.lr: .*: expected a text of whole"),
                                         (np.array([1, 2]), r"optim.lr: expected one value, not a list")])
def test_values_that_are_none_are_named(recipe, value, text):
    with pytest.raises(ls.LockstepError, match=text):
        ls.Run(recipe, {"optim.lr": value}, progress=False)


@pytest.mark.parametrize("call, text", [
    (lambda run: run.generate("a", ends=[1.5]), "ends.0. is 1.5: expected a token id"),
    (lambda run: run.generate("a", stop=[b"x"]), "stop.0. is b'x': expected a text"),
    (lambda run: run.generate(["a", [1]]), r"prompts.1. is \[1\]: expected a text"),
    (lambda run: run.generate([{"prompt": "a"}]), "prompts.0.: got dict: expected a list of token"),
    (lambda run: run.generate("a", max_tokens=0), "max_tokens: expected a whole number from 1"),
    (lambda run: run.generate("a", 0), "n is 0: expected a whole number from 1"),
    (lambda run: run.generate("a", temperature=-1), "temperature: expected 0 or more"),
    (lambda run: run.write(5), "prompts: got int: expected a list"),
    (lambda run: run.score(None), "requests: got NoneType: expected a list"),
    (lambda run: run.encode(b"a"), "got bytes: expected a text"),
    (lambda run: run.decode([1.5]), "ids.0. is 1.5: expected a token id"),
    (lambda run: run.decode("ab"), "ids: got str: expected a list of token ids"),
    (lambda run: run.load_state_dict(None), "state_dict: got NoneType: expected a dict"),
    (lambda run: run.params["h.0.attn.q.weight"].state("x"), "state 'x' of h.0"),
    (lambda run: ls.rl.GRPO(None, ["a"], len), "run is a NoneType: expected a Run, which trains"),
    (lambda run: ls.preference.DPO(run, "nowhere"), "nowhere: No such file"),
    (lambda run: ls.preference.DPO(run, 5), "pairs: got int: expected a list"),
    (lambda run: ls.preference.DPO(run, [{}], beta=float("nan")), "beta is nan: expected"),
    (lambda run: ls.Run({"train.out": b"x"}), "b'x' is of type bytes: expected a text"),
    (lambda run: ls.Run(5), "config: got int: expected a YAML file, or a dict of keys"),
    (lambda run: ls.Run(None, "a.yaml"), "keys: got str: expected a dict of keys"),
    (lambda run: ls.Model(5), "got int: expected a path"),
    (lambda run: run.generate([]), "prompts: expected at least one$"),
    (lambda run: run.logprobs([[1], []]), "ids.1.: expected at least one token"),
    (lambda run: run.generate(np.array([1, 2])), "prompts.0.: got int64: expected a list of token"),
    (lambda run: run.generate(5), "prompts: got int: expected a list of texts or lists"),
])
def test_what_is_no_argument_is_named(open_run, call, text):
    with pytest.raises(ls.LockstepError, match=text):
        call(open_run)


@pytest.fixture(scope="module")
def open_run(tmp_path_factory):
    keys = {"model": {"layers": 1, "channels": 16, "heads": 2, "context": 12}, "batch.global": 4,
            "data": {"sequence": 11, "tokenizer": "byte"}, "numerics.arithmetic": "fma"}
    with ls.Run(keys, {"train.out": tmp_path_factory.mktemp("open") / "run"}, progress=False) as run:
        yield run


def test_errors_of_keys_speak_of_no_command_line(open_run):
    """No order of a run does: where keys are read, and where ranks find them wrong."""
    for call, key in ((open_run.step, "data.train"), (open_run.evaluate, "data.valid"),
                      (lambda: ls.Run({"train.out": open_run.out, "model.preset": "gpt2-124m",
                                       "data.tokenizer": "byte"}), "train.out")):
        with pytest.raises(ls.LockstepError) as error:
            call()
        assert str(error.value).startswith(key) and error.value.key == key


def test_a_run_is_not_copied(open_run):
    for call in (copy.copy, pickle.dumps):
        with pytest.raises(TypeError, match="a run has ranks: it is not copied, and no other process"):
            call(open_run)
    assert open_run.logprobs([[1, 2]]).shape == (1, 2) and ", 1 rank)" in repr(open_run)


def test_numbers_and_texts_of_numpy_are_arguments(open_run):
    plain = open_run.generate("ab", 2, max_tokens=3, seed=5, temperature=.5, ends=[7])
    numpys = open_run.generate(np.array(["ab"]).tolist(), np.int64(2), max_tokens=np.int32(3),
                               seed=np.uint64(5), temperature=np.float32(.5), ends=np.array([7]))
    assert (plain.ids == numpys.ids).all() and (plain.logp == numpys.logp).all()
    assert open_run.decode(plain.ids[0]) == "ab" + plain.texts[0]
    for prompts in (np.array(["ab", "c"]), (text for text in ("ab", "c"))):
        given = open_run.generate(prompts, 2, max_tokens=3, seed=5, temperature=.5, ends=[7])
        assert (given.ids[:2, :5] == plain.ids).all() and len(given.texts) == 4


@pytest.mark.parametrize("keys", [{}, {"parallel.pp": 2}, {"parallel.tp": 2},
                                  {"parallel.dp": 2, "parallel.zero": 2},
                                  {"numerics.precision": "fp16"},
                                  {"numerics.precision": "fp16", "parallel.tp": 2}], ids=str)
def test_gradients_are_what_the_update_adds(recipe, keys):
    """Of a tied table both: the head's and the embedding's."""
    sgd = {"optim": {"name": "sgd", "momentum": 0, "lr": 1, "schedule": "constant", "clip": 0,
                     "weight_decay": 0}}
    with ls.Run({**recipe, **sgd}, keys, progress=False) as run:
        tokens = np.arange(4 * 17).reshape(4, 17)
        before = {name: run.params[name].full() for name in run.params}
        m = run.step(tokens)
        for name, values in before.items():
            grad = run.params[name].grad.numpy()
            np.testing.assert_array_equal(run.params[name].full(), values - grad, err_msg=name)
            before[name] = grad.astype(np.float64)
        assert m.grad_norm == pytest.approx(sum((g ** 2).sum() for g in before.values()) ** .5, 1e-12)
        local = run.params["wte.weight"].grad.local()
        assert (local[:len(local) // 2] == before["wte.weight"][:len(local) // 2]).all()
        # A gradient that was written is that which the update takes.
        table, ones = run.params["wte.weight"], np.ones((257, 32), np.float32)
        run.backward(tokens, np.ones((4, 17)))
        table.grad.set(ones)
        values = table.full()
        run.step()
        np.testing.assert_array_equal(table.full(), values - 1)
        run.backward(tokens, np.ones((4, 17)))
        table.grad = ones * 2
        assert (table.grad == 2).all()
        table.grad *= 0.5
        assert (table.grad == 1).all()
        norm = run.params["ln_f.weight"]
        norm.grad = np.ones(32)
        norm.grad = norm.grad + norm.grad
        assert (norm.grad == 2).all() and (table.grad == 1).all()
        with pytest.raises(ls.ArgumentError, match="expected an array of numbers"):
            table.grad = None


def test_what_has_no_log_probability_counts_for_nothing(open_run):
    """The first token, and what is behind the end."""
    ids, d = np.array([[1, 2, 3, -1], [4, 5, -1, -1]]), np.ones((2, 4))
    odd = np.where((ids < 0) | (np.arange(4) == 0), np.nan, d)
    grads = []
    for values in (d, odd):
        open_run.backward(ids, values, d_entropies=values)
        grads.append(open_run.params["h.0.attn.q.weight"].grad.full())
        open_run.discard()
    np.testing.assert_array_equal(*grads)
    open_run.backward(ids, d)
    for call in (lambda: open_run.backward(ids, d), lambda: open_run.step(np.ones((4, 5), int))):
        with pytest.raises(ls.ArgumentError, match="waits for its update: expected the update, which "
                                                   "takes that step, or discard"):
            call()
    open_run.discard()
    with pytest.raises(ls.ArgumentError, match=r"d_logprobs\[0, 1\] is nan: expected finite"):
        open_run.backward(ids, np.where(np.arange(4) == 1, np.nan, d))


def test_what_was_written_has_the_log_probabilities_of_training(recipe):
    with ls.Run(recipe, progress=False) as run:
        run.step()
        written = run.generate(["1 and 2", "7 and"], n=2, max_tokens=6, seed=3)
        ids, logp = written
        texts = run.write(["1 and 2", {"prompt": "7 and", "max_tokens": 3}], max_tokens=6, seed=3)
        assert texts[0] == written.texts[0] and written.texts[2].startswith(texts[1])
        assert run.decode(ids[0][:7]) == "1 and 2" and written.mask.sum(axis=1).max() == 6
        assert ids.shape == logp.shape and ids.shape[0] == 4
        np.testing.assert_array_equal(run.logprobs(ids), logp)
        drawn = run.backward(ids, np.ones_like(logp))
        np.testing.assert_array_equal(drawn[:, 1:][ids[:, 1:] >= 0], logp[:, 1:][ids[:, 1:] >= 0])
        run.step()


def test_scores_of_requests(recipe):
    with ls.Run(recipe, progress=False) as run:
        run.step()
        pair, whole = run.score([{"context": "", "continuation": "1 and 2"}, {"text": "1 and 2"}])
        assert pair.loglikelihood == whole.loglikelihood < 0 and pair.tokens == 7
        good = {"context": "1", "continuation": " 2"}
        for bad, why in (({"context": 3}, "requests[1]: "), (5, "requests[1]: expected a JSON obj"),
                         ({"context": "1" * 40, "continuation": "2"}, "requests[1] has 41 tokens")):
            with pytest.raises(ls.LockstepError, match=re.escape(why)):
                run.score([good, bad])


@pytest.mark.parametrize("keys", [{}, {"parallel.dp": 2, "parallel.tp": 2}], ids=str)
def test_errors_count_texts_as_python_does(recipe, keys):
    with ls.Run(recipe, keys, progress=False) as run:
        long = [1] * (run.context + 2)
        for call, why in (
                (lambda: run.generate([[1], long], max_tokens=1), f"prompts[1] has {len(long)} tokens: at"),
                (lambda: run.write(["1", {"prompt": 1.5}]), "prompts[1]: "),
                (lambda: run.write(["1", "1 2"], max_tokens=run.context, truncate=True),
                 f"prompts[1] has 3 tokens, and {run.context} are to be added"),
                (lambda: run.logprobs([[1], long]), f"text 1 has {len(long)} tokens: at most")):
            with pytest.raises(ls.LockstepError, match="^" + re.escape(why)):
                call()


def test_wrong_keys_are_named(recipe):
    with pytest.raises(ls.ConfigError, match="did you mean optim.lr"):
        ls.Run(recipe, {"optim.lrr": 1})
    with pytest.raises(ls.LayoutError, match="parallel.tp"):
        ls.Run(recipe, {"parallel.tp": 3})
    with pytest.raises(ls.ConfigError, match="expected a key such as"):
        ls.Run({"steps": 3})
    for twice in ({"train": {"steps": 1}, "train.steps": 2}, {"train.steps": 2, "train": {"steps": 2}},
                  {"memory": {"offload": {"optimizer": "host"}}, "memory.offload.optimizer": "none"},
                  {"memory": {"offload": {"optimizer": "host"}, "offload.optimizer": "none"}}):
        with pytest.raises(ls.ConfigError, match="given twice, by itself and in a group") as caught:
            ls.Run(recipe, twice)
        assert caught.value.key in ("train.steps", "memory.offload.optimizer")
    over = ls.Run({"memory": {"offload": {"optimizer": "host"}}, **recipe},
                  {"memory.offload.optimizer": "none"}, progress=False)
    assert "optimizer: none" in over.config or "host" not in over.config
    over.close()
    with pytest.raises(ls.LockstepError, match="nowhere.yaml"):
        ls.Run("nowhere.yaml")


def test_an_error_has_its_key_file_and_line(tmp_path):
    (tmp_path / "cfg.yaml").write_text("train:\n  steps: 3\noptim:\n  lrr: 1\n")
    with pytest.raises(ls.ConfigError, match="did you mean .*lr") as caught:
        ls.Run(tmp_path / "cfg.yaml", progress=False)
    error = caught.value
    assert (error.key, error.file, error.line) == ("optim.lrr", str(tmp_path / "cfg.yaml"), 4)
    with pytest.raises(ls.ConfigError) as caught:
        ls.Run({"optim.lrr": 1}, progress=False)
    error = caught.value
    assert (error.key, error.file, error.line) == ("optim.lrr", None, None)


def test_two_runs_live_beside_each_other(recipe, tmp_path):
    one = hashes(recipe, {"train.out": str(tmp_path / "alone")})
    a = ls.Run(recipe, {"train.out": str(tmp_path / "a")}, progress=False)
    b = ls.Run(recipe, {"train.out": str(tmp_path / "b"), "parallel.dp": 2}, progress=False)
    losses = [(a.step().loss, b.step().loss) for _ in range(4)]
    assert [pair[0] for pair in losses] == [pair[1] for pair in losses] == one[0]
    assert a.hash() == b.hash() == one[1]
    a.close()
    b.close()


def told_in_a_fork(call):
    """What that came to in a fork of this process."""
    ends, begins = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            call()
            text = "went on"
        except BaseException as error:  # must not go on as a second pytest
            text = repr(error)
        os.write(begins, text.encode())
        os._exit(0)
    os.close(begins)
    os.waitpid(child, 0)
    with open(ends, encoding="utf-8") as told:
        return told.read()


def test_a_fork_is_told_also_of_an_order_under_way(recipe):
    with ls.Run(recipe, progress=False) as run:
        run.step()
        told = [told_in_a_fork(run.step)]
        run._events.append(lambda event: told.append(told_in_a_fork(run.step)))
        run.save()
        assert len(told) == 2 and all("is a fork of the one" in one for one in told)
        run._events.pop()
        run.step()


@pytest.mark.parametrize("arch, layers", [("gemma2", 2), ("gemma3", 6)])
def test_a_model_without_windows_is_saved_with_one_over_its_context(recipe, tmp_path, arch, layers):
    """transformers' Gemma 2 and 3 always have one; every sixth layer of Gemma 3 has none."""
    keys = {"model.arch": arch, "model.layers": layers, "model.window": 0, "numerics.precision": "fp32"}
    ids = np.arange(24)[None] * 7 % 250
    with ls.Run(recipe, keys, progress=False) as run:
        run.step()
        found = run.logprobs(ids)
        run.load_state_dict(run.state_dict())
        run.save_pretrained(tmp_path / "model")
    config = tmp_path / "model" / "config.json"
    said = json.loads(config.read_text())
    assert said["sliding_window"] == said["max_position_embeddings"] == 32
    for window, same in ((32, True), (8, False)):  # the twin
        config.write_text(json.dumps({**said, "sliding_window": window}))
        with ls.Model(tmp_path / "model") as model:
            assert np.array_equal(model.logprobs(ids), found) is same


def interrupt_next(monkeypatch, when, number=signal.SIGINT):
    """Ctrl-C, or another signal, comes in the next call of that function: an order is handed over,
    and not waited for."""
    library, call = _lib.library(), getattr(_lib.library(), when)

    def interrupted(*arguments):
        monkeypatch.setattr(library, when, call)
        asked = call(*arguments) if when == "ls_session_ask" else None
        signal.raise_signal(number)
        return call(*arguments) if asked is None else asked
    monkeypatch.setattr(library, when, interrupted)


def end_early(monkeypatch, call, number=signal.SIGINT, raises=KeyboardInterrupt):
    """Asks until the signal has ended an order before it was done: how far ranks get before this
    thread goes on is the scheduler's choice."""
    cause = None
    while "nothing is given back" not in str(cause):
        interrupt_next(monkeypatch, "ls_session_wait", number)
        with pytest.raises(raises) as raised:
            call()
        cause = raised.value.__cause__
        assert cause is None or isinstance(cause, ls.Stopped)


@pytest.fixture
def heard():
    """Python's own handler, which jobs of shells lack."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.mark.parametrize("layout", cases([{}, {"parallel.dp": 2, "parallel.pp": 2}],
                                         [{"parallel.tp": 2}]), ids=str)
def test_an_interrupt_ends_what_is_asked_and_the_run_goes_on(recipe, layout, monkeypatch, heard):
    with ls.Run(recipe, {**layout, "eval.samples": 64}, progress=False) as run:
        expected = run.generate("1 and", n=3, max_tokens=5)
        for call in (lambda: run.generate("1 and", n=2000, max_tokens=20),
                     lambda: run.logprobs(np.ones((4000, 16), int)), run.evaluate,
                     lambda: run.score([{"text": "1 and 2"}] * 200)):
            end_early(monkeypatch, call)
        np.testing.assert_array_equal(run.generate("1 and", n=3, max_tokens=5)[1], expected[1])
        weights = run.state_dict()
        interrupt_next(monkeypatch, "ls_session_wait")
        with pytest.raises(KeyboardInterrupt):
            run.load_state_dict({name: value + 1 for name, value in weights.items()})
        np.testing.assert_array_equal(run.params["h.0.attn.q.weight"].full()[0, 0],
                                      weights["transformer.h.0.attn.c_attn.weight"][0, 0]
                                      + np.float32(1))
        assert len(list(run)) == 4


def test_an_interrupt_while_an_order_is_handed_over_waits_for_it(recipe, monkeypatch, heard):
    with ls.Run(recipe, progress=False) as run:
        for call in (lambda: run.generate("1 and", n=2000, max_tokens=20), run.step):
            interrupt_next(monkeypatch, "ls_session_ask")
            with pytest.raises(KeyboardInterrupt):
                call()
            assert run.logprobs([[1, 2, 3]]).shape == (1, 3)  # nothing is under way


def test_a_step_counts_whatever_is_raised_behind_it(recipe, monkeypatch, heard):
    def broken(event):
        if event["event"] == "saved" and event["step"] == 2:
            raise RuntimeError("mine")

    with ls.Run(recipe, {"train.save_every": 2, "train.steps": 9}, on_event=broken, progress=False) as run:
        run.step()
        with pytest.raises(RuntimeError, match="mine"):
            run.step()
        assert (run.step_count, run.ended) == (2, False)
        interrupt_next(monkeypatch, "ls_session_wait")
        with pytest.raises(KeyboardInterrupt):
            run.step()
        assert run.step_count == 3
        after = list(run)  # Ctrl-C makes it the last, or the next if ranks had ended it by then
        assert run.ended and len(after) <= 1 and run.step_count == 3 + len(after)


def test_an_interrupt_while_a_callbacks_exception_waits(recipe, monkeypatch, heard):
    """It ends the run at that step, which counts; a second one leaves it, and it counts once it is over."""
    library, told = _lib.library(), []
    wait = library.ls_session_wait

    def broken(event):
        if event["event"] == "saved" and event["step"] == 1:
            interrupt_next(monkeypatch, "ls_session_wait")
            raise RuntimeError("mine")

    def interrupted(*arguments):
        told.append(1)
        if len(told) == 2:
            monkeypatch.setattr(library, "ls_session_wait", wait)
        signal.raise_signal(signal.SIGINT)

    with ls.Run(recipe, {"train.save_every": 1}, on_event=broken, progress=False) as run:
        with pytest.raises(KeyboardInterrupt) as raised:
            run.step()
        assert "mine" in str(raised.value.__cause__)
        assert run.step_count == 1 and len(list(run)) <= 1  # the signal came in the first or behind it
    with ls.Run(recipe, {"train.out": recipe["train"]["out"] + "2"}, progress=False) as run:
        run.step()
        monkeypatch.setattr(library, "ls_session_wait", interrupted)
        with pytest.raises(KeyboardInterrupt):
            run.step()
        while run.step_count == 1:
            pass
        assert len(run.hash()) == 32


def test_a_second_interrupt_is_raised_while_files_are_written(recipe, tmp_path, monkeypatch, heard):
    """The order that it leaves under way writes on in the folder that is about to be removed."""
    library, wait, remove = _lib.library(), _lib.library().ls_session_wait, os.rmdir
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    with ls.Run(recipe, progress=False) as run:
        weights = run.state_dict()
        for call in (run.state_dict, lambda: run.load_state_dict(weights)):
            wrote = []

            def interrupted(*arguments):
                signal.raise_signal(signal.SIGINT)
                signal.raise_signal(signal.SIGINT)
                return wait(*arguments)

            def removed(*arguments, **options):
                wrote.extend((one / "late").touch() for one in tmp_path.glob("tmp*") if not wrote)
                return remove(*arguments, **options)
            monkeypatch.setattr(library, "ls_session_wait", interrupted)
            monkeypatch.setattr(os, "rmdir", removed)
            with pytest.raises(KeyboardInterrupt):
                call()
            monkeypatch.setattr(library, "ls_session_wait", wait)
            monkeypatch.setattr(os, "rmdir", remove)
            assert wrote
            while True:  # until what was left under way is over
                try:
                    run.hash()
                    break
                except ls.ArgumentError as error:
                    assert "under way" in str(error)


def test_nobody_waits_for_an_order_that_an_interrupt_left(tmp_path, monkeypatch, heard):
    """Which goes on: here it reads from a pipe."""
    library, wait, told = _lib.library(), _lib.library().ls_session_wait, []
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)

    def interrupted(*arguments):
        told.append(1)
        while len(told) == 1:
            assert wait(*arguments) == _lib.WAITS  # it is under way
            with contextlib.suppress(OSError):  # nobody reads yet
                told.append(os.open(pipe, os.O_WRONLY | os.O_NONBLOCK))
        if len(told) == 3:
            monkeypatch.setattr(library, "ls_session_wait", wait)
        signal.raise_signal(signal.SIGINT)

    monkeypatch.setattr(library, "ls_session_wait", interrupted)
    with pytest.raises(KeyboardInterrupt):
        ls.convert.deepspeed(pipe)
    gc.collect()
    assert os.write(told[1], b"{}") == 2  # it is read
    os.close(told[1])


def test_a_run_is_closed_behind_what_an_interrupt_left(recipe, monkeypatch, heard):
    library, wait, told = _lib.library(), _lib.library().ls_session_wait, []

    def interrupted(*arguments):
        told.append(1)
        if len(told) == 2:
            monkeypatch.setattr(library, "ls_session_wait", wait)
        signal.raise_signal(signal.SIGINT)

    with ls.Run(recipe, progress=False) as run:
        run.step()
        monkeypatch.setattr(library, "ls_session_wait", interrupted)
        with pytest.raises(KeyboardInterrupt):
            run.evaluate()
        run.close()
        assert run.closed
    assert os.listdir(run.out + "/checkpoints") == ["step-00000001"]


@pytest.mark.parametrize("keys", [{}, {"parallel.dp": 2}], ids=str)
def test_an_interrupt_at_any_line_leaves_the_session_to_the_next_order(recipe, keys):
    """But in what CPython takes no signal: a lock's "with", and what gives the session back."""
    def interrupted_at(n, call):
        left = [n]

        def trace(frame, event, argument):
            if frame.f_code.co_filename != _lib.__file__ or frame.f_code.co_name == "library":
                return None
            if event == "line" and "_under_way.pop" not in lines[frame.f_lineno - 1]:
                left[0] -= 1
                if not left[0]:
                    raise KeyboardInterrupt
            return trace

        sys.settrace(trace)
        try:
            call()
        except KeyboardInterrupt:
            pass
        finally:
            sys.settrace(None)
        return left[0] <= 0

    lines = linecache.getlines(_lib.__file__)
    # On one rank a call has every third line, and the two calls behind it the others; on two ranks,
    # which take longer, every twelfth. CHECK=all has all of them.
    every = 1 if ALL else 12 if keys else 3
    with ls.Run(recipe, {**keys, "train.steps": 1000}, progress=False) as run:
        tensor = run.params["h.0.attn.q.weight"]
        for i, call in enumerate((run.hash, lambda: run.logprobs([[1, 2, 3]]), tensor.full,
                                  tensor.grad.local)):
            run.step()
            n = 1 + i % every
            while interrupted_at(n, call):
                call()
                n += every
            assert n > 20


def test_a_run_that_was_not_let_open_gives_its_folder_back(recipe, monkeypatch, heard):
    """Though its exception is kept, as notebooks do."""
    def broken(event):
        raise RuntimeError(event["event"])

    interrupt_next(monkeypatch, "ls_session_wait")
    with pytest.raises(KeyboardInterrupt) as kept:
        ls.Run(recipe, progress=False)
    with pytest.raises(RuntimeError) as other:
        ls.Run(recipe, progress=False, on_event=broken)
    with ls.Run(recipe, progress=False) as run:
        assert run.step_count == 0 and kept.value and other.value


def test_an_error_holds_nothing_for_the_collector(open_run):
    class Mine(list):
        pass

    gc.disable()
    try:
        ids = Mine([[1] * 99])
        held = weakref.ref(ids)
        with pytest.raises(ls.LockstepError):
            open_run.logprobs(ids)
        del ids
        assert held() is None
    finally:
        gc.enable()


def test_an_exception_of_a_signal_ends_what_is_asked(open_run, monkeypatch):
    def late(number, frame):
        raise TimeoutError("too long")
    before = signal.signal(signal.SIGUSR1, late)
    try:
        end_early(monkeypatch, lambda: open_run.generate("a", n=20000, max_tokens=8),
                  signal.SIGUSR1, TimeoutError)
        assert open_run.generate("a", max_tokens=2).ids.shape == (1, 3)
    finally:
        signal.signal(signal.SIGUSR1, before)


def test_an_interrupt_ends_the_run_at_a_step_and_saves(recipe, tmp_path):
    script = ("import lockstep as ls, signal, sys, json\n"
              "signal.signal(signal.SIGINT, signal.default_int_handler)  # jobs of shells ignore it\n"
              "run = ls.Run(json.loads(sys.argv[1]), progress=False,\n"
              "             on_step=lambda m: m.step == 2 and signal.raise_signal(signal.SIGINT))\n"
              "try:\n"
              "    for m in run: pass\n"
              "except KeyboardInterrupt:\n"
              "    run.close()\n"
              "    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler\n"
              "    print('interrupted at', m.step)\n")
    done = subprocess.run([sys.executable, "-c", script, json.dumps(recipe)], capture_output=True,
                          text=True, check=False, env=dict(os.environ))
    assert "interrupted at" in done.stdout, done.stderr
    saved = os.listdir(os.path.join(recipe["train"]["out"], "checkpoints"))
    assert any(name.startswith("step-0000000") for name in saved)


def test_no_line_of_python_runs_when_runs_and_views_are_dropped(recipe):
    """It would swallow Ctrl-C."""
    run, lines = ls.Run(recipe, progress=False), []
    views = [run.params["h.0.attn.q.weight"].numpy() for _ in range(2)]
    gone = weakref.ref(run)
    gc.collect()
    sys.settrace(lambda frame, *_: lines.append(frame.f_code))
    try:
        views.pop()
        del run
        views.pop()
        gc.collect()
    finally:
        sys.settrace(None)
    assert not gone() and not lines


def test_runs_that_are_dropped_are_freed(recipe, tmp_path):
    """`make check-all` makes a thousand; threads, files and memory of all are gone. Memory that the
    allocator keeps for threads levels off: the second half of the runs adds less than 64 KiB each."""
    count = 1000 if ALL else 6

    def held():
        gc.collect()
        with open("/proc/self/statm") as file:
            resident = int(file.read().split()[1]) * resource.getpagesize()
        return len(os.listdir("/proc/self/task")), len(os.listdir("/proc/self/fd")), resident

    ls.Run(recipe, {"train.out": str(tmp_path / "first")}, progress=False).close()
    before = middle = held()
    for i in range(count):
        if 2 * i == count:
            middle = held()
        run = ls.Run(recipe, {"train.out": str(tmp_path / f"r{i}")}, progress=False)
        if i % 2:
            run.close()
        del run
    while held()[0] > before[0] + 1:  # OpenMP's threads end after those that they worked for
        os.sched_yield()
    after = held()
    assert after[1] <= before[1] + 1
    if count == 1000:
        assert after[2] - middle[2] < 500 * (64 << 10)


def test_a_checkpoint_of_a_changed_state_is_the_runs_own(recipe, tmp_path):
    """It has another hash than the record of its step, and says why."""
    for name, layout in (("a", {}), ("b", {"parallel.dp": 2})):
        keys = {"train.out": str(tmp_path / name), "log.hash_every": 1, "train.keep": 9, **layout}
        with ls.Run(recipe, keys, progress=False) as run:
            for m in run:
                if m.step == 2:
                    weight = run.params["h.0.attn.q.weight"]
                    weight *= 1.5
                    run.save()
    assert ls.diff(tmp_path / "a", tmp_path / "b").equal


def test_runs_are_compared_and_reported(recipe, tmp_path):
    for name, layout in (("a", {}), ("b", {"parallel.dp": 2})):
        keys = {"train.out": str(tmp_path / name), "log.hash_every": 1, "train.save_every": 2}
        hashes(recipe, {**keys, **layout})
    same = ls.diff(tmp_path / "a", tmp_path / "b")
    assert same.equal and same.compared == 4 and same.hash_equal_to == 4
    found = ls.audit(tmp_path / "a", {"parallel.dp": 2}, steps=(3, 4))
    assert found.equal and found.hashes >= 1 and found.step is None and found.chain is None
    records = (tmp_path / "b" / "metrics.jsonl").read_text()
    lines = records.splitlines()
    third = next(i for i, line in enumerate(lines) if json.loads(line).get("step") == 3)
    altered = json.loads(lines[third])
    altered["loss_bits"] = f"{int(altered['loss_bits'], 16) ^ 1:08x}"
    lines[third] = json.dumps(altered)
    (tmp_path / "b" / "metrics.jsonl").write_text("\n".join(lines) + "\n")
    parted = ls.diff(tmp_path / "a", tmp_path / "b", rerun=False)
    assert not parted.equal and parted.step == 3 and parted.loss
    assert not ls.audit(tmp_path / "b", {"parallel.dp": 1}, whole=True).equal
    with ls.Run(recipe, {"train.out": str(tmp_path / "a"), "train.resume": "auto"},
                progress=False) as run:
        assert run.plot().svg.startswith("<svg") and "<svg" in run._repr_html_()
    assert "<html" in ls.report(tmp_path / "a", tmp_path / "b")
    assert ls.report(tmp_path / "a", out=tmp_path / "page.html") == ""
    assert "<html" in (tmp_path / "page.html").read_text()


@pytest.mark.parametrize("layout, why, works", [
    ({"parallel.dp": 2, "rollout.tp": 3}, "expected the run's 2 ranks", "rollout.tp = 2"),
    ({"parallel.dp": 2, "rollout.dp": 4}, "expected the run's 2 ranks", "rollout.dp = 2"),
    ({"parallel.dp": 4, "rollout.pp": 8}, "expected the run's 4 ranks", "rollout.pp = 4"),
    ({"parallel.dp": 8, "batch.global": 8, "rollout.pp": 8}, "need a layer each",
     "rollout.pp = 4"),
    ({"parallel.dp": 8, "batch.global": 8, "rollout.tp": 8}, "does not divide", "rollout.tp = 4"),
    ({"async.mode": "diloco", "async.workers": 2, "async.sync_every": 4, "rollout.tp": 1},
     "each worker trains a model of its own", "remove it")], ids=str)
def test_a_rollout_layout_that_is_not_admitted_is_refused(recipe, layout, why, works):
    with pytest.raises(ls.LayoutError, match="rollout") as refused:
        ls.Run(recipe, layout, progress=False)
    assert why in str(refused.value) and works in str(refused.value)
    assert "command line" not in str(refused.value)
    assert refused.value.key in ("rollout.dp", "rollout.pp", "rollout.tp")


def test_the_memory_of_a_rollout_is_planned(recipe):
    planned = [ls.layout(recipe, keys).memory[0]["rollout"]
               for keys in ({"parallel.dp": 2}, {"parallel.dp": 2, "rollout.dp": 2},
                            {"parallel.dp": 2, "parallel.zero": 3, "rollout.dp": 2})]
    assert planned[:2] == [0, 0] and planned[2] > 4 * 12 * 32 * 32
    keys = {"parallel.dp": 2, "parallel.zero": 3}
    keys["memory.device_budget"] = f"{ls.layout(recipe, keys).memory[0]['memory']['all']}B"
    with ls.Run(recipe, keys, progress=False):
        pass
    with pytest.raises(ls.LayoutError, match="memory.device_budget.*rank would take"):
        ls.Run(recipe, {**keys, "rollout.dp": 2}, progress=False)


def test_who_does_not_generate_takes_no_notice_of_rollouts(recipe):
    """Commands, models and other layouts of a run that had some."""
    program = os.environ.get("LOCKSTEP") or str(_where.program())
    keys = {"parallel.dp": 2, "parallel.zero": 3, "rollout.tp": 2, "train.save_every": 2}
    with ls.Run(recipe, keys, progress=False) as run:
        list(run)
        found, out, scored = run.hash(), run.out, run.logprobs([[1, 2, 3]])
    for layout in ({}, {"parallel.tp": 4}):
        with ls.Model(out, layout) as model:
            np.testing.assert_array_equal(model.logprobs([[1, 2, 3]]), scored)
    assert ls.audit(out, {"parallel.dp": 1}, steps=(3, 4)).equal
    assert ls.verify(recipe, keys, layouts=2, ranks=2, steps=1)
    for words in (["eval", out], ["generate", out, "--prompt", "1", "--tokens", "1"],
                  ["train", f"{out}/config.yaml", "train.resume=auto", "parallel.dp=1",
                   "parallel.zero=0"]):
        told = subprocess.run([program, *words], capture_output=True, text=True, check=False,
                              errors="replace")
        assert told.returncode == 0, told.stderr
    assert found in told.stdout
