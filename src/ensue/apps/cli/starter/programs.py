"""`ensue init` tries patterns on the events of a table, and keeps those that find a moderate number of matches."""

from __future__ import annotations

import math
import re
import warnings
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import islice, product
from typing import Any

import numpy as np
import pyarrow as pa

from ensue.api import run
from ensue.apps.cli.starter.events import Events
from ensue.apps.cli.starter.roles import Roles
from ensue.errors import EnsueError, EnsueWarning
from ensue.plan.plans import Limits
from ensue.text.reserved_words import quote_name, quote_word

TRIED = 100_000
"""The number of rows on which patterns are tried."""

FAILURE = re.compile(
    "fail|error|invalid|denied|refused|abnormal|alert|critical|reject|cancel|timeout|^[45][0-9]{2}$", re.I
)
"""Words of streams that are probably worth an alert, and the codes of HTTP errors."""

SUCCESS = re.compile("accept|succe|granted|logged.?in|opened|approved", re.I)
"""Words of streams that are worth an alert after several failures."""

TELLING = ("succeeded", "repeated", "jump")
"""The patterns whose first match is shown, if they have any."""

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

    def called(self, name: str) -> Finding:
        """Returns the pattern under another name."""
        return replace(self, candidate=replace(self.candidate, name=name))


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
        try:
            return self.found(candidate, whole)
        except EnsueError:
            return None

    def found(self, candidate: Candidate, whole: bool) -> pa.Table:
        """Returns the matches of a pattern, or raises why there are none."""
        options: dict[str, Any] = {}
        if self.roles.type is not None and not self.events.declarations:
            options["type"] = self.roles.type.column
        if self.roles.order is not None:
            options["order"] = self.roles.order.column
        text = f"{self.events.declarations}\n{candidate.text(whole)}"
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", EnsueWarning)
            limits = Limits(matches=max(1_000, 4 * self.table.num_rows))
            return run(self.table, text, time=self.roles.time.column, limits=limits, **options)[candidate.name]

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
    streams = _frequent_streams(trial)
    failures = [stream for stream in streams if FAILURE.search(trial.events.said[stream])]
    others = [stream for stream in streams if stream not in failures]
    # A log has several programs, and many requests can be an attack too.
    separate = (failures, others) if trial.roles.message is not None else ([*failures, *others],)
    bursts = [burst for group in separate for burst in islice(_moderate(trial, _repeats(trial, group)), 1)]
    found += [each.called(f"repeated_{place}") if place > 1 else each for place, each in enumerate(bursts, 1)]
    for candidates in (_breaches(trial), _jumps(trial), _silences(trial)):
        found += islice(_moderate(trial, candidates), 1)
    if not found:
        single = _single(trial)
        found = [Finding(single, trial.found(single, whole=False).num_rows)]
    return found


def _moderate(trial: Trial, candidates: Iterator[Candidate]) -> Iterator[Finding]:
    counted = ((candidate, trial.count(candidate)) for candidate in candidates)
    return (Finding(candidate, count) for candidate, count in counted if trial.moderate(count))


def first_of(trial: Trial, findings: list[Finding]) -> tuple[Finding, dict[str, Any]] | None:
    """Returns the most telling pattern, or else the one with the fewest matches, and its first match."""
    moderate = [each for each in findings if trial.moderate(each.count)] or findings
    ranks = {name: rank for rank, name in enumerate(TELLING)}
    for chosen in sorted(moderate, key=lambda each: (ranks.get(each.candidate.name, len(ranks)), each.count)):
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


def _frequent_streams(trial: Trial) -> list[int]:
    """Returns the streams with the most events, the most frequent first."""
    own, places = trial.events, _sorted(trial)
    counts = np.bincount(own.streams[places], minlength=len(own.names)) if len(places) else np.zeros(0, int)
    return [int(stream) for stream in np.argsort(-counts, kind="stable")]


def _repeats(trial: Trial, streams: Sequence[int]) -> Iterator[Candidate]:
    """Yields patterns of a stream that occurs several times in a short time."""
    own, places = trial.events, _sorted(trial)
    if trial.events.key is None and trial.table.num_rows < 10:
        return
    for stream in streams[:8]:
        rows = places[own.streams[places] == stream]
        keys, times = own.keys[rows], own.times[rows]
        for number in (5, 10, 20, 3):
            if len(rows) < number:
                continue
            whole = keys[number - 1 :] == keys[: len(keys) - number + 1]
            spans = (times[number - 1 :] - times[: len(times) - number + 1])[whole]
            last = rows[number - 1 :][whole]
            # What is not a failure is unusual only if it is rarely that frequent.
            rare = trial.roles.message is None and FAILURE.search(own.said[stream]) is None
            for text, size in _lengths_of_bursts(trial):
                hits = last[spans <= size]
                if trial.moderate(len(hits) if rare else _bursts(own.keys[hits], own.times[hits], size)):
                    yield _repeat(trial, stream, number, text)
                    break
            else:
                continue
            break


def _lengths_of_bursts(trial: Trial) -> list[tuple[str, int]]:
    """Returns windows: a minute and longer ones first, then shorter ones for what is always frequent."""
    lengths = list(_lengths(trial))
    short = [each for each in lengths if LENGTHS.get(each[0], 60) < 60]
    return [each for each in lengths if each not in short] + short[::-1]


def _bursts(keys: np.ndarray, times: np.ndarray, length: int) -> int:
    """Returns how many times are more than `length` after the one before, of the same key."""
    if not len(times):
        return 0
    return 1 + int(((np.diff(times) > length) | (np.diff(keys) != 0)).sum())


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


def _breaches(trial: Trial) -> Iterator[Candidate]:
    """Yields patterns of a success after several failures of one key."""
    own, within = trial.events, "10m"
    if own.key is None or not pa.types.is_timestamp(trial.table.schema.field(trial.roles.time.column).type):
        return
    succeeded = [place for place, said in enumerate(own.said) if SUCCESS.search(said) and not FAILURE.search(said)]
    failed = [place for place, said in enumerate(own.said) if FAILURE.search(said)]
    for success, failure in product(succeeded, failed):
        name, said = own.names[success], own.said[success]
        yield Candidate(
            "succeeded",
            f"`{said}` after 3 `{own.said[failure]}` or more within {within}{_same(trial)}",
            f"SEQ(COLLECT {own.names[failure]} failed{{3,}}, {name} a)",
            f"{_partition(trial)}\n  WITHIN {within}",
            f"{_of_key(trial, 'a')}count(failed) AS failures, a.{_time(trial)} AS at",
            (("failed", own.said[failure]), ("a", said)),
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
        # Prices of different keys differ by far more than the changes of one price.
        relative = bool(np.nanmin(values) > 0) if np.isfinite(values).any() else False
        if relative:
            steps /= values[:-1]
        fits = (keys[1:] == keys[:-1]) & (np.diff(times) > 0) & np.isfinite(steps) & (steps > 0)
        if fits.sum() < 10 or len(np.unique(values)) < 5:
            continue
        limit = _rounded_down(float(np.quantile(steps[fits], 1 - min(0.04, 20 / fits.sum()))))
        within = window(trial, float(np.quantile(np.diff(times)[fits], 0.9)))
        name, read = " ".join(field.name.split()), quote_word(field.name)
        share = f" * a.{read}" if relative else ""
        yield Candidate(
            "jump",
            f"`{name}` changes by {f'{100 * limit:.3g} %' if relative else f'{limit:g}'} or more from one row to the "
            f"next within {within}{_same(trial)}",
            f"SEQ({own.names[0]} a, {own.names[0]} b)\n  WHERE abs(b.{read} - a.{read}) >= {limit:g}{share}",
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
