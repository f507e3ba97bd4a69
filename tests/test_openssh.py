"""Questions to an SSH server's log, asked as an analyst would say them, each answered by plain Python too.

The log has raw lines, no year and one-second resolution: many events have the same time, and the order of the lines is
the order of events.
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Iterator
from datetime import datetime, timedelta
from functools import cache
from pathlib import Path

import pyarrow as pa
import pytest

import ensue

LOG = Path(__file__).parents[2] / "shared" / "data" / "loghub_openssh_2k.log"
LINE = re.compile(r"(\w+ +\d+ [\d:]+) \S+ sshd\[(\d+)\]: (.*)")
pytestmark = pytest.mark.skipif(not LOG.exists(), reason=f"the log is not at {LOG}")

STREAMS = r"""
STREAM Failed FROM log WHERE message LIKE 'Failed password%'
  RETURN pid, line, regexp_extract(message, 'from (\S+)', 1) AS ip,
         regexp_extract(message, 'for (?:invalid user )?(\S*) from', 1) AS user;
STREAM Disconnected FROM log WHERE message LIKE 'Received disconnect%' OR message LIKE 'Connection closed%'
  RETURN pid, line, regexp_extract(message, '(\d+\.\d+\.\d+\.\d+)', 1) AS ip;
"""

SPRAYING = (
    STREAMS
    + """
PATTERN SEQ(COLLECT Failed f{5,}, Failed last)
  WHERE count(DISTINCT f.user) >= 5 PARTITION BY ip WITHIN 10 minutes RETURN last.ip AS ip, last.line AS line
"""
)


@cache
def lines() -> pa.Table:
    """The log as a table: the number of each line is the order of events."""
    found = [LINE.fullmatch(line.rstrip()) for line in LOG.read_text().splitlines()]
    rows = [match.groups() for match in found if match is not None]
    return pa.table(
        {
            "line": range(len(rows)),
            "at": [datetime.strptime(f"2023 {time}", "%Y %b %d %H:%M:%S") for time, _, _ in rows],
            "pid": [int(pid) for _, pid, _ in rows],
            "message": [message for _, _, message in rows],
        }
    )


def failures() -> Iterator[tuple[int, datetime, int, str, str]]:
    """Line, time, process, address and user of each failed password."""
    for row in lines().to_pylist():
        if row["message"].startswith("Failed password"):
            ip = re.search(r"from (\S+)", row["message"])
            user = re.search(r"for (?:invalid user )?(\S*) from", row["message"])
            yield row["line"], row["at"], row["pid"], ip[1] if ip else "", user[1] if user else ""


def disconnects() -> set[tuple[int, datetime, int]]:
    starts = ("Received disconnect", "Connection closed")
    return {(row["line"], row["at"], row["pid"]) for row in lines().to_pylist() if row["message"].startswith(starts)}


NOT_CLOSED = (
    STREAMS + "PATTERN SEQ(Failed f, NOT Disconnected d) PARTITION BY pid WITHIN 1 hour {} RETURN f.line AS line"
)


def test_failures_that_no_disconnect_follows() -> None:
    """Without an order, a disconnect in the same second as the failure does not count, and Ensue says so."""
    hour, closed = timedelta(hours=1), disconnects()

    def expected(by_line: bool) -> list[int]:
        return [
            line
            for line, at, pid, _, _ in failures()
            if not any(
                other == pid and when <= at + hour and (number > line if by_line else when > at)
                for number, when, other in closed
            )
        ]

    source = {"time": "at", "limits": ensue.Limits(matches=None)}
    with pytest.warns(ensue.EnsueNotice, match=r"matches have a `Disconnected` at the very time of `Failed`; use"):
        loose = ensue.detect(lines(), NOT_CLOSED.format(""), **source)
    assert sorted(loose["line"].to_pylist()) == expected(by_line=False)
    strict = ensue.detect(lines(), NOT_CLOSED.format(""), order="line", **source)
    assert sorted(strict["line"].to_pylist()) == expected(by_line=True)
    assert len(strict) < len(loose)
    with_ties = ensue.detect(lines(), NOT_CLOSED.format("ALLOWING TIES"), **source)
    inclusive = [
        line
        for line, at, pid, _, _ in failures()
        if not any(other == pid and at <= when <= at + hour for _, when, other in closed)
    ]
    assert sorted(with_ties["line"].to_pylist()) == inclusive


def test_password_spraying() -> None:
    """Addresses that failed for at least five different users within ten minutes before a further failure."""
    by_ip = defaultdict(list)
    for line, at, _, ip, user in failures():
        by_ip[ip].append((line, at, user))
    expected = set()
    for ip, rows in by_ip.items():
        for line, at, _ in rows:
            before = [user for number, when, user in rows if number < line and when >= at - timedelta(minutes=10)]
            if len(before) >= 5 and len(set(before)) >= 5:
                expected.add((ip, line))
    found = ensue.detect(lines(), SPRAYING, time="at", order="line")
    assert {(row["ip"], row["line"]) for row in found.to_pylist()} == expected
    assert expected


def test_failures_by_address() -> None:
    found = ensue.detect(lines(), STREAMS + "PATTERN Failed f RETURN f.ip AS ip, f.user AS user", time="at")
    expected = Counter((ip, user) for _, _, _, ip, user in failures())
    assert Counter((row["ip"], row["user"]) for row in found.to_pylist()) == expected
