"""Ctrl-C and SIGTERM as a wish to stop, not as an exception in the middle of something."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from types import FrameType
from typing import Any

from ensue.apps.cli.terminal import messages

STOPPED = 128
"""What shells add to the number of a signal that ended a command."""


@dataclass(slots=True)
class StopRequest:
    """The signal that asked for an end, if one did."""

    signal: int | None = None


@contextmanager
def told_to_stop(streaming: bool) -> Iterator[StopRequest]:
    """Ctrl-C and SIGTERM ask a stream to stop, a second one stops at once, as does the first one in a batch."""
    told = StopRequest()

    def remember(number: int, frame: FrameType | None) -> None:
        again, told.signal = told.signal is not None, number
        if again or not streaming:
            raise KeyboardInterrupt
        messages("Stopping; once more to stop at once ...")

    before: dict[int, Any] = {number: signal.signal(number, remember) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield told
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
