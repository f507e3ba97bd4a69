"""Turns Ctrl-C and SIGTERM into a request to stop instead of an exception in the middle of the work."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from types import FrameType
from typing import Any

from ensue.apps.cli.terminal import messages

STOPPED = 128
"""The exit code of a command that was ended by a signal is this plus the number of the signal."""


@dataclass(slots=True)
class StopRequest:
    """The signal that requested the stop; None if there was none."""

    signal: int | None = None


@contextmanager
def told_to_stop(streaming: bool) -> Iterator[StopRequest]:
    """Records Ctrl-C and SIGTERM as a stop request. A second signal, or the first one in a batch, stops at once."""
    told = StopRequest()

    def remember(number: int, frame: FrameType | None) -> None:
        again, told.signal = told.signal is not None, number
        if again or not streaming:
            raise KeyboardInterrupt
        messages("Stopping ... (press Ctrl-C again to stop immediately)")

    before: dict[int, Any] = {number: signal.signal(number, remember) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield told
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
