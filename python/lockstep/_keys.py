"""Keys of a configuration, as a caller gives them and as orders say them."""

from __future__ import annotations

import os
import shlex
from typing import Any, Dict, Iterator, Mapping, Optional, Tuple, Union

from .errors import ArgumentError, ConfigError

Keys = Mapping[str, Any]
Config = Union[str, "os.PathLike[str]", Keys, None]


def path(value: Union[str, "os.PathLike[str]"]) -> str:
    """A path of the caller's; ~ is the home folder, as shells have it."""
    if not isinstance(value, (str, os.PathLike)):
        its = ": its folder is its .out" if hasattr(value, "out") else ""
        raise ArgumentError(f"got {type(value).__name__}: expected a path{its}")
    return os.path.expanduser(os.fspath(value))


def _value(value: Any) -> Any:
    is_path = isinstance(value, os.PathLike) or isinstance(value, str) and value.startswith("~/")
    return path(value) if is_path else value


def _each(keys: Keys, group: str = "") -> Iterator[Tuple[str, Any]]:
    """Whole names and values."""
    for key, value in keys.items():
        if not isinstance(key, str):
            raise ConfigError(f"{group}{key!r}: expected a key such as 'train.steps'")
        if isinstance(value, Mapping):
            yield from _each(value, f"{group}{key}.")
        else:
            yield group + key, _value(value)


def nested(keys: Keys) -> Dict[str, Any]:
    """{"train.steps": 3} as {"train": {"steps": 3}}, as files have it."""
    out: Dict[str, Any] = {}
    for key, value in _each(keys):
        group, _, name = key.partition(".")
        if not name:
            raise ConfigError(f"{key}: expected a key such as 'train.steps', or a group of keys")
        inner = out.setdefault(group, {})
        if name in inner:
            raise ConfigError(f"{key}: given twice, by itself and in a group: expected one of them",
                              key)
        inner[name] = value
    return out


def configured(config: Config, keys: Optional[Keys]) -> Dict[str, Any]:
    """The options `config` and `keys` of an order."""
    order: Dict[str, Any] = {}
    given: Dict[str, Any] = {}
    if isinstance(config, Mapping):
        given.update(nested(config))
    elif isinstance(config, (str, os.PathLike)):
        order["config"] = path(config)
    elif config is not None:
        raise ArgumentError(f"config: got {type(config).__name__}: expected a YAML file, or a dict of "
                            "keys")
    if not isinstance(keys, (Mapping, type(None))):
        raise ArgumentError(f"keys: got {type(keys).__name__}: expected a dict of keys")
    for group, inner in nested(keys or {}).items():
        given.setdefault(group, {}).update(inner)
    if given:
        order["keys"] = given
    return order


def words(text: str) -> Dict[str, Any]:
    """"parallel.tp=2 parallel.pp=4", as the library prints keys, as keys."""
    return nested(dict(word.split("=", 1) for word in shlex.split(text) if "=" in word))
