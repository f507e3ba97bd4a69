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
    is_polled: bool = False
    """Whether the work asks for requests, so that it need not be interrupted."""

    def poll(self) -> bool:
        """Returns whether a stop was requested."""
        self.is_polled = True
        return self.signal is not None


@contextmanager
def told_to_stop(streaming: bool) -> Iterator[StopRequest]:
    """Records Ctrl-C and SIGTERM as a stop request.

    A running stream polls the request. Work that does not poll it, which is the start of Spark and a batch, is
    interrupted by a KeyboardInterrupt, as by a second signal.
    """
    told = StopRequest()

    def remember(number: int, frame: FrameType | None) -> None:
        again, told.signal = told.signal is not None, number
        if again or not (streaming and told.is_polled):
            raise KeyboardInterrupt
        messages("Stopping ... (press Ctrl-C again to stop immediately)")

    before: dict[int, Any] = {number: signal.signal(number, remember) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield told
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
