"""How much of a run a page shows."""

from __future__ import annotations

from dataclasses import dataclass

from ensue.errors import LimitError

MOST_FIELDS = 30
"""Columns of an event or of a match that are shown."""
MOST_LETTERS = 160
"""Letters of a value that are shown."""
MOST_PARTS = 60
"""Parts of a proof, such as the events of a list, that are shown below one another."""
MOST_ROWS_WITH_IDS = 500_000
"""Rows of the tables up to which matches have their ids: these take a hash of every event."""
BINS = 60
"""Bars of the matches over time."""


@dataclass(frozen=True, slots=True)
class Limits:
    """How many keys, events and matches are shown, over all patterns."""

    keys: int
    events: int
    matches: int

    def __post_init__(self) -> None:
        for name, value in (("most_keys", self.keys), ("most_events", self.events), ("most_matches", self.matches)):
            if not isinstance(value, int) or isinstance(value, bool) or value < 1:
                raise LimitError("limit-type", f"`{name}` is a number of at least 1, not {value!r}")
