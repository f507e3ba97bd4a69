"""The benchmarks run, on small sizes; what they measure is no matter for a test."""

from __future__ import annotations

import json
import subprocess
import sys
import warnings
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path

import pytest

import ensue
from ensue.process import workflow

pytestmark = pytest.mark.slow

FOLDER = Path(__file__).parents[1] / "benchmarks"


@pytest.mark.skipif(sys.platform != "linux", reason="memory is read from /proc, which only Linux has")
def test_core_benchmarks_give_every_figure() -> None:
    done = subprocess.run(
        [sys.executable, str(FOLDER / "core.py"), "--events", "20000", "--keys", "200", "--format", "json"],
        capture_output=True,
        text=True,
        check=True,
    )
    figures = json.loads(done.stdout)
    assert len(figures) == 31
    assert {"name", "value", "measure", "target", "reached"} <= set(figures[0])


@pytest.mark.soak("benchmarks")
def test_spark_benchmarks_give_every_figure() -> None:
    sizes = ["--events", "80000", "--micro-batch", "10000", "--keys", "500", "--runs", "1"]
    done = subprocess.run(
        [sys.executable, str(FOLDER / "spark.py"), *sizes, "--format", "json"],
        capture_output=True,
        text=True,
        check=True,
    )
    figures = json.loads(done.stdout)
    assert len(figures) == 11
    assert all(figure["value"] > 0 for figure in figures[:-1])


def test_constraint_benchmarks_give_every_figure(tmp_path: Path) -> None:
    sizes = ["--traces", "60", "--concurrent", "10", "--batch", "200", "--runs", "1", "--points", "2", "--open", "10"]
    plots = ["--plots", str(tmp_path)] if find_spec("matplotlib") else []
    done = subprocess.run(
        [sys.executable, str(FOLDER / "constraints.py"), *sizes, "--window", *plots, "--format", "json"],
        capture_output=True,
        text=True,
        check=True,
    )
    figures = json.loads(done.stdout)
    assert len(figures) == 24
    assert sum(figure["measure"] == "ms" for figure in figures) == 6
    assert len(list(tmp_path.glob("*.svg"))) == (4 if plots else 0)


@pytest.mark.soak("benchmarks")
def test_semantic_window_benchmarks_give_every_figure_and_the_same_matches(tmp_path: Path) -> None:
    plots = ["--plots", str(tmp_path)] if find_spec("matplotlib") else []
    sizes = ["--events", "20000", "--runs", "1", "--experiment", "length"]
    done = subprocess.run(
        [sys.executable, str(FOLDER / "semantic_windows.py"), *sizes, *plots, "--format", "json"],
        capture_output=True,
        text=True,
        check=True,
    )
    figures = json.loads(done.stdout)
    assert len(figures) == 4
    assert all(figure["value"] > 0 for figure in figures)
    assert len(list(tmp_path.glob("*.svg"))) == (1 if plots else 0)


def test_traces_of_the_constraint_benchmark_obey_its_process(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(FOLDER)
    order_fulfilment = import_module("order_fulfilment")
    shares = order_fulfilment.Shares(local=0.3, unsupplied=0.2, rejected=0.1, cancelled=0.1)
    events = order_fulfilment.make_events(200, 20, shares)
    traces: dict[int, list[str]] = {}
    for order, task in zip(events["order_id"].to_pylist(), events["type"].to_pylist(), strict=True):
        traces.setdefault(order, []).append(task)
    process = workflow(order_fulfilment.PROCESS)
    assert len(traces) == 200
    assert all(process.accepts(trace) for trace in traces.values())
    assert {trace[-1] for trace in traces.values()} == set(order_fulfilment.ENDS)
    assert sum("UseLocalStock" in trace for trace in traces.values()) == 60


def test_start_benchmarks_give_every_figure() -> None:
    done = subprocess.run(
        [sys.executable, str(FOLDER / "startup.py"), "--runs", "1", "--format", "json"],
        capture_output=True,
        text=True,
        check=True,
    )
    names = [figure["name"] for figure in json.loads(done.stdout)]
    assert names[2] == "ensue check pair.ensue"
    assert names[-1] == "first detect in a fresh process"


def test_step_benchmarks_give_every_figure() -> None:
    sizes = ["--warm-up", "2000", "--keys", "50", "--share", "0.01", "--runs", "1"]
    done = subprocess.run(
        [sys.executable, str(FOLDER / "steps.py"), *sizes, "--format", "json"],
        capture_output=True,
        text=True,
        check=True,
    )
    figures = json.loads(done.stdout)
    assert len(figures) == 12
    assert all(figure["value"] > 0 for figure in figures)


def test_tie_benchmarks_give_every_figure() -> None:
    sizes = ["--events", "2000", "4000", "--rounds", "1"]
    done = subprocess.run(
        [sys.executable, str(FOLDER / "ties.py"), *sizes, "--format", "json"],
        capture_output=True,
        text=True,
        check=True,
    )
    figures = json.loads(done.stdout)
    assert len(figures) == 18
    assert all(figure["measure"] == "% of a run" and figure["note"].count(";") == 3 for figure in figures)


def test_tie_benchmarks_switch_the_count_of_ties(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without it, no notice; with it, one for each of both ways to run."""
    monkeypatch.syspath_prepend(FOLDER)
    ties = import_module("ties")
    events, query = ties.make_events(2_000, 3, True), ties.query_of("SEQ(T00 a, T01 b)", 2_000, True)
    for run in (ties.detect, ties.detect_in_steps):
        with warnings.catch_warnings(record=True) as notices:
            warnings.simplefilter("always")
            ties.seconds(lambda run=run: run(events, query), counts=False)
        assert not notices
        with pytest.warns(ensue.EnsueNotice, match="have the same time"):
            ties.seconds(lambda run=run: run(events, query), counts=True)


SMALL_PATTERNS = ["--events", "20000", "--keys", "20", "--patterns", "2", "10", "--runs", "1"]


def test_pattern_benchmarks_give_every_figure() -> None:
    done = subprocess.run(
        [sys.executable, str(FOLDER / "patterns.py"), *SMALL_PATTERNS, "--format", "json"],
        capture_output=True,
        text=True,
        check=True,
    )
    assert len(json.loads(done.stdout)) == 3


@pytest.mark.soak("benchmarks")
def test_pattern_benchmarks_give_every_figure_on_spark() -> None:
    done = subprocess.run(
        [sys.executable, str(FOLDER / "patterns.py"), *SMALL_PATTERNS, "--spark", "--format", "json"],
        capture_output=True,
        text=True,
        check=True,
    )
    assert len(json.loads(done.stdout)) == 6


@pytest.mark.parametrize("script", ["patterns", "steps"])
def test_profiles_of_benchmarks_are_written(script: str, tmp_path: Path) -> None:
    sizes = {"patterns": SMALL_PATTERNS, "steps": ["--warm-up", "2000", "--keys", "50"]}[script]
    profile = tmp_path / "profile.txt"
    command = [sys.executable, str(FOLDER / f"{script}.py"), *sizes, "--profile", str(profile)]
    subprocess.run(command, capture_output=True, check=True)
    assert profile.read_text("utf-8").count("\n== ") == 3


def test_rule_benchmarks_give_every_figure_and_the_same_events() -> None:
    sizes = ["--blocks", "50", "200", "--events", "4000", "--keys", "50", "--window", "400", "--batch", "500"]
    done = subprocess.run(
        [sys.executable, str(FOLDER / "rules.py"), *sizes, "--runs", "1", "--format", "json"],
        capture_output=True,
        text=True,
        check=True,
    )
    figures = {figure["name"]: figure["value"] for figure in json.loads(done.stdout)}
    assert len(figures) == 18
    assert figures["no suppressing: rows stored"] > 1
    assert figures["none: rows stored"] > figures["neither: rows stored"]


def test_probability_benchmarks_give_every_figure(tmp_path: Path) -> None:
    plots = ["--plots", str(tmp_path)] if find_spec("matplotlib") else []
    sizes = ["--events", "20000", "--keys", "200", "--runs", "1", "--shared", "8"]
    done = subprocess.run(
        [sys.executable, str(FOLDER / "probability.py"), *sizes, *plots, "--format", "json"],
        capture_output=True,
        text=True,
        check=True,
    )
    assert len(json.loads(done.stdout)) == 8
    assert len(list(tmp_path.glob("*.svg"))) == (1 if plots else 0)


def test_state_benchmarks_give_every_figure() -> None:
    sizes = ["--events", "2000", "--keys", "50", "--runs", "1"]
    done = subprocess.run(
        [sys.executable, str(FOLDER / "state.py"), *sizes, "--format", "json"],
        capture_output=True,
        text=True,
        check=True,
    )
    assert len(json.loads(done.stdout)) == 5
