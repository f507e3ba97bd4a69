"""The library of `examples/library` on Spark, as a stream of files: what was planted is found, and nothing else."""

from __future__ import annotations

import json
from importlib import import_module
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from spark.streams import SMALL, settings

FOLDER = Path(__file__).parents[2] / "examples" / "library"


@pytest.mark.slow
def test_stream_of_files_finds_what_was_planted(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(FOLDER)
    generate, run = import_module("generate"), import_module("run")
    generate.write_day(tmp_path, generate.draw_day(seed=4, visits=11), files=3)
    with settings(spark, SMALL):
        found = run.comparable(run.find_in_stream(tmp_path, spark), run.readings_by_id(tmp_path))
    expected = json.loads((tmp_path / "expected.json").read_text(encoding="utf-8"))
    assert list(run.differences(expected, found)) == []
    assert all(found.values()), "there is something of each kind"
