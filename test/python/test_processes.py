"""Runs whose ranks are processes of MPI: the same bits; what one process does, the others hear."""

import json
import os
import shutil
import subprocess
import sys

import numpy as np
import pytest

import lockstep as ls

OWN_FILES = """
import os, sys
for number in (1, 2):  # one file would have parts of lines of both processes
    os.dup2(os.open(f"{sys.argv[2]}/{os.environ['OMPI_COMM_WORLD_RANK']}.{number}",
                    os.O_CREAT | os.O_WRONLY, 0o600), number)
"""


def two_processes(script, recipe, folder):
    """What `mpirun -n 2` of it, of the recipe and a folder, came to, and what each rank printed."""
    if not shutil.which("mpirun"):
        pytest.skip("there is no mpirun")
    environment = dict(os.environ, OMPI_ALLOW_RUN_AS_ROOT="1", OMPI_ALLOW_RUN_AS_ROOT_CONFIRM="1",
                       OMPI_MCA_rmaps_base_oversubscribe="1", OMPI_MCA_btl="self,vader")
    folder.mkdir()
    done = subprocess.run(["mpirun", "-n", "2", sys.executable, "-c", OWN_FILES + script,
                           json.dumps(recipe), str(folder)],
                          capture_output=True, text=True, check=False, env=environment)
    files = [folder / f"{rank}.{number}" for rank in (0, 1) for number in (1, 2)]
    assert all(file.exists() for file in files), done.stderr
    out, told, other_out, other_told = [file.read_text() for file in files]
    if "has no MPI" in told:
        pytest.skip("this build has no MPI")
    return done.returncode, (out, other_out), (told, other_told)


@pytest.mark.parametrize("begin, end, why", [
    ("with run:\n", "raise ValueError('mine')", "ValueError: mine"),
    ("if True:\n", "sys.exit(3)", "its program ended, and did not close its run")],
    ids=["raised", "exit"])
def test_a_process_that_leaves_is_told_to_the_others(recipe, tmp_path, begin, end, why):
    """mpirun ends a job once one process has failed: each stays until the other has told why."""
    os.mkfifo(tmp_path / "over")
    recipe["train"].update(out=str(tmp_path / "mpi"), steps=100, save_every=1)
    script = ("import atexit, json\n"
              "atexit.register(lambda: open(sys.argv[2] + '/../over', 'wr'[run.rank]).close())\n"
              "import lockstep as ls  # what it does at the end comes before\n"
              "run = ls.Run(json.loads(sys.argv[1]), {'parallel.dp': 2, 'comm.timeout_s': 0})\n"
              f"{begin}"
              "    for m in run:\n"
              f"        if m.step == 3 and run.rank == 1: {end}\n")
    status, _, told = two_processes(script, recipe, tmp_path / "printed")
    assert status != 0
    assert "CommError: " in told[0] and f"rank 1 of the job has left: {why}" in told[0]
    with ls.Run(recipe, {"train.resume": "auto", "train.steps": 5}, progress=False) as run:
        assert run.step_count == 3  # a checkpoint is whole
        run.step()


def test_processes_of_mpi_have_the_same_bits(recipe, tmp_path):
    """Of a run in a layout, and of one whose rollouts have a layout of their own. A process has its
    own rows of a tensor, and all get the whole."""
    script = ("import lockstep as ls, json\n"
              "with ls.Run(json.loads(sys.argv[1]), {'parallel.tp': 2}, progress=False) as run:\n"
              "    losses = [m.loss for m in run]\n"
              "    tensor = run.params['h.0.attn.q.weight']\n"
              "    weights, own = tensor.numpy(), tensor.local()\n"
              "    assert tensor.placement.startswith('Shard(0) on tp') and own.shape == (16, 32)\n"
              "    assert (own == weights[16 * run.rank:][:16]).all() and (weights[:16] != weights[16:]).all()\n"
              "    assert (tensor.full() == weights).all()\n"
              "    told = [losses, run.hash(), list(weights.shape)]\n"
              "    tensors = run.state_dict()\n"
              "    run.load_state_dict({name: 2 * one for name, one in tensors.items()})\n"
              "    print(json.dumps(told + [run.hash()]))\n"
              "layout = {'parallel.dp': 2, 'parallel.zero': 3, 'rollout.tp': 2,\n"
              "          'train.out': sys.argv[2] + '/rollouts'}\n"
              "with ls.Run(json.loads(sys.argv[1]), layout, progress=False) as run:\n"
              "    told = []\n"
              "    for m in run:\n"
              "        ids, logp = run.generate(['1 and', '7'], n=2, max_tokens=6, seed=m.step)\n"
              "        told += [ids.tolist(), logp.tolist(), run.logprobs(ids).tolist()]\n"
              "    print(json.dumps(told + [run.hash()]))\n")
    mpi = {**recipe, "train": {**recipe["train"], "out": str(tmp_path / "mpi")}}
    status, out, told = two_processes(script, mpi, tmp_path / "printed")
    assert status == 0, told
    found, losses = [], []
    with ls.Run(recipe, progress=False) as run:
        for m in run:
            losses.append(m.loss)
            ids, logp = run.generate(["1 and", "7"], n=2, max_tokens=6, seed=m.step)
            found += [ids.tolist(), logp.tolist(), run.logprobs(ids).tolist()]
        hash_ = run.hash()
        run.load_state_dict({name: 2 * one for name, one in run.state_dict().items()})
        expected = [[losses, hash_, [32, 32], run.hash()], [*found, hash_]]
    assert [[json.loads(line) for line in text.splitlines()] for text in out] == [expected] * 2


def test_what_one_process_refuses_all_refuse(recipe, tmp_path):
    """Whoever catches the error goes on with the others: no rank waits for one that has refused."""
    script = ("import lockstep as ls, json, numpy as np\n"
              "told, good = [], np.arange(68).reshape(4, 17)\n"
              "for bad in range(2):\n"
              "    odd = {'rollout.tp': 3} if os.environ['OMPI_COMM_WORLD_RANK'] == str(bad) else {}\n"
              "    try: ls.Run(json.loads(sys.argv[1]), {'parallel.dp': 2, 'comm.timeout_s': 0, **odd})\n"
              "    except ls.LayoutError as error: told.append(str(error).replace(f'rank {bad}: ', ''))\n"
              "with ls.Run(json.loads(sys.argv[1]), {'parallel.dp': 2, 'comm.timeout_s': 0},\n"
              "            progress=False) as run:\n"
              "    weight = run.params['h.0.attn.q.weight']\n"
              "    tensors = run.state_dict()\n"
              "    def drawn(call, wrong, right):\n"
              "        for bad in range(2):\n"
              "            try: call(wrong if run.rank == bad else right)\n"
              "            except ls.ArgumentError as error: told.append(str(error).replace(f'rank {bad}: ', ''))\n"
              "    drawn(run.step, good + 300, good)\n"
              "    drawn(run.step, good[0], good)\n"
              "    drawn(lambda x: run.step(good, weights=x), np.full((4, 17), np.inf), np.ones((4, 17)))\n"
              "    drawn(lambda x: run.backward(good, x), good[:1], good * .1)\n"
              "    drawn(lambda x: run._session.ask('step', {'sum': x}, run._batch(good, None, None)),\n"
              "          5, True)  # refused by the library\n"
              "    drawn(run.logprobs, [[1, -2]], [[1, 2]])\n"
              "    drawn(lambda x: run.generate('1', max_tokens=2, temperature=x), np.nan, 1)\n"
              "    drawn(lambda x: run.generate('1', max_tokens=2, ends=x), 5, [5])\n"
              "    drawn(lambda x: run.write('1', max_tokens=2, stop=x), 5, 'a')\n"
              "    drawn(run.score, 'a', [{'text': '1 and 2'}])\n"
              "    drawn(run.encode, 5, '5'), drawn(run.decode, 'a', [5])\n"
              "    drawn(weight.set, weight.full()[1:], weight.full())\n"
              "    drawn(run.load_state_dict, {}, tensors)\n"
              "    drawn(run.load_state_dict, 5, tensors)\n"
              "    drawn(run.load, 5, run.out)\n"
              "    drawn(lambda x: run.save_pretrained(sys.argv[2] + '/model', dtype=x), 'f', 'fp32')\n"
              "    drawn(lambda x: x(), run.hash, run.evaluate)  # different calls\n"
              "    drawn(lambda x: x(), run.close, run.hash)  # it stays open\n"
              "    drawn(lambda x: run.generate(x, max_tokens=2), '1', '2')\n"
              "    drawn(run.logprobs, [[1, 2]], [[1, 3]])\n"
              "    assert run.decode(run.encode(str(run.rank))) == str(run.rank)  # each its own\n"
              "    def broken(call, name, ranks, why=OSError('no space'), told=told):\n"
              "        def fails(*_): raise why  # files of this process, not what it was given\n"
              "        for bad in ranks:\n"
              "            whole = getattr(ls.training._safetensors, name)\n"
              "            if run.rank == bad: setattr(ls.training._safetensors, name, fails)\n"
              "            try: call()\n"
              "            except (OSError, ls.ArgumentError) as error:\n"
              "                told.append(str(error).replace(f'rank {bad}: ', ''))\n"
              "            setattr(ls.training._safetensors, name, whole)\n"
              "    broken(run.state_dict, 'read_folder', (0, 1))\n"
              "    broken(lambda: run.load_state_dict(tensors), 'write', (0, 0))\n"
              "    apart, none = [], FileNotFoundError(2, 'none')  # on another host\n"
              "    broken(run.state_dict, 'read_folder', (1,), none, apart)\n"
              "    broken(lambda: run.load_state_dict(tensors), 'read_folder', (1,), none, apart)\n"
              "    print(json.dumps([told, run.step_count, run.step(good).loss, run.hash(), apart]))\n")
    status, out, told = two_processes(script, recipe, tmp_path / "printed")
    assert status == 0, told
    assert out[0] == out[1]
    refused, step, loss, hash_, apart = json.loads(out[0])
    assert [text.endswith("that all hosts share: set TMPDIR of rank 0 to one") for text in apart] == [True] * 2
    assert refused[::2] == refused[1::2] and len(refused) == 48 and step == 0
    with ls.Run(recipe, {"train.out": str(tmp_path / "one")}, progress=False) as run:
        assert (run.step(np.arange(68).reshape(4, 17)).loss, run.hash()) == (loss, hash_)


def test_an_interrupt_of_one_process_ends_the_order_of_all(recipe, tmp_path):
    """Rank 0 takes the order once Ctrl-C was heard in rank 1, which cannot end it alone. It reads to
    the end, so that the next time it does not find the writer of this time."""
    os.mkfifo(tmp_path / "heard")
    script = ("import lockstep as ls, json, numpy as np\n"
              "from lockstep import _lib\n"
              "library, told = _lib.library(), []\n"
              "wait, interrupt = library.ls_session_wait, library.ls_session_interrupt\n"
              "def interrupted(*arguments):\n"
              "    library.ls_session_wait = wait\n"
              "    raise KeyboardInterrupt\n"
              "def heard(*arguments):\n"
              "    interrupt(*arguments)\n"
              "    open(sys.argv[2] + '/../heard', 'w').close()\n"
              "library.ls_session_interrupt = heard\n"
              "with ls.Run(json.loads(sys.argv[1]), {'parallel.tp': 2}, progress=False) as run:\n"
              "    before = run.hash()\n"
              "    for call in (lambda: run.generate('1 and', n=2000, max_tokens=20),\n"
              "                 lambda: run.logprobs(np.ones((4000, 16), int)), run.evaluate,\n"
              "                 lambda: run.score([{'text': '1 and 2'}] * 200)):\n"
              "        if run.rank == 1:\n"
              "            library.ls_session_wait = interrupted\n"
              "        else:\n"
              "            open(sys.argv[2] + '/../heard').read()\n"
              "        try: call()\n"
              "        except KeyboardInterrupt as error:\n"
              "            told.append(str(error.__cause__ or error))\n"
              "    print(json.dumps([told, run.hash() == before]))\n")
    status, out, told = two_processes(script, recipe, tmp_path / "printed")
    assert status == 0, told
    for ended, same in map(json.loads, out):
        assert same and len(ended) == 4
        assert {one.replace("rank 1: ", "") for one in ended} == {"interrupted: nothing is given back"}
