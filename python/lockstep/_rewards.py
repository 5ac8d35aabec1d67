"""What texts are worth: the caller's reward functions, one or several, of this package's signature or
of TRL's."""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from typing import Any, Callable, Dict, List, Sequence, Tuple

from . import _arrays
from .errors import ArgumentError

Reward = Callable[..., Sequence[float]]


def named(reward: Any) -> List[Tuple[str, Reward]]:
    """One function or several, with what errors call them."""
    if isinstance(reward, (list, tuple)):
        return [(f"reward[{i}]", function) for i, function in enumerate(reward)]
    return [("reward", reward)]


def checked(reward: Any, weights: Any) -> List[float]:
    """What each function weighs in the sum: 1 unless given."""
    functions = named(reward)
    for name, function in functions:
        if not callable(function) or inspect.iscoroutinefunction(function):
            raise ArgumentError(f"{name} is {function!r}: expected a function of prompts and texts, which "
                                "returns numbers")
    if not functions:
        raise ArgumentError("reward is an empty list: expected at least one function")
    if weights is None:
        return [1.0] * len(functions)
    given = _arrays.listed("reward_weights", weights, "numbers")
    if len(given) != len(functions) or not all(_arrays.is_real(one) for one in given):
        raise ArgumentError(f"reward_weights is {weights!r}: expected {len(functions)} finite numbers, "
                            "one a function")
    return [float(one) for one in given]


def call(function: Reward, prompts: List[Any], texts: List[Any], ids: List[List[int]]) -> Any:
    """What it gives. One with a parameter ``completions`` is called as TRL does: by name, with the
    texts of prompts, and with every other key of prompts that are dicts as a list."""
    try:
        wanted = inspect.signature(function).parameters
    except (TypeError, ValueError):  # of C
        wanted = {}  # type: ignore[assignment]
    if "completions" not in wanted:
        return function(prompts, texts)
    rows: List[Mapping[str, Any]] = [one if isinstance(one, Mapping) else {"prompt": one} for one in prompts]
    given: Dict[str, Any] = {name: [row.get(name) for row in rows]
                             for name in dict.fromkeys(name for row in rows for name in row)}
    given.update(prompts=given.pop("prompt"), completions=texts, completion_ids=ids)
    if not any(one.kind is one.VAR_KEYWORD for one in wanted.values()):
        given = {name: value for name, value in given.items() if name in wanted}
    return function(**given)
