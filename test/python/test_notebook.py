"""The notebooks of examples/ run, cell by cell, and their last lines give what a notebook shows."""

import ast
import json
import sys
import types

import pytest

import lockstep as ls


def run_cell(source, names):
    """Executes a cell; the value of its last line, if that is an expression."""
    tree = ast.parse(source)
    last = tree.body.pop() if tree.body and isinstance(tree.body[-1], ast.Expr) else None
    exec(compile(tree, "cell", "exec"), names)
    return eval(compile(ast.Expression(last.value), "cell", "eval"), names) if last else None


def shown(value):
    for method in ("_repr_html_", "_repr_svg_"):
        if hasattr(value, method):
            return getattr(value, method)()
    return repr(value)


def test_every_cell_of_the_notebook_runs(clone, tmp_path, monkeypatch):
    notebook = json.loads((clone / "examples" / "train.ipynb").read_text(encoding="utf-8"))
    assert all(not cell.get("outputs") for cell in notebook["cells"])  # none is kept in the tree
    monkeypatch.chdir(tmp_path)
    names, values = {}, []
    for cell in notebook["cells"]:
        if cell["cell_type"] == "code":
            values.append(shown(run_cell("".join(cell["source"]), names)))
    assert sum("<svg" in value for value in values) == 1
    assert sum("<table>" in value for value in values) == 1


def test_a_run_has_a_bar_in_a_notebook(recipe, monkeypatch):
    shown = []

    class Handle:
        def update(self, html):
            shown.append(html)

    def display(html, display_id):
        shown.append(("new", display_id, html))
        return Handle()

    class ZMQInteractiveShell:
        pass

    for name, members in (("IPython", {"get_ipython": ZMQInteractiveShell}),
                          ("IPython.display", {"HTML": str, "display": display})):
        module = types.ModuleType(name)
        vars(module).update(members)
        monkeypatch.setitem(sys.modules, name, module)
    with ls.Run(recipe) as run:
        losses = [m.loss for m in run]
    assert shown[0][:2] == ("new", True) and "<progress value=1 max=4>" in shown[0][2]
    assert f"<progress value=4 max=4></progress> step 4/4  loss {losses[-1]:.4f}" in shown[-1]
    assert len(shown) > 1 and all(isinstance(one, str) for one in shown[1:])
    shown.clear()
    with ls.Run(recipe, {"train.steps": 5, "train.resume": "auto"}, progress=False) as run:
        run.step()
    assert not shown


def test_a_cell_that_fails_is_seen():
    with pytest.raises(AssertionError):
        run_cell("x = 1\nassert x == 2", {})
