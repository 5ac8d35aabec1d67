"""What people see: pictures, tables, and figures with their units."""

from __future__ import annotations

import html
import os
from typing import List, Sequence, Union

from . import _keys
from .errors import ArgumentError


def seconds(value: float) -> str:
    """"94.2 ms", "1.9 s", "3.2 h", "12 days"."""
    for unit, name in ((86400.0, "days"), (3600.0, "h"), (1.0, "s"), (1e-3, "ms")):
        if value >= (2 if unit > 1 else 1) * unit or name == "ms":
            return f"{value / unit:.3g} {name}"
    return ""


def size(value: float) -> str:
    """"1.2 GiB"."""
    names = ["B", "KiB", "MiB", "GiB", "TiB", "PiB"]
    while value >= 1024 and len(names) > 1:
        value /= 1024
        names.pop(0)
    return f"{value:.4g} {names[0]}"


class Table:
    """Rows under a head: print it, or show it in a notebook. `rows` is a list of lists of texts."""

    def __init__(self, head: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
        self.head: List[str] = list(head)
        self.rows: List[List[str]] = [list(row) for row in rows]

    def __str__(self) -> str:
        lines = [self.head, *self.rows]
        wide = [max(len(line[i]) for line in lines) for i in range(len(self.head))]
        return "\n".join("  ".join(cell.ljust(n) for cell, n in zip(line, wide)).rstrip()
                         for line in lines)

    __repr__ = __str__

    def _repr_html_(self) -> str:
        def row(cells: Sequence[str], tag: str) -> str:
            return "<tr>" + "".join(f"<{tag}>{html.escape(c)}</{tag}>" for c in cells) + "</tr>"

        body = "".join(row(cells, "td") for cells in self.rows)
        return f"<table>{row(self.head, 'th')}{body}</table>"


class Picture:
    """An SVG that the library drew: shown in a notebook, or kept with :meth:`save`."""

    def __init__(self, svg: str) -> None:
        self.svg = svg

    def __repr__(self) -> str:
        return f"Picture({len(self.svg)} characters of SVG)"

    def _repr_svg_(self) -> str:
        return self.svg

    def save(self, path: Union[str, "os.PathLike[str]"]) -> None:
        """Writes the file, an SVG, under another name first."""
        name = _keys.path(path)
        if not name.endswith((".svg", ".SVG")):
            raise ArgumentError(f"{name}: the picture is an SVG: expected a name that ends in .svg")
        write(name, self.svg)


def write(path: Union[str, "os.PathLike[str]"], text: str) -> None:
    """Writes a file whole or not at all."""
    name = _keys.path(path)
    beginning = f"{name}.tmp{os.getpid()}"
    try:
        with open(beginning, "w", encoding="utf-8") as file:
            file.write(text)
        os.replace(beginning, name)
    except BaseException:
        if os.path.exists(beginning):
            os.unlink(beginning)
        raise
