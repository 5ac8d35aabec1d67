"""The package itself: what importing costs, that all public names are documented and typed."""

import ctypes
import importlib.util
import inspect
import json
import os
import pathlib
import re
import shutil
import subprocess
import sys
import threading

import pytest

import lockstep
from lockstep import _lib, _where, data
from conftest import ALL

PACKAGE = pathlib.Path(lockstep.__file__).parent
# typing, ctypes and json with what they need, and the package.
MODULES_MAX = 90


def python(script, **environment):
    return subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True,
                          env=dict(os.environ, **environment)).stdout


def test_importing_loads_no_library_and_no_numpy():
    begun = json.loads(python("import json, sys; print(json.dumps(sorted(sys.modules)))"))
    script = ("import json, sys; import lockstep; {}; maps = open('/proc/self/maps').read(); "
              "print(json.dumps([sorted(sys.modules), 'liblockstep' in maps]))")
    modules, loaded = json.loads(python(script.format("pass")))
    assert not loaded and len(set(modules) - set(begun)) < 30
    modules, loaded = json.loads(python(script.format("lockstep.plan; lockstep.data")))
    assert not loaded and len(set(modules) - set(begun)) < MODULES_MAX
    assert not {"numpy", "torch", "asyncio", "multiprocessing"} & set(modules)
    # The other way round: what the test looks at is seen.
    assert json.loads(python(script.format("lockstep.__version__")))[1]


def members(header, name):
    """The names of a struct's members, as a header of the library has them."""
    text = re.sub(r"/\*.*?\*/", "", header.read_text(), flags=re.DOTALL)
    body = re.search(rf"struct {name} {{((?:[^{{}}]|{{[^{{}}]*}})*)}}", text).group(1)
    declared = re.sub(r"{[^{}]*}", "", body).split(";")[:-1]
    return [re.search(r"(\w+)\W*(\[\w+\])?$", one).group(1) for line in declared for one in line.split(",")]


# In C the library writes all of a struct: one that is shorter here is written beyond its end.
@pytest.mark.parametrize("mirror, header, name", [
    (_lib.Error, "base.h", "ls_error"), (_lib.Array, "session.h", "ls_array"),
    (_lib.Report, "session.h", "ls_session_report"), (data._TokenFile, "data.h", "ls_token_file"),
    (data._SampleOrder, "data.h", "ls_sample_order"), (data._EncodeOptions, "data.h", "ls_encode_options"),
    (data._TokenList, "data.h", "ls_token_list"), (data._Text, "data.h", "ls_text"),
    (data._ChatText, "chat.h", "ls_chat_text")])
def test_structs_have_the_members_of_the_headers(clone, mirror, header, name):
    there = members(clone / "include" / "lockstep" / header, name)
    assert [member for member, _ in mirror._fields_] == there


def test_the_cause_of_a_rank_that_was_given_up_is_the_headers(clone):
    text = (clone / "include" / "lockstep" / "base.h").read_text()
    causes = re.findall(r"LS_CAUSE_\w+(?=,)", text[text.index("enum ls_error_cause {"):].partition("};")[0])
    assert causes[_lib.GIVEN_UP] == "LS_CAUSE_GIVEN_UP" and causes[0] == "LS_CAUSE_OTHER"


def public():
    """(name, object) of all that is public, members of classes too."""
    for name in lockstep.__all__:
        thing = getattr(lockstep, name)
        yield f"lockstep.{name}", thing
        owners = [(name, thing)] if inspect.isclass(thing) else []
        if inspect.ismodule(thing):
            for inner in getattr(thing, "__all__", []):
                owners.append((f"{name}.{inner}", getattr(thing, inner)))
                yield f"lockstep.{name}.{inner}", getattr(thing, inner)
        for owner, cls in owners:
            for member, value in vars(cls).items() if inspect.isclass(cls) else ():
                if not member.startswith("_") and (callable(value) or isinstance(value, property)):
                    yield f"lockstep.{owner}.{member}", value


def test_every_public_name_is_there_and_documented():
    named = list(public())
    assert len(named) > 60
    without = [name for name, thing in named if name != "lockstep.__version__"
               and not (inspect.getdoc(thing) or "").strip()]
    assert not without


def test_every_public_function_is_annotated():
    bare = []
    for name, thing in public():
        if inspect.isfunction(thing):
            signature = inspect.signature(thing)
            named = [p for p in signature.parameters.values() if p.name not in ("self", "cls")]
            if signature.return_annotation is inspect.Signature.empty or any(
                    p.annotation is inspect.Parameter.empty for p in named):
                bare.append(name)
    assert not bare
    assert (PACKAGE / "py.typed").exists()


def test_what_type_checkers_read_is_what_is_there():
    """The names of `if TYPE_CHECKING`, which nothing runs, are those that are loaded."""
    text = (PACKAGE / "__init__.py").read_text()
    static = text[text.index("if TYPE_CHECKING"):text.index("def __getattr__")]
    for name in lockstep.__all__:
        assert f"{name} as {name}" in static or f"{name}:" in static, name
    with pytest.raises(AttributeError, match="no attribute 'Rum'"):
        lockstep.Rum
    assert dir(lockstep) == sorted(lockstep.__all__)


def mypy(tmp_path, *checked):
    if not ALL:
        return None  # it takes seconds: `make check-all`
    if not shutil.which("mypy"):
        pytest.skip("mypy is not installed")
    return subprocess.run(["mypy", "--strict", "--cache-dir", str(tmp_path / "cache"),
                           "--python-version", "3.9", *map(str, checked)],
                          capture_output=True, text=True, check=False,
                          env={**clean(), "MYPYPATH": str(PACKAGE.parent)})


def test_mypy_finds_nothing(tmp_path):
    done = mypy(tmp_path, PACKAGE)
    assert done is None or done.returncode == 0, done.stdout


def test_mypy_knows_what_a_program_holds(tmp_path):
    """In `with` too: the wrong lines are found, and no other."""
    program = tmp_path / "program.py"
    program.write_text("import lockstep as ls\n"
                       "with ls.Run({'train.steps': 1}) as run:\n"
                       "    right: float = run.step().loss\n"
                       "    wrong: int = run.hash()\n"
                       "with ls.Model('out') as model:\n"
                       "    model.step()\n")
    done = mypy(tmp_path, program)
    assert done is None or [line.split(":")[1] for line in done.stdout.splitlines()
                            if "error" in line and "Found" not in line] == ["4", "6"], done.stdout


def clean():
    """mypy takes PYTHONPATH for packages that are installed, which it does not check."""
    return {name: value for name, value in os.environ.items()
            if name not in ("PYTHONPATH", "LD_PRELOAD")}


def test_other_threads_run_while_a_call_lasts(tmp_path):
    """The library waits in a call for what another thread of Python writes; and no function of it
    keeps the interpreter's lock, as those of ctypes.pythonapi do."""
    pipe, text = tmp_path / "pipe", "one and two. " * 99
    os.mkfifo(pipe)
    writer = threading.Thread(target=pipe.write_text, args=(text,))
    writer.start()
    wrote = lockstep.data.prepare(pipe, tmp_path / "read", validation=0)
    writer.join()
    assert wrote.train.tokens == len(text) + 1
    called = [function for function in vars(_lib.library()).values()
              if isinstance(function, ctypes._CFuncPtr)]
    assert len(called) > 10
    keeps = ctypes.pythonapi.PyErr_CheckSignals._flags_ ^ called[0]._flags_
    assert keeps and not any(function._flags_ & keeps for function in called)


def test_a_library_that_is_not_there_says_where_it_was_looked_for():
    script = ("import lockstep\n"
              "try: lockstep.__version__\n"
              "except ImportError as error: print(error)")
    told = python(script, LOCKSTEP_LIBRARY="/nowhere/liblockstep.so.0")
    assert "/nowhere/liblockstep.so.0" in told


@pytest.mark.skipif(not importlib.util.find_spec("_xxsubinterpreters"), reason="of Python 3.8 to 3.12")
def test_a_subinterpreter_has_runs_of_its_own(recipe):
    """One is closed, one is left open when its interpreter ends; the main one has its own then. A
    capsule, whose callbacks would deadlock there before Python 3.12, is refused."""
    old = sys.version_info < (3, 12)  # an isolated one of 3.12 loads no ctypes
    inner = ("import json, sys\n"
             f"sys.path[:0] = {sys.path!r}\n"
             "import lockstep as ls\n"
             f"run = ls.Run(json.loads({json.dumps(recipe)!r}), progress=False)\n"
             "print(run.hash())\n"
             "try:\n"
             "    run.params['h.0.attn.q.weight'].__dlpack__()\n"
             "except ls.NotSupportedError as error:\n"
             "    print(error)\n"
             "from lockstep import _lib\n"
             "with _lib.uninterrupted() as heard:\n"
             "    assert heard == []\n")
    script = ("import _xxsubinterpreters as inner, json\n"
              "for end in ('run.close()', ''):\n"
              f"    one = inner.create(isolated={old})\n"
              f"    inner.run_string(one, {inner!r} + end)\n"
              "    inner.destroy(one)\n"
              "import lockstep as ls\n"
              f"with ls.Run(json.loads({json.dumps(recipe)!r}), progress=False) as run:\n"
              "    print(run.hash())\n")
    told = python(script).splitlines()
    refused = [line for line in told if line.startswith("DLPack in a subinterpreter: expected Python 3.12")]
    hashes = [line for line in told if line not in refused]
    assert len(hashes) == 3 and len(set(hashes)) == 1 and len(refused) == 2 * old


@pytest.mark.parametrize("names", [
    {}, {"OMPI_COMM_WORLD_SIZE": "2"}, {"OMPI_COMM_WORLD_RANK": "0"}, {"PMI_RANK": "0"}, {"PMIX_RANK": "0"},
    {"PMI_SIZE": "1"}, {"PMI_SIZE": "0"}, {"PMI_SIZE": ""}, {"SLURM_PROCID": "0"},
    {"SLURM_PROCID": "0", "SLURM_STEP_NUM_TASKS": "1"}, {"SLURM_PROCID": "0", "SLURM_STEP_NUM_TASKS": "2"}])
def test_a_launcher_is_known_by_what_the_library_knows_it_by(monkeypatch, names):
    for name in [n for n in os.environ if n.startswith(_where.LAUNCHERS)]:
        monkeypatch.delenv(name)
    for name, value in names.items():
        monkeypatch.setenv(name, value)
    assert _lib._launched() == bool(_lib.library().ls_mpi_launched() & 1)


def test_modules_are_imported_in_any_order():
    names = [path.stem for path in PACKAGE.glob("*.py") if path.stem not in ("__main__", "__init__")]
    assert len(names) > 8
    python("import sys\n"
           f"for first in {names!r}:\n"
           "    for name in [n for n in sys.modules if n.partition('.')[0] == 'lockstep']:\n"
           "        del sys.modules[name]\n"
           "    __import__('lockstep.' + first)\n")
    assert importlib.import_module("lockstep.data") is lockstep.data
