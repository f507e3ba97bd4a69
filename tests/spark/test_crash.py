"""A stream that is killed with its whole Spark process, again and again: nothing is lost, nothing comes twice."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

import ensue
from spark.crash_program import ALONE, PAIR, SCHEMA
from spark.streams import FAR, SECOND, START, Feed, cut, disordered, instants, lines

pytestmark = pytest.mark.slow

PROGRAM = Path(__file__).with_name("crash_program.py")
LONGEST_LIFE = 6.0
"""Seconds before which a stream is killed, after it has started or has begun a micro-batch."""

PATIENCE = 900
"""Seconds after which a program that should end is taken for stuck."""


def history(rows: int, seed: int) -> pa.Table:
    chance = np.random.default_rng(seed)
    return pa.table(
        {
            "t": instants(START + np.sort(chance.integers(0, rows * SECOND // 20, rows))),
            "type": pa.array(chance.choice(list("ABC"), rows)),
            "id": pa.array(chance.integers(0, 12, rows)),
            "x": pa.array(chance.random(rows).round(3)),
        },
        schema=SCHEMA,
    )


def far_row() -> pa.Table:
    return pa.table({"t": instants([FAR]), "type": ["Z"], "id": [0], "x": [0.0]}, schema=SCHEMA)


@contextmanager
def program(*arguments: str, log: Path) -> Iterator[subprocess.Popen[str]]:
    """Runs the program in a session of its own, of which nothing is left in the end."""
    with log.open("a") as errors:
        process = subprocess.Popen(
            [sys.executable, str(PROGRAM), *arguments],
            stdout=subprocess.PIPE,
            stderr=errors,
            text=True,
            start_new_session=True,
        )
    try:
        yield process
    finally:
        kill_session(process)


def kill_session(process: subprocess.Popen[str]) -> None:
    """Kills the program, its Spark and the workers, which have a process group of their own, but the same session."""
    while members := session_members(process.pid):
        for member in members:
            with suppress(ProcessLookupError):
                os.kill(member, signal.SIGKILL)
        process.poll()
        time.sleep(0.02)
    process.wait()
    if process.stdout is not None:
        process.stdout.close()


def session_members(session: int) -> list[int]:
    """The living processes of a session."""
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            state, _, _, own, *_ = (folder / "stat").read_text().rpartition(")")[2].split()
            if int(own) == session and state != "Z":
                found.append(int(folder.name))
    return found


def wait_for_start(process: subprocess.Popen[str], log: Path) -> None:
    assert process.stdout is not None
    line = process.stdout.readline()
    assert line == "started\n", f"the program ended: {line}{log.read_text()[-4000:]}"


def batches_begun(folder: Path) -> int:
    return len(list(folder.glob("checkpoint/**/offsets/[0-9]*")))


def wait_for_batch(folder: Path, before: int) -> None:
    """Waits until the stream has begun a micro-batch that was not begun before."""
    deadline = time.monotonic() + PATIENCE
    while batches_begun(folder) <= before:
        assert time.monotonic() < deadline, "no micro-batch has begun"
        time.sleep(0.05)


def crash(way: str, folder: Path, kills: int, seed: int) -> pa.Table:
    """Kills the program while files come, lets it run to its end at last, and gives back all events."""
    dice = random.Random(seed)
    table = history(150 * (kills + 1), seed)
    order = disordered(table.column("t").cast(pa.int64()).to_numpy(), 2 * SECOND, seed)
    parts = cut(table.take(pa.array(order)), 2 * kills + 1, seed)
    feed, log = Feed(folder / "in", SCHEMA), folder / "log"
    for life in range(kills):
        before = batches_begun(folder)
        feed.put(parts.pop(0))
        with program(way, str(folder), log=log) as process:
            wait_for_start(process, log)
            if life % 3:
                wait_for_batch(folder, before)
            moments = sorted(dice.uniform(0, LONGEST_LIFE) for _ in range(2))
            time.sleep(moments[0])
            feed.put(parts.pop(0))
            time.sleep(moments[1] - moments[0])
            assert process.poll() is None, log.read_text()[-4000:]
        assert process.returncode == -signal.SIGKILL
    for part in [*parts, far_row()]:
        feed.put(part)
    with program(way, str(folder), "last", log=log) as process:
        wait_for_start(process, log)
        assert process.wait(PATIENCE) == 0, log.read_text()[-4000:]
    return table


def check(way: str, kills: int, seed: int, spark: SparkSession, folder: Path) -> None:
    table = crash(way, folder, kills, seed)
    for name, query in {"pair": PAIR, "alone": ALONE}.items():
        if way == "detect" and name == "alone":
            continue
        written = spark.read.parquet(str(folder / name))
        found = written.drop("batch").toArrow()
        expected = ensue.detect(table, query, time="t", type="type", match_id=True)
        assert expected.num_rows > 10 * kills
        assert lines(found) == lines(expected)


@pytest.mark.parametrize("way", [pytest.param("detect", marks=pytest.mark.soak("kills")), "start"])
def test_killed(way: str, spark: SparkSession, tmp_path: Path) -> None:
    check(way, 2, 1, spark, tmp_path)


@pytest.mark.soak("kills")
@pytest.mark.parametrize("way", ["detect", "start"])
def test_killed_many_times(way: str, spark: SparkSession, tmp_path: Path) -> None:
    check(way, 12, 2, spark, tmp_path)
