"""Times that files contain as text: ISO 8601 and other common notations, with and without a year."""

from __future__ import annotations

import datetime as dt
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ensue.apps.cli.terminal import UsageError
from ensue.expr.conversion import moments
from ensue.expr.notations import MONTHS, Flaw, moment_pattern

LAYOUTS = (
    "yyyy-MM-dd HH:mm:ss,SSS",
    "yyyy/MM/dd HH:mm:ss",
    "yyyy/MM/dd HH:mm",
    "yyyy/MM/dd",
    "dd/MMM/yyyy:HH:mm:ss Z",
    "MMM d HH:mm:ss yyyy",
    "MMM d HH:mm:ss.SSSSSS yyyy",
    "d MMM yyyy HH:mm:ss",
    "d.M.yyyy H:mm:ss",
    "d.M.yyyy H:mm",
    "d.M.yyyy",
    *(
        f"{date}{clock}"
        for date in ("d/M/yyyy", "M/d/yyyy")
        for clock in (" H:mm:ss", " H:mm", " h:mm:ss a", " h:mm a", "")
    ),
    "MMM d HH:mm:ss",
)
"""The notations besides ISO 8601, in the letters of `to_timestamp`."""

ZONE_TOLERANCE = np.timedelta64(1, "D")
"""How much later than its file a time may be: logs are in local time, and a zone is at most a day away."""


@dataclass(frozen=True, slots=True)
class Days:
    """The days of a month from one on, and their year. Of several, the latest `since` decides."""

    month: str
    since: int
    year: int


@dataclass(frozen=True, slots=True)
class Notation:
    """How the times of a column are written. `years` says of which year the days are, if the text has none."""

    layout: str
    years: tuple[Days, ...] = ()

    def spark(self, text: str) -> str:
        """Returns the Spark SQL expression that reads the text; null for text in another notation."""
        spaced = f"regexp_replace({text}, ' +', ' ')"
        layout = self.layout
        if self.years:
            layout = f"yyyy {layout}"
            latest = max(days.year for days in self.years)
            earlier = sorted({days.year for days in self.years} - {latest})
            cases = "".join(f" WHEN {self._is_of(year, text)} THEN '{year} '" for year in earlier)
            prefix = f"CASE{cases} ELSE '{latest} ' END" if cases else f"'{latest} '"
            spaced = f"concat({prefix}, {spaced})"
        return f"try_to_timestamp({spaced}, '{layout}')"

    def _is_of(self, year: int, text: str) -> str:
        """Returns the condition that a day is of an earlier year."""
        months = [repr(days.month) for days in self.years if days.year == year and days.since == 1]
        parts = [f"substr({text}, 1, 3) IN ({', '.join(months)})"] if months else []
        for days in self.years:
            if days.year == year and days.since > 1:
                day = f"try_cast(trim(substr({text}, 5, 2)) AS INT)"
                parts.append(f"substr({text}, 1, 3) = {days.month!r} AND {day} >= {days.since}")
        return " OR ".join(parts)

    @property
    def reads_each_line(self) -> bool:
        """Whether a line is enough to know its year: no day is of two years."""
        return len({(days.month, days.since) for days in self.years}) == len(self.years)

    def in_words(self) -> str:
        """Returns the years that were added, for a message; "" if the text has years."""
        found = sorted({days.year for days in self.years})
        return " to ".join(str(year) for year in dict.fromkeys((found[0], found[-1]))) if found else ""


def read_times(column: pa.ChunkedArray, modified: float) -> tuple[pa.ChunkedArray, Notation | None]:
    """Reads a text column as timestamps if all its values have one notation. Returns any other column unchanged.

    Empty text is not a time. `modified` is when the file was last changed, in seconds since 1970. A time without a year
    gets the latest year in which no time of the column is later than that.
    """
    if pa.types.is_dictionary(column.type):
        column = column.cast(column.type.value_type)
    if not (pa.types.is_string(column.type) or pa.types.is_large_string(column.type)):
        return (column.cast(pa.timestamp("s")) if pa.types.is_date(column.type) else column), None
    texts = column.cast(pa.string())
    texts = pc.if_else(pc.equal(pc.utf8_trim_whitespace(texts), ""), pa.scalar(None, pa.string()), texts)
    for kind in (pa.timestamp("us"), pa.timestamp("us", "UTC")):
        try:
            return pc.cast(texts, kind), None
        except pa.ArrowInvalid:
            continue
    flat = pc.replace_substring_regex(pa.chunked_array(texts).combine_chunks(), " +", " ")
    fitting = [layout for layout in LAYOUTS if _fits(flat.slice(0, 1000), layout) and _fits(flat, layout)]
    if not fitting:
        return column, None
    if len(fitting) > 1:
        example = flat.drop_null()[0].as_py()
        raise UsageError(
            "ambiguous-time",
            f"times such as `{example}` can be read as {' and as '.join(fitting)}",
            "write the times in ISO 8601, such as 2024-01-31 12:00:00",
        )
    if "yyyy" in fitting[0]:
        return pa.chunked_array([_moments(flat, fitting[0])]), Notation(fitting[0])
    found, years = _with_years(flat, fitting[0], modified)
    return pa.chunked_array([found]), Notation(fitting[0], years)


def _moments(texts: pa.Array, layout: str) -> pa.Array:
    pattern = moment_pattern(layout)
    assert not isinstance(pattern, Flaw)
    return moments(texts, pattern)[0]


def _fits(texts: pa.Array, layout: str) -> bool:
    if "yyyy" not in layout:
        # 2000 has a 29 February.
        texts, layout = pc.binary_join_element_wise("2000", texts, " "), f"yyyy {layout}"
    return bool(texts.null_count < len(texts) and _moments(texts, layout).null_count == texts.null_count)


def _with_years(texts: pa.Array, layout: str, modified: float) -> tuple[pa.Array, tuple[Days, ...]]:
    """Adds years: the latest in which no time is later than the file; a year more where months jump back.

    Back by more than a month is a new year. Forward by more than eleven is a late row of the last year: rows of a log
    can be a little out of order.
    """
    in_2000 = _moments(pc.binary_join_element_wise("2000", texts, " "), f"yyyy {layout}")
    ticks = pc.fill_null_backward(pc.fill_null_forward(in_2000)).to_numpy(zero_copy_only=False)
    steps = np.diff(ticks)
    back, late = steps < np.timedelta64(-31, "D"), steps > np.timedelta64(335, "D")
    turns = np.concatenate([[0], np.cumsum(back.astype(int) - late.astype(int))])
    limit = np.datetime64(dt.datetime.fromtimestamp(modified, dt.UTC).replace(tzinfo=None), "us") + ZONE_TOLERANCE
    turns -= turns.max()
    newest = dt.datetime.fromtimestamp(modified, dt.UTC).year
    for last in range(newest + 1, newest - 9, -1):
        years = pa.array(turns + last).cast(pa.string())
        found = _moments(pc.binary_join_element_wise(years, texts, " "), f"yyyy {layout}")
        if found.null_count == texts.null_count and pc.max(found).as_py() <= limit.astype(dt.datetime):
            break
    else:
        raise UsageError("no-year", "no year fits the times without a year", "add the year to the times")
    kept = in_2000.is_valid().to_numpy(zero_copy_only=False)
    known = in_2000.drop_null()
    return found, _days_of_years(pc.month(known).to_numpy(), pc.day(known).to_numpy(), (turns + last)[kept])


def _days_of_years(months: np.ndarray, days: np.ndarray, years: np.ndarray) -> tuple[Days, ...]:
    """Returns the year of each month. The last days of a month can be of the year before its first days."""
    found: list[Days] = []
    for month in np.unique(months):
        own_days, own_years = days[months == month], years[months == month]
        distinct = np.unique(own_years)
        since = dict.fromkeys(distinct.tolist(), 1)
        if len(distinct) == 2:
            first = int(own_days[own_years == distinct[0]].min())
            if first > own_days[own_years == distinct[1]].max():
                since[int(distinct[0])] = first
        found += [Days(MONTHS[month - 1], first, year) for year, first in since.items()]
    return tuple(sorted(found, key=lambda each: (each.year, MONTHS.index(each.month))))
