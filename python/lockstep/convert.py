"""Configurations of other trainers as Lockstep's, with a fate for each of their keys.

    converted = lockstep.convert.deepspeed("ds_config.json", ranks=8)
    converted.save("run.yaml")

A key that changes results and has no counterpart is refused, unless ``allow_loss``.
"""

from __future__ import annotations

import os
import shlex
from collections import Counter
from typing import Any, Dict, List, Mapping, NamedTuple, Optional, Sequence, Union

from . import _arrays, _keys, _lib, _pictures, _tools, errors

__all__ = ["ConvertError", "Converted", "Item", "deepspeed", "megatron", "torchtitan"]

Path = Union[str, "os.PathLike[str]"]


class Item(NamedTuple):
    """What became of one key of theirs.

    ``fate`` is "kept" (as our ``key = value``), "assumed" (it is absent there, and the default there
    is not ours), "dropped" (no effect on results), "auto", "lost" (it changes results, and has no
    counterpart), "unknown" or "advice". ``line`` is 0 if there is none.
    """

    fate: str
    theirs: str
    line: int
    key: str
    value: str
    why: str


class ConvertError(errors.ConfigError):
    """Keys were refused; ``items`` lists all of them, and the text names the first."""

    items: List[Item] = []


class Converted:
    """A configuration: ``yaml``, and ``items``, a list of :class:`Item`."""

    def __init__(self, answer: Dict[str, Any]) -> None:
        self.yaml: str = answer["yaml"]
        self.items: List[Item] = [Item(**item) for item in answer["items"]]

    def save(self, path: Path) -> None:
        """Writes the YAML file that :class:`lockstep.Run` and the program take."""
        _pictures.write(path, self.yaml)

    def table(self) -> _pictures.Table:
        """One line for each of their keys."""
        rows = [[item.theirs, item.fate, f"{item.key} = {item.value}" if item.key else "", item.why]
                for item in self.items]
        return _pictures.Table(["theirs", "fate", "ours", ""], rows)

    def __str__(self) -> str:
        return self.yaml

    def __repr__(self) -> str:
        fates = Counter(item.fate for item in self.items)
        return f"<lockstep.Converted {', '.join(f'{n} {fate}' for fate, n in fates.items())}>"

    def _repr_html_(self) -> str:
        return self.table()._repr_html_()


def _convert(project: str, source: Dict[str, Any], keys: Optional[_keys.Keys], ranks: Optional[int],
             preset: Optional[str], allow_loss: bool) -> Converted:
    options = {"project": project, "keys": _keys.nested(keys or {}), "ranks": ranks,
               "preset": preset, "allow_loss": allow_loss, **source}
    session = _lib.Session()
    try:
        given = {name: value for name, value in options.items() if value is not None}
        return Converted(session.ask("convert", given))
    except errors.ConfigError as error:
        # Its text names one key; the others are here.
        found = [Item(**item) for item in _tools.answer(session).get("items", [])]
        refused = ConvertError(str(error), error.key, error.file, error.line)
        refused.items = [item for item in found if item.fate in ("lost", "unknown")]
        raise refused from None


def deepspeed(config: Union[Path, Mapping[str, Any]], keys: Optional[_keys.Keys] = None, *,
              ranks: Optional[int] = None, preset: Optional[str] = None,
              allow_loss: bool = False) -> Converted:
    """A DeepSpeed configuration: a JSON file, or the dict.

    Args:
        keys: of ours, which win: the model and the data, which are not in such a file.
        ranks: of the whole job, from which DeepSpeed derives its batch.
        preset: our ``model.preset``.
        allow_loss: leaves out what changes results and has no counterpart.

    Raises:
        ConvertError: keys were refused; ``error.items`` lists all of them.
    """
    if isinstance(config, Mapping):
        source = {"text": _lib.json_text("deepspeed", dict(config)).decode()}
    else:
        source = {"file": _keys.path(config)}
    return _convert("deepspeed", source, keys, ranks, preset, allow_loss)


def megatron(arguments: Union[Path, Sequence[str]], keys: Optional[_keys.Keys] = None, *,
             ranks: Optional[int] = None, preset: Optional[str] = None,
             allow_loss: bool = False) -> Converted:
    """Arguments of Megatron-LM's pretrain_gpt.py as a list, or a shell script that calls it.

    The rest is as for :func:`deepspeed`.
    """
    if isinstance(arguments, (str, os.PathLike)):
        source = {"file": _keys.path(arguments)}
    else:
        words = _arrays.listed("arguments", arguments, "arguments")
        source = {"text": " ".join(shlex.quote(str(word)) for word in words)}
    return _convert("megatron", source, keys, ranks, preset, allow_loss)


def torchtitan(config: Path, keys: Optional[_keys.Keys] = None, *, ranks: Optional[int] = None,
               preset: Optional[str] = None, allow_loss: bool = False) -> Converted:
    """A torchtitan configuration, a TOML file. The rest is as for :func:`deepspeed`."""
    return _convert("torchtitan", {"file": _keys.path(config)}, keys, ranks, preset, allow_loss)
