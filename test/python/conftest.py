"""What tests of the Python package share: a clone's files, a small store, a small recipe."""

import os
import pathlib

import pytest

ALL = os.environ.get("CHECK") == "all"  # test/support/extent.h
# One that nothing has to be measured to choose.
ISA = "avx2" if "avx2" in pathlib.Path("/proc/cpuinfo").read_text() else "plain"
CLONE = pathlib.Path(os.environ["TESTED_CLONE"])


def cases(few, more):
    """Of a parametrized test: `make check` has the first ones, `make check-all` the others too."""
    return [*few, *(more if ALL else [])]


@pytest.fixture
def clone():
    """The folder with clusters/, configs/ and examples/."""
    return CLONE


@pytest.fixture(scope="session")
def corpus(tmp_path_factory):
    """A token store's prefix: CORPUS_train and CORPUS_valid, of bytes."""
    import lockstep.data

    folder = tmp_path_factory.mktemp("corpus")
    text = "".join(f"{i} and {i + 1} are {2 * i + 1}. " for i in range(400))
    (folder / "text.txt").write_text(text)
    lockstep.data.prepare(folder / "text.txt", folder / "sums", validation=0.1)
    return str(folder / "sums")


@pytest.fixture
def recipe(corpus, tmp_path):
    """Keys of a run that takes milliseconds a step, in a folder of its own."""
    return {"model": {"arch": "gpt2", "layers": 2, "channels": 32, "heads": 4, "context": 32},
            "data": {"train": corpus + "_train", "valid": corpus + "_valid", "sequence": 16},
            "batch": {"global": 4}, "optim": {"lr": 1e-3, "decay_steps": 8},
            "numerics": {"arithmetic": "fma", "isa": ISA},  # with AMX too
            "train": {"steps": 4, "out": str(tmp_path / "run")},
            "eval": {"every": 0}, "sample": {"every": 0}}


def pytest_terminal_summary(terminalreporter):
    """Skipped parts as tools/run-tests.py counts them."""
    for report in terminalreporter.stats.get("skipped", []):
        reason = report.longrepr[2] if isinstance(report.longrepr, tuple) else str(report.longrepr)
        terminalreporter.write_line(f"SKIPPED: {report.nodeid}: {reason.removeprefix('Skipped: ')}")
