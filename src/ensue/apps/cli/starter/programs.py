"""`ensue init` tries patterns on the events of a table, and keeps those that find a moderate number of matches."""

from __future__ import annotations

import math
import re
import warnings
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from ensue.api import run
from ensue.apps.cli.starter.columns import Roles
from ensue.apps.cli.starter.events import Events
from ensue.errors import EnsueError, EnsueWarning
from ensue.plan.plans import Limits
from ensue.text.reserved_words import quote_name, quote_word

TRIED = 100_000
"""The number of rows on which patterns are tried."""

FAILURE = re.compile(
    "fail|error|invalid|denied|refused|abnormal|alert|critical|reject|cancel|timeout|^[45][0-9]{2}$", re.I
)
"""Words of streams that are probably worth an alert, and the codes of HTTP errors."""

MOST_PAIRS = 6
LENGTHS = {
    "1s": 1,
    "10s": 10,
    "1m": 60,
    "2m": 120,
    "5m": 300,
    "10m": 600,
    "30m": 1800,
    "1h": 3600,
    "2h": 7200,
    "6h": 21600,
    "12h": 43200,
    "1d": 86400,
    "2d": 172800,
    "7d": 604800,
}
"""Round durations, in seconds."""

UNITS = {"s": 1, "ms": 10**3, "us": 10**6, "ns": 10**9}


@dataclass(frozen=True, slots=True)
class Candidate:
    """A pattern. `streams` says of which stream each variable is; `missing` is what a NOT forbids, for messages."""

    name: str
    said: str
    pattern: str
    clauses: str
    returns: str
    streams: tuple[tuple[str, str], ...]
    missing: str = ""

    def text(self, whole: bool = False) -> str:
        """Returns the statement; `whole` without RETURN, so that matches contain their events."""
        returns = "" if whole else f"\n  RETURN {self.returns}"
        return f"PATTERN {self.name}\n  {self.pattern}{self.clauses}{returns};"


@dataclass(frozen=True, slots=True)
class Finding:
    """A pattern, and how many matches it has in the rows on which it was tried."""

    candidate: Candidate
    count: int


@dataclass(frozen=True, slots=True)
class Trial:
    """The rows on which patterns are tried."""

    table: pa.Table
    events: Events
    roles: Roles

    def count(self, candidate: Candidate) -> int:
        """Returns the number of matches; 0 if the pattern cannot run or has far too many."""
        found = self.matches(candidate, whole=False)
        return 0 if found is None else found.num_rows

    def matches(self, candidate: Candidate, whole: bool) -> pa.Table | None:
        """Returns the matches of a pattern, or None."""
        options: dict[str, Any] = {}
        if self.roles.type is not None and not self.events.declarations:
            options["type"] = self.roles.type.column
        if self.roles.order is not None:
            options["order"] = self.roles.order.column
        text = f"{self.events.declarations}\n{candidate.text(whole)}"
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", EnsueWarning)
            try:
                limits = Limits(matches=max(1_000, 4 * self.table.num_rows))
                return run(self.table, text, time=self.roles.time.column, limits=limits, **options)[candidate.name]
            except EnsueError:
                return None

    def moderate(self, count: int) -> bool:
        """Whether a number of matches is worth reading: at least one, and at most 5 % of the rows."""
        return bool(1 <= count <= max(10, self.table.num_rows // 20))


def find_patterns(trial: Trial) -> list[Finding]:
    """Returns patterns with matches in the rows, the most interesting ones last; at least one that finds each event."""
    found: list[Finding] = []
    pairs = _frequent_pairs(trial)
    first_only = [_pair(trial, *pair) for pair in pairs]
    best: list[Finding] = []
    for followed, absent in first_only:
        tried = [Finding(each, trial.count(each)) for each in (followed, absent)]
        matching = [each for each in tried if each.count]
        if len(matching) == 2 and trial.moderate(tried[1].count):
            best = matching
            break
        best = best or matching
    found += best
    for candidates in (_repeats(trial), _jumps(trial), _silences(trial)):
        for candidate in candidates:
            count = trial.count(candidate)
            if trial.moderate(count):
                found.append(Finding(candidate, count))
                break
    if not found:
        found = [Finding(single, trial.count(single)) for single in (_single(trial),)]
    return found


def first_of(trial: Trial, findings: list[Finding]) -> tuple[Finding, dict[str, Any]] | None:
    """Returns a burst, or else the pattern with the fewest matches, and its first match."""
    moderate = [each for each in findings if trial.moderate(each.count)] or findings
    for chosen in sorted(moderate, key=lambda each: (each.candidate.name != "repeated", each.count)):
        matches = trial.matches(chosen.candidate, whole=True)
        if matches is not None and matches.num_rows:
            row: dict[str, Any] = matches.slice(0, 1).to_pylist()[0]
            return chosen, row
    return None


# --- candidates


def _partition(trial: Trial) -> str:
    return f"\n  PARTITION BY {trial.events.key}" if trial.events.key else ""


def _of_key(trial: Trial, variable: str) -> str:
    key = trial.events.key
    return f"{variable}.{key if key.startswith('`') else quote_word(key)} AS {key}, " if key else ""


def _same(trial: Trial) -> str:
    return f", same `{' '.join(trial.roles.key.column.split())}`" if trial.roles.key and trial.events.key else ""


def _time(trial: Trial) -> str:
    return quote_word(trial.roles.time.column)


def window(trial: Trial, gap: float) -> str:
    """Returns the shortest round duration that covers a gap; a number for integer times."""
    kind = trial.table.schema.field(trial.roles.time.column).type
    if not pa.types.is_timestamp(kind):
        return str(max(1, int(gap)))
    seconds = gap / UNITS[kind.unit]
    fitting = (length for length, size in LENGTHS.items() if size >= seconds)
    return next(fitting, f"{int(seconds // 86400) + 1}d")


def _lengths(trial: Trial) -> Iterator[tuple[str, int]]:
    """Yields windows as text and in the unit of the times."""
    kind = trial.table.schema.field(trial.roles.time.column).type
    if pa.types.is_timestamp(kind):
        yield from ((text, size * UNITS[kind.unit]) for text, size in LENGTHS.items())
        return
    times = trial.events.times[trial.events.streams >= 0]
    span = int(times.max() - times.min()) if len(times) else 0
    sizes = dict.fromkeys(max(1, span // part) for part in (10_000, 1_000, 100, 20, 5))
    yield from ((str(size), size) for size in sizes)


def _sorted(trial: Trial) -> np.ndarray:
    """Returns the places of the rows with a stream and a key, by key, time and position."""
    own = trial.events
    places = np.flatnonzero((own.streams >= 0) & (own.keys >= 0))
    sorted_places: np.ndarray = places[np.lexsort((places, own.times[places], own.keys[places]))]
    return sorted_places


def _frequent_pairs(trial: Trial) -> list[tuple[int, int, float]]:
    """Returns the streams that follow each other most often for one key, and how long nearly all of that takes."""
    own, places = trial.events, _sorted(trial)
    before, after = places[:-1], places[1:]
    gaps = own.times[after] - own.times[before]
    ordered = (gaps > 0) | (trial.roles.order is not None)
    fits = (own.keys[before] == own.keys[after]) & (own.streams[before] != own.streams[after]) & ordered
    codes = own.streams[before][fits] * len(own.names) + own.streams[after][fits]
    gaps = gaps[fits]
    values, counts = np.unique(codes, return_counts=True)
    chosen = values[np.lexsort((values, -counts))][:MOST_PAIRS]
    return [
        (int(code) // len(own.names), int(code) % len(own.names), float(np.quantile(gaps[codes == code], 0.9)))
        for code in chosen
    ]


def _pair(trial: Trial, first: int, second: int, gap: float) -> tuple[Candidate, Candidate]:
    """Returns two patterns: one stream follows another, and does not."""
    own, time = trial.events, _time(trial)
    a, b = own.names[first], own.names[second]
    said_a, said_b = own.said[first], own.said[second]
    within = window(trial, gap)
    clauses = f"{_partition(trial)}\n  WITHIN {within}"
    returns = f"{_of_key(trial, 'a')}a.{time} AS began, b.{time} AS ended"
    said = f"`{said_b}` follows `{said_a}` within {within}{_same(trial)}"
    followed = Candidate("followed", said, f"SEQ({a} a, {b} b)", clauses, returns, (("a", said_a), ("b", said_b)))
    firsts = int((own.streams == first).sum())
    if trial.count(followed) > firsts or not trial.count(followed):
        # Every combination is a match: only the earliest one after each event.
        said = f"the first `{said_b}` after `{said_a}` within {within}{_same(trial)}"
        pattern = f"SEQ({a} a, FIRST {b} b)"
        followed = Candidate("followed", said, pattern, clauses, returns, (("a", said_a), ("b", said_b)))
    absent = Candidate(
        "not_followed",
        f"`{said_a}` without `{said_b}` within {within}{_same(trial)}",
        f"SEQ({a} a, NOT {b} b)",
        clauses,
        f"{_of_key(trial, 'a')}a.{time} AS began",
        (("a", said_a),),
        f"no {said_b} within {within}",
    )
    return followed, absent


def _repeats(trial: Trial) -> Iterator[Candidate]:
    """Yields patterns of a stream that occurs several times in a short time."""
    own, places = trial.events, _sorted(trial)
    if trial.events.key is None and trial.table.num_rows < 10:
        return
    counts = np.bincount(own.streams[places], minlength=len(own.names)) if len(places) else np.zeros(0, int)
    most = max(20, trial.table.num_rows // 20)
    usual = np.array([FAILURE.search(said) is None for said in own.said])
    for stream in np.lexsort((-counts, usual))[:8]:
        rows = places[own.streams[places] == stream]
        keys, times = own.keys[rows], own.times[rows]
        for number in (5, 10, 20, 3):
            if len(rows) < number:
                continue
            whole = keys[number - 1 :] == keys[: len(keys) - number + 1]
            spans = (times[number - 1 :] - times[: len(times) - number + 1])[whole]
            fitting = ((text, int((spans <= size).sum())) for text, size in _lengths(trial))
            hit = next(((text, hits) for text, hits in fitting if 1 <= hits <= most), None)
            if hit is not None:
                yield _repeat(trial, int(stream), number, hit[0])
                break


def _repeat(trial: Trial, stream: int, number: int, within: str) -> Candidate:
    own = trial.events
    name, said = own.names[stream], own.said[stream]
    clauses = f"{_partition(trial)}\n  WITHIN {within}\n  SUPPRESS FOR {within}"
    return Candidate(
        "repeated",
        f"`{said}` {number} times or more within {within}{_same(trial)}, reported once per {within}",
        f"SEQ(COLLECT {name} earlier{{{number - 1},}}, {name} last)",
        clauses,
        f"{_of_key(trial, 'last')}count(earlier) + 1 AS events, last.{_time(trial)} AS at",
        (("earlier", said), ("last", said)),
    )


def _jumps(trial: Trial) -> Iterator[Candidate]:
    """Yields patterns of a number that changes a lot from one row to the next, if rows have no types."""
    own, places = trial.events, _sorted(trial)
    if len(own.names) != 1:
        return
    keys, times = own.keys[places], own.times[places]
    used = {trial.roles.time.column, trial.roles.key.column if trial.roles.key else ""}
    used.add(trial.roles.order.column if trial.roles.order else "")
    for field in trial.table.schema:
        numeric = pa.types.is_floating(field.type) or pa.types.is_integer(field.type)
        if not numeric or field.name in used or _reshaped(own, field.name):
            continue
        values = trial.table.column(field.name).cast(pa.float64()).to_numpy()[places]
        steps = np.abs(np.diff(values))
        fits = (keys[1:] == keys[:-1]) & (np.diff(times) > 0) & np.isfinite(steps) & (steps > 0)
        if fits.sum() < 10 or len(np.unique(values)) < 5:
            continue
        limit = _rounded_down(float(np.quantile(steps[fits], 1 - min(0.05, 20 / fits.sum()))))
        within = window(trial, float(np.quantile(np.diff(times)[fits], 0.9)))
        name, read = " ".join(field.name.split()), quote_word(field.name)
        yield Candidate(
            "jump",
            f"`{name}` changes by {limit:g} or more from one row to the next within {within}{_same(trial)}",
            f"SEQ({own.names[0]} a, {own.names[0]} b)\n  WHERE abs(b.{read} - a.{read}) >= {limit:g}",
            f"{_partition(trial)}\n  MATCH STRICT\n  WITHIN {within}",
            f"{_of_key(trial, 'a')}a.{read} AS was, b.{read} AS became, b.{_time(trial)} AS at",
            (("a", own.said[0]), ("b", own.said[0])),
        )


def _rounded_down(number: float) -> float:
    """Returns a positive number with three digits that is not greater.

    >>> _rounded_down(0.51078), _rounded_down(12999.0)
    (0.51, 12900.0)
    """
    unit = 10.0 ** (math.floor(math.log10(number)) - 2)
    return float(f"{math.floor(number / unit) * unit:.3g}")


def _reshaped(own: Events, name: str) -> bool:
    """Whether the declared stream has no such column."""
    return " RETURN " in own.declarations and quote_name(name) not in own.declarations


def _silences(trial: Trial) -> Iterator[Candidate]:
    """Yields patterns of rows that no other row follows for an unusually long time, if rows have no types."""
    own, places = trial.events, _sorted(trial)
    if len(own.names) != 1 or len(places) < 3:
        return
    gaps = np.diff(own.times[places])[np.diff(own.keys[places]) == 0]
    gaps = gaps[gaps > 0]
    for share in (0.99, 0.9, 0.5):
        if len(gaps):
            within = window(trial, float(np.quantile(gaps, share)))
            yield Candidate(
                "silence",
                f"no other row within {within}{_same(trial)}",
                f"SEQ({own.names[0]} a, NOT {own.names[0]} b)",
                f"{_partition(trial)}\n  WITHIN {within}",
                f"{_of_key(trial, 'a')}a.{_time(trial)} AS began",
                (("a", own.said[0]),),
                f"no other row within {within}",
            )


def _single(trial: Trial) -> Candidate:
    """Returns the pattern that each event of the most frequent stream matches."""
    own = trial.events
    key = _of_key(trial, "a")
    said = f"every `{own.said[0]}`, because no sequence or absence has a match in this file"
    return Candidate("seen", said, f"({own.names[0]} a)", "", f"{key}a.{_time(trial)} AS at", (("a", own.said[0]),))
