"""What the tools share: orders that need no ranks."""

from __future__ import annotations

import json
from typing import Any, Callable, Dict, Optional

from . import _lib

Event = Dict[str, Any]


def ask(verb: str, options: Dict[str, Any],
        on_event: Optional[Callable[[Event], None]] = None) -> Dict[str, Any]:
    """The answer of a verb that needs no ranks, in a session of its own."""
    session = _lib.Session()
    session.on_event = on_event
    return session.ask(verb, {name: value for name, value in options.items() if value is not None})


def answer(session: _lib.Session) -> Dict[str, Any]:
    """The answer of the last order, also if that failed."""
    found: Dict[str, Any] = json.loads(_lib.library().ls_session_answer(session._handle) or b"{}")
    return found
