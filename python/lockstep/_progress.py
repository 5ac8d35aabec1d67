"""What a person who waits sees: a live line on a terminal, a bar in a notebook."""

from __future__ import annotations

import sys
import time
from typing import Any, Dict, Optional


class _Silent:
    def step(self, step: Any, steps: int) -> None:
        """Nothing is shown."""

    def event(self, event: Dict[str, Any]) -> None:
        """Warnings are shown where nobody listens."""
        if event["event"] == "log" and event["level"] in ("warning", "error"):
            print(f"lockstep: {event['level']}: {event['text']}", file=sys.stderr)


class _Line(_Silent):
    def __init__(self) -> None:
        self.shown = 0.0

    def text(self, step: Any, steps: int) -> str:
        weight = "" if step.weight is None else f" over a weight of {step.weight:.6g}"
        return (f"step {step.step}/{steps}  loss {step.loss:.4f}{weight}  "
                f"{step.tokens_per_s:.0f} tokens/s")

    def step(self, step: Any, steps: int) -> None:
        now = time.monotonic()
        last = step.step == steps
        if now - self.shown >= 0.1 or last:
            self.shown = now
            self.write(self.text(step, steps), last)

    def write(self, text: str, last: bool) -> None:
        sys.stderr.write(f"\r{text}\033[K" + ("\n" if last else ""))
        sys.stderr.flush()


class _Bar(_Line):
    """IPython's display, updated in place."""

    def __init__(self, display: Any, html: Any) -> None:
        super().__init__()
        self.display, self.html, self.handle = display, html, None

    def step(self, step: Any, steps: int) -> None:
        self.now = (step.step, steps)
        super().step(step, steps)

    def write(self, text: str, last: bool) -> None:
        done, steps = self.now
        shown = self.html(f"<progress value={done} max={max(steps, 1)}></progress> {text}")
        if self.handle is None:
            self.handle = self.display(shown, display_id=True)
        else:
            self.handle.update(shown)


def _notebook() -> Optional[_Bar]:
    shell = sys.modules.get("IPython")
    if shell is None or type(shell.get_ipython()).__name__ != "ZMQInteractiveShell":
        return None
    from IPython.display import HTML, display  # type: ignore

    return _Bar(display, HTML)


def make(progress: Optional[bool]) -> _Silent:
    """What shows steps. None: where somebody looks."""
    if progress is False:
        return _Silent()
    bar = _notebook()
    if bar is not None:
        return bar
    if sys.stderr is None:  # closed by whoever started the process
        return _Silent()
    return _Line() if progress or sys.stderr.isatty() else _Silent()
