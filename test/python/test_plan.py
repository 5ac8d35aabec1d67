"""Plans, layouts and comparisons: what the tools say is what the program says."""

import json
import os
import subprocess

import pytest

import lockstep as ls
from lockstep import _where

CLUSTER = "clusters/h100-2048.yaml"
SMALL = {"model": {"preset": "gpt2-124m"}, "batch": {"global": 64}, "data": {"sequence": 1024}}


@pytest.fixture
def program():
    return os.environ.get("LOCKSTEP") or str(_where.program())


@pytest.fixture(scope="module")
def plan():
    clone = os.environ["TESTED_CLONE"]
    return ls.plan(SMALL, cluster=f"{clone}/{CLUSTER}", accelerators=8, top=3, seconds=float("inf"))


def test_the_best_is_the_first_and_its_forecast_is_whole(plan):
    assert plan.best == plan.candidates[0] and len(plan.candidates) == 3
    assert plan.best.step_s == min(c.step_s for c in plan.candidates) > 0
    assert plan.best.reason == "" and "slower" in plan.candidates[1].reason
    assert plan.best.accelerators == 8 and plan.best.forecast["fits"]
    tokens = SMALL["batch"]["global"] * SMALL["data"]["sequence"]
    assert plan.best.tokens_per_s == pytest.approx(tokens / plan.best.step_s, rel=1e-9)
    assert plan.proven and plan.considered > plan.simulated > 0


def test_a_table_has_a_line_for_each(plan):
    lines = str(plan.table()).splitlines()
    assert len(lines) == 4 and plan.best.keys in lines[1]
    assert plan._repr_html_().count("<tr>") == 4
    assert plan.best.keys in repr(plan)


def test_the_picture_is_an_svg(plan, tmp_path):
    picture = plan.plot()
    assert picture.svg.startswith("<svg") and "rank 0" in picture.svg
    picture.save(tmp_path / "step.svg")
    assert (tmp_path / "step.svg").read_text() == picture._repr_svg_()
    assert [path.name for path in tmp_path.iterdir()] == ["step.svg"]


def test_the_saved_plan_has_the_layout(plan, tmp_path):
    plan.save(tmp_path / "best.yaml")
    layout = ls.layout(tmp_path / "best.yaml")
    assert layout.ranks == 8
    again = ls.plan(tmp_path / "best.yaml", cluster=f"{os.environ['TESTED_CLONE']}/{CLUSTER}",
                    layout=True)
    assert again.best.step_s == pytest.approx(plan.best.step_s, rel=1e-6)


def test_keys_that_are_given_stay(clone):
    plan = ls.plan(SMALL, {"parallel.tp": 4}, cluster=clone / CLUSTER, accelerators=8, top=2,
                   seconds=float("inf"))
    assert all("parallel.tp=4" in c.keys for c in plan.candidates)
    assert plan.best.config["parallel"]["tp"] == "4"


def test_a_forecast_is_the_programs(program, clone, tmp_path):
    (tmp_path / "c.yaml").write_text(json.dumps({**SMALL, "parallel": {"dp": 8, "zero": 1}}))
    there = subprocess.run([program, "plan", str(tmp_path / "c.yaml"), "--layout", "--json",
                            "--cluster", str(clone / CLUSTER)], capture_output=True, check=True)
    here = ls.plan(tmp_path / "c.yaml", cluster=clone / CLUSTER, layout=True).best.forecast
    for name, value in json.loads(there.stdout).items():
        if name in here:
            assert here[name] == value, name


def test_what_does_not_fit_is_an_error(clone):
    for keys, error, text in ((dict(SMALL, goal=1), ls.ConfigError, "goal"),
                              ({"model": {"preset": "llama-8b"}}, ls.LayoutError, "")):
        with pytest.raises(error, match=text):
            ls.plan(keys, {"memory.device_budget": "1GiB"}, cluster=clone / CLUSTER,
                    accelerators=1, seconds=float("inf"))
    with pytest.raises(ls.ArgumentError, match="goal: expected"):
        ls.plan(SMALL, cluster=clone / CLUSTER, goal="speed")
    with pytest.raises(ls.ArgumentError, match="seconds: got 0: expected more than 0"):
        ls.plan(SMALL, cluster=clone / CLUSTER, seconds=0)
    for days in (0, float("nan")):
        with pytest.raises(ls.ArgumentError, match="within_days: got .*: expected more than 0"):
            ls.plan(SMALL, cluster=clone / CLUSTER, within_days=days)
    with pytest.raises(ls.LayoutError, match="no layout that fits ends the training within"):
        ls.plan(SMALL, cluster=clone / CLUSTER, accelerators=8, tokens=1e15, within_days=1,
                seconds=float("inf"))
    with pytest.raises(ls.LockstepError, match="nowhere.yaml"):
        ls.plan(SMALL, cluster="nowhere.yaml")


def test_a_layout_says_who_is_where(recipe):
    layout = ls.layout(recipe, {"parallel.pp": 2, "parallel.dp": 2, "parallel.tp": 2}, check=True)
    assert layout.ranks == 8 and list(layout.axes) == ["pp", "dp_replicate", "dp_shard", "cp", "tp"]
    at = [tuple(layout.coordinates(rank).values()) for rank in range(8)]
    assert sorted(at) == at and len(set(at)) == 8
    tp = next(group for group in layout.groups if group.name == "tp")
    assert tp.members == [rank for rank in range(8) if at[rank][:4] == at[0][:4]]
    assert [stage.pp for stage in layout.stages] == [0, 1]
    assert layout.stages[0].first == 0 and layout.stages[1].last == 3  # the head
    assert sum(stage.share for stage in layout.stages) == pytest.approx(1)
    assert layout.proof["ranks"] == 8 and layout.proof["messages"] > 0
    with pytest.raises(IndexError):
        layout.coordinates(8)


def test_memory_of_a_layout_is_the_programs(program, recipe, tmp_path):
    (tmp_path / "c.yaml").write_text(json.dumps(recipe))
    there = json.loads(subprocess.run([program, "plan", "memory", str(tmp_path / "c.yaml"), "--json"],
                                      capture_output=True, check=True).stdout)
    here = ls.layout(tmp_path / "c.yaml")
    # A step of Python waits for its checkpoint: there is no copy.
    copies = {"train.save_every": 1, "checkpoint.async": True}
    assert ls.layout(tmp_path / "c.yaml", copies).here["bytes"] == here.here["bytes"]
    assert here.memory[0]["memory"] == there["kinds"][0]["allocated"] | {
        "all": there["kinds"][0]["allocated"]["all"]}
    assert here.memory[0]["peak"] == there["kinds"][0]["peak"]["in_use"]
    assert here.plot().svg.startswith("<svg") and here.plot("schedule").svg.startswith("<svg")
    with pytest.raises(ValueError, match="expected"):
        here.plot("time")
    assert "parameters" in str(here.table()) and "<table>" in here._repr_html_()


def test_a_refused_layout_names_the_nearest(recipe):
    with pytest.raises(ls.LayoutError, match="parallel.tp = 3: .*nearest that works") as caught:
        ls.layout(recipe, {"parallel.tp": 3})
    assert caught.value.key == "parallel.tp"
    with pytest.raises(ls.ConfigError, match="did you mean optim.lr"):
        ls.layout(recipe, {"optim.lrr": 1})
    with pytest.raises(ls.ConfigError, match="expected a key such as"):
        ls.layout(recipe, {"steps": 1})


def test_layouts_of_a_recipe_have_one_hash(recipe):
    told = []
    found = ls.verify(recipe, {"numerics.isa": "auto"}, layouts=3, ranks=2, steps=1,
                      on_layout=told.append)
    assert found and len(found.layouts) == 3 == len(told) and found.layouts == told
    assert all(v.result == "equal" and v.ranks == 2 for v in told)
    assert len(found.hash) == 32 and found.hash in repr(found)
    assert found._repr_html_().count("equal") == 3
    with pytest.raises(ls.ConfigError, match="ordered"):
        ls.verify(recipe, {"numerics.mode": "fast"})


def test_deepspeed_is_converted():
    config = {"train_batch_size": 16, "zero_optimization": {"stage": 2}, "bf16": {"enabled": True}}
    converted = ls.convert.deepspeed(config, {"model.preset": "gpt2-124m"}, ranks=4)
    assert "zero: 2" in converted.yaml and str(converted) == converted.yaml
    kept = {item.theirs: (item.key, item.value) for item in converted.items if item.fate == "kept"}
    assert kept["bf16.enabled"] == ("numerics.precision", "bf16")
    with pytest.raises(ls.convert.ConvertError, match="foo") as caught:
        ls.convert.deepspeed({**config, "foo": 1, "bar": 2}, ranks=4)
    assert [item.theirs for item in caught.value.items] == ["foo", "bar"]
    assert "or give --allow-loss (in Python: allow_loss=True)" in str(caught.value)
    assert repr(converted).startswith("<lockstep.Converted ") and " kept" in repr(converted)
    dropped = ls.convert.deepspeed({**config, "foo": 1}, ranks=4, allow_loss=True)
    assert [item.theirs for item in dropped.items if item.fate == "unknown"] == ["foo"]


@pytest.mark.parametrize("call, text", [
    (lambda: ls.convert.deepspeed({"a": {"b": object()}}), "deepspeed: .* is of type object"),
    (lambda: ls.convert.deepspeed({"a": [1, float("nan")]}), r"deepspeed: a\[1\]: nan: expected a finite number"),
    (lambda: ls.convert.megatron(5), "arguments: got int: expected a list of arguments"),
    (lambda: ls.data.prepare(5, "out"), "inputs: got int: expected a list of files")],
    ids=["object", "nan", "arguments", "inputs"])
def test_what_is_no_configuration_is_named(call, text):
    with pytest.raises(ls.ArgumentError, match=text):
        call()


def test_megatron_and_torchtitan_are_converted(tmp_path):
    arguments = ["--num-layers", 2, "--hidden-size", "64", "--num-attention-heads", "4",
                 "--seq-length", "32", "--max-position-embeddings", "32", "--micro-batch-size", "1",
                 "--global-batch-size", "8", "--lr", "1e-4", "--train-iters", "10",
                 "--tensor-model-parallel-size", "2"]
    converted = ls.convert.megatron(arguments, ranks=4, allow_loss=True)
    assert "tp: 2" in converted.yaml and "layers: 2" in converted.yaml
    converted.save(tmp_path / "run.yaml")
    assert (tmp_path / "run.yaml").read_text() == converted.yaml
    (tmp_path / "t.toml").write_text('[training]\nsteps = 7\nseq_len = 64\n')
    assert "steps: 7" in ls.convert.torchtitan(tmp_path / "t.toml", ranks=1, allow_loss=True).yaml
    assert "<table>" in converted._repr_html_()
