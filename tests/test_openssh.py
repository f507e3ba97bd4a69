"""Questions to an SSH server's log, asked as an analyst would say them, each answered by plain Python too.

The log has raw lines, no year and one-second resolution: many events have the same time, and the order of the lines is
the order of events. The questions of `examples/openssh` are also asked to a made-up log, where each has an answer.
"""

from __future__ import annotations

import re
import sys
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import cache
from importlib.util import module_from_spec, spec_from_file_location
from itertools import pairwise
from pathlib import Path
from types import ModuleType
from typing import Any

import pyarrow as pa
import pytest

import ensue
from test_docs import blocks_of

LOG = Path(__file__).parents[2] / "shared" / "data" / "loghub_openssh_2k.log"
LINE = re.compile(r"(\w+ +\d+ [\d:]+) \S+ sshd\[(\d+)\]: (.*)")
needs_log = pytest.mark.skipif(not LOG.exists(), reason=f"the log is not at {LOG}")
EXAMPLE = Path(__file__).parents[1] / "examples" / "openssh"

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


@needs_log
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


@needs_log
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


@needs_log
def test_failures_by_address() -> None:
    found = ensue.detect(lines(), STREAMS + "PATTERN Failed f RETURN f.ip AS ip, f.user AS user", time="at")
    expected = Counter((ip, user) for _, _, _, ip, user in failures())
    assert Counter((row["ip"], row["user"]) for row in found.to_pylist()) == expected


# --- the example

MADE_UP = EXAMPLE / "made_up.log"


@pytest.fixture(scope="module")
def run() -> ModuleType:
    spec = spec_from_file_location("openssh_example", EXAMPLE / "run.py")
    assert spec is not None
    assert spec.loader is not None
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="module", params=["made up", pytest.param("real", marks=needs_log)])
def source(request: pytest.FixtureRequest) -> Path:
    return LOG if request.param == "real" else MADE_UP


@pytest.fixture(scope="module")
def found(run: ModuleType, source: Path) -> Any:
    return run.find(run.read_log(source))


@dataclass(frozen=True, slots=True)
class Line:
    number: int
    at: datetime
    pid: int
    text: str

    @property
    def failures(self) -> int:
        """How many failed passwords the line reports."""
        repeated = re.match(r"message repeated (\d+) times: \[ Failed", self.text)
        return int(repeated[1]) if repeated else int(self.text.startswith("Failed "))

    @property
    def ip(self) -> str:
        return self.text.rpartition(" from ")[2].split(" ")[0]

    @property
    def user(self) -> str:
        return self.text.rpartition(" from ")[0].partition(" for ")[2].removeprefix("invalid user ")

    @property
    def closes(self) -> bool:
        ends = ("Received disconnect", "error: Received disconnect", "Connection closed", "Disconnecting", "fatal")
        return self.text.startswith(ends)


def log_of(source: Path) -> list[Line]:
    found = []
    for number, text in enumerate(source.read_text("utf-8").splitlines(), start=1):
        head, own, message = text.partition("]: ")
        if own and " sshd[" in head:
            month, day, time, _, program = head.split()
            at = datetime.strptime(f"2024 {month} {day} {time}", "%Y %b %d %H:%M:%S")
            found.append(Line(number, at, int(program.partition("[")[2]), message.rstrip()))
    return found


Row = tuple[object, ...]
Alert = tuple[str, datetime, Row]
SECOND, MINUTE, HOUR = timedelta(seconds=1), timedelta(minutes=1), timedelta(hours=1)


def per_burst(alerts: Iterable[Alert], span: timedelta) -> Iterator[Row]:
    """The reported alerts, each with the number of those that were suppressed since the last one of its address."""
    last: dict[str, datetime] = {}
    suppressed: Counter[str] = Counter()
    for ip, at, row in alerts:
        if ip in last and at - last[ip] <= span:
            suppressed[ip] += 1
        else:
            last[ip] = at
            yield *row, suppressed.pop(ip, 0)


def bursts(log: list[Line], window: timedelta) -> Iterator[tuple[Line, list[Line]]]:
    """Each failure with the earlier ones of its address in the window; only those that have some."""
    failed = [line for line in log if line.failures]
    for place, last in enumerate(failed):
        earlier = [line for line in failed[:place] if line.ip == last.ip and line.at >= last.at - window]
        if earlier:
            yield last, earlier


def spraying(log: list[Line]) -> Iterator[Row]:
    alerts: list[Alert] = []
    for last, earlier in bursts(log, 10 * MINUTE):
        users = {line.user for line in earlier}
        if len(users) >= 5:
            alerts.append((last.ip, last.at, (last.ip, len(users), earlier[0].at, last.at, last.number)))
    yield from per_burst(alerts, 10 * MINUTE)


def brute_force(log: list[Line]) -> Iterator[Row]:
    alerts: list[Alert] = []
    for last, earlier in bursts(log, 5 * MINUTE):
        count = sum(line.failures for line in [*earlier, last])
        if count >= 20:
            alerts.append((last.ip, last.at, (last.ip, count, earlier[0].at, last.at, last.number)))
    yield from per_burst(alerts, 5 * MINUTE)


def never_closed(log: list[Line], is_after: Callable[[Line, Line], bool] | None = None) -> Iterator[Row]:
    after = is_after or (lambda one, other: one.number < other.number)
    closing = [line for line in log if line.closes]
    for line in log:
        own = (end for end in closing if end.pid == line.pid and end.at <= line.at + HOUR)
        if line.failures and not any(after(line, end) for end in own):
            yield line.ip, line.user, line.at, line.number


def never_closed_with_ties(log: list[Line]) -> Iterator[Row]:
    """With the numbers of lines, ties are lines of the same number: there are none."""
    yield from never_closed(log)


def broken_in(log: list[Line]) -> Iterator[Row]:
    for line in log:
        if line.text.startswith("Accepted "):
            before = [one for one in log if one.ip == line.ip and one.number < line.number and one.at >= line.at - HOUR]
            count = sum(one.failures for one in before)
            if count >= 3:
                yield line.ip, line.user.removeprefix("password for "), count, line.at, line.number


def left_open(log: list[Line]) -> Iterator[Row]:
    for line in log:
        opened = re.search(r"session opened for user (\w+)", line.text)
        later = (
            one for one in log if one.number > line.number and one.pid == line.pid and one.at <= line.at + 8 * HOUR
        )
        if opened and not any("session closed for user" in one.text for one in later):
            yield opened[1], line.at, line.number


def on_watch_list(log: list[Line]) -> Iterator[Row]:
    watched = {"5.188.10.180", "183.62.140.253", "185.190.58.151"}
    failed = [line for line in log if line.failures and line.ip in watched]
    alerts = [(line.ip, line.at, (line.ip, line.user, line.at, line.number)) for line in failed]
    yield from per_burst(alerts, 5 * MINUTE)


def unverified(log: list[Line]) -> Iterator[Row]:
    by_pid = defaultdict(list)
    for line in log:
        by_pid[line.pid].append(line)
    for lines_of_pid in by_pid.values():
        for warned in lines_of_pid:
            if not warned.text.startswith("reverse mapping"):
                continue
            for failed in lines_of_pid:
                if failed.failures and warned.number < failed.number and failed.at - warned.at <= 5 * SECOND:
                    for end in lines_of_pid:
                        if end.closes and failed.number < end.number and end.at - failed.at <= 2 * SECOND:
                            ip = warned.text.partition("[")[2].partition("]")[0]
                            yield ip, failed.user, warned.at, warned.number


QUESTIONS = [
    spraying,
    brute_force,
    never_closed,
    never_closed_with_ties,
    broken_in,
    left_open,
    on_watch_list,
    unverified,
]


@pytest.mark.parametrize("question", QUESTIONS)
def test_plain_python_answers_the_questions_of_the_example_alike(
    source: Path, found: Any, question: Callable[[list[Line]], Iterator[Row]]
) -> None:
    expected = Counter(question(log_of(source)))
    assert Counter(tuple(row.values()) for row in found[question.__name__].to_pylist()) == expected
    # Nobody broke into the real server, and its only session was closed.
    assert expected or (source == LOG and question in (broken_in, left_open))


def test_every_pattern_of_the_example_is_checked(run: ModuleType) -> None:
    names = {question.__name__ for question in QUESTIONS}
    assert {*ensue.parse(run.PROGRAM).names} == names
    assert {*run.QUESTIONS} == names - {"never_closed_with_ties"}


@pytest.mark.filterwarnings("ignore::ensue.EnsueNotice")
def test_answers_without_an_order(run: ModuleType, source: Path) -> None:
    """Then only a later second closes a connection; ALLOWING TIES accepts the same one."""
    log, loose = log_of(source), run.find(run.read_log(source), order=None)
    later = Counter(never_closed(log, lambda line, end: line.at < end.at))
    not_earlier = Counter(never_closed(log, lambda line, end: line.at <= end.at))
    assert Counter(tuple(row.values()) for row in loose["never_closed"].to_pylist()) == later
    assert Counter(tuple(row.values()) for row in loose["never_closed_with_ties"].to_pylist()) == not_earlier
    assert later != not_earlier


@needs_log
def test_the_end_of_the_log_leaves_one_question_open(run: ModuleType) -> None:
    """The only connection that is never closed is that of the last line, and its hour is not over."""
    log, last = run.read_log(LOG), "2024-12-10 11:04:45"
    certain = ensue.run(
        log, ensue.parse(run.PROGRAM), time="at", order="line", tables={"watched": run.WATCHED}, until=last
    )
    assert str(log["at"][-1].as_py()) == last
    assert not certain["never_closed"].num_rows


def test_lines_of_the_example(run: ModuleType, source: Path) -> None:
    log = run.read_log(source)
    assert [(line.number, line.at, line.pid, line.text) for line in log_of(source)] == [
        (*row.values(),) for row in log.to_pylist()
    ]
    assert all(one <= other for one, other in pairwise(log["at"].to_pylist()))


def test_a_made_up_log_runs_and_a_missing_one_is_named(
    run: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    path, page = tmp_path / "sshd.log", tmp_path / "page.html"
    path.write_bytes(MADE_UP.read_bytes())
    monkeypatch.setattr(sys, "argv", ["run.py", str(path), "--output", str(page)])
    run.main()
    printed = capsys.readouterr().out
    assert f"Who logs in after three failures or more? broken_in: {len([*broken_in(log_of(path))])}\n" in printed
    assert page.stat().st_size < 1_000_000
    path.write_text("nothing of sshd\n", encoding="utf-8")
    for log, said in ((path, f"no lines of sshd in {path}"), (tmp_path / "none", f"no log at {tmp_path / 'none'}")):
        monkeypatch.setattr(sys, "argv", ["run.py", str(log)])
        with pytest.raises(SystemExit):
            run.main()
        assert said in capsys.readouterr().err


@needs_log
def test_pages_of_the_example_show_what_is_printed(
    run: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "argv", ["run.py", str(LOG)])
    run.main()
    printed = capsys.readouterr().out.splitlines()
    for page in (EXAMPLE / "README.md", EXAMPLE.parents[1] / "docs" / "examples.md"):
        block = next(block for block in blocks_of(page) if "openssh/run.py" in block.text)
        shown = [line for line in block.text.splitlines() if not line.startswith("$ ") and line != "..."]
        assert [line for line in printed if line in shown] == shown, page
