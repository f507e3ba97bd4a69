"""Pipelines as they are read: paths, variables, the program in place, the schema, and what a plan shows."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import ensue
from inside import (
    PIPELINE,
    ConsoleSink,
    ListOf,
    MapOf,
    Record,
    Shape,
    WebhookSink,
    described,
    length_of,
    made_schema,
    published_schema,
    read_pipeline,
    read_pipeline_text,
)
from inside import describe_pipeline as describe

TEXT = """
query: |
  PATTERN p SEQ(A a, B b) WITHIN 5; -- inline
  RULE r(id) <- token: A(id), x: B(id), token before x, {token, x} within 10;
sources:
  - {format: parquet, path: events, time: at, type: kind, options: {mergeSchema: true}}
outputs:
  p:
    webhook: https://example.org/${HOOK}
    headers: {Authorization: "Bearer ${TOKEN}"}
  r: console
"""
ORDERED = TEXT.replace("type: kind", "type: kind, order: ORDER")
SECRETS = {"HOOK": "kitchen", "TOKEN": "hunter2"}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "events").mkdir()
    return tmp_path


def test_values_and_paths(folder: Path) -> None:
    (folder / "pipeline.yaml").write_text(TEXT)
    pipeline = read_pipeline(folder / "pipeline.yaml", SECRETS)
    (source,) = pipeline.sources
    assert source.table.path.value == str(folder / "events")
    assert source.table.options["mergeSchema"].value == "true"
    hook = pipeline.outputs["p"]
    assert isinstance(hook, WebhookSink)
    assert hook.url.value == "https://example.org/kitchen"
    assert hook.headers["Authorization"].value == "Bearer hunter2"
    assert pipeline.outputs["r"] == ConsoleSink()
    assert pipeline.program.names == ("p", "r")


def test_addresses_are_no_paths(folder: Path) -> None:
    text = TEXT.replace("path: events", "path: s3a://bucket/events")
    pipeline = read_pipeline_text(text, folder / "pipeline.yaml", SECRETS)
    assert pipeline.sources[0].table.path.value == "s3a://bucket/events"


def test_a_plan_shows_names_of_variables_only(folder: Path) -> None:
    pipeline = read_pipeline_text(TEXT, folder / "pipeline.yaml", SECRETS)
    for shown in (describe(pipeline), json.dumps(described(pipeline)), repr(pipeline)):
        assert "hunter2" not in shown
        assert "kitchen" not in shown
    assert "webhook https://example.org/${HOOK}, headers {Authorization: Bearer ${TOKEN}}" in describe(pipeline)
    assert described(pipeline)["variables"] == ["HOOK", "TOKEN"]


def test_short_values_are_not_shown_and_do_not_garble_the_plan(folder: Path) -> None:
    (folder / "events" / "7").mkdir()
    text = """
query: |
  PATTERN p SEQ(A a, B b) WITHIN 7;
  CONSTRAINT PRIOR(A, B) PARTITION BY id
mode: stream
checkpointLocation: at/${PIN}/x
buckets: ${PIN}
sources:
  - {format: json, path: "events/${PIN}", schema: at LONG, time: at, watermark: 7 days, late: console}
violations: {webhook: https://example.org}
timed_out: {p: console}
delivery: {dead_letters: dead}
spark: {packages: ["a:b:${PIN}"]}
"""
    pipeline = read_pipeline_text(text, folder / "pipeline.yaml", {"PIN": "7"})
    shown = describe(pipeline).replace(str(folder), "")
    assert "path /events/${PIN}, schema at LONG, time at, watermark 7 days, late {format: console}" in shown
    assert "checkpointLocation: /at/${PIN}/x" in shown
    assert "SPARK\n  packages [a:b:${PIN}]" in shown
    assert "TIMED OUT\n  p: format console" in shown
    assert "VIOLATIONS\n  webhook https://example.org" in shown
    assert "DELIVERY\n  dead_letters /dead, retries 5" in shown
    assert described(pipeline)["timed_out"] == {"p": {"format": "console"}}


@pytest.mark.parametrize("given", ["1m 30s", "90 seconds", "1.5min", "1m30s"])
def test_durations_are_those_of_a_query(folder: Path, given: str) -> None:
    """`watermark` and the like are checked by a pattern, and read as a query reads them."""
    text = (
        TEXT.replace("headers:", f"timeout: {given}\n    headers:")
        + f"delivery: {{dead_letters: dead, backoff: {given}}}"
    )
    pipeline = read_pipeline_text(text, folder / "pipeline.yaml", SECRETS)
    sink = pipeline.outputs["p"]
    assert isinstance(sink, WebhookSink)
    assert sink.timeout == 90
    assert length_of(pipeline.delivery.backoff) == 90_000_000_000
    assert length_of(given) == 90_000_000_000


@pytest.mark.parametrize("given", ["0s", "0", "5M", "1y", "-1s", "soon"])
def test_durations_that_are_none(folder: Path, given: str) -> None:
    with pytest.raises(
        ensue.QueryError, match="`timeout` must be an integer of at least 1 or a duration such as `10s`"
    ):
        read_pipeline_text(TEXT.replace("headers:", f"timeout: {given}\n    headers:"), folder / "p.yaml", SECRETS)


def test_a_program_with_variables_hides_them(folder: Path) -> None:
    text = "query: 'PATTERN p (A a [pin = ${PIN}])'\nsources: [{format: rate, time: at}]\noutputs: {p: console}\n"
    pipeline = read_pipeline_text(text, folder / "pipeline.yaml", {"PIN": "971"})
    assert "971" not in describe(pipeline)
    assert "${PIN}" in describe(pipeline)


def test_a_character_that_is_not_of_yaml(folder: Path) -> None:
    with pytest.raises(ensue.QueryError) as caught:
        read_pipeline_text("mode: batch\nname: \x07", folder / "pipeline.yaml", {})
    assert (caught.value.code, caught.value.line, caught.value.column) == ("pipeline-yaml", 2, 7)


def test_text_that_looks_like_a_secret_does_not_change_the_program(folder: Path) -> None:
    """A rule may call an event `token:`; only what is shown is masked."""
    pipeline = read_pipeline_text(TEXT, folder / "pipeline.yaml", SECRETS)
    assert "token: A(id)" in pipeline.program.to_text()


def test_a_program_of_several_styles_is_the_same(folder: Path) -> None:
    rest = "\nsources: [{format: parquet, path: events, time: at}]\noutputs: {p: console}\n"
    programs = {
        read_pipeline_text(f"query: {written}{rest}", folder / "p.yaml", {}).program
        for written in ("PATTERN p (A a)", '"PATTERN p (A a)"', "|\n  PATTERN\n  p (A a)", ">\n  PATTERN\n  p (A a)")
    }
    assert programs == {ensue.parse("PATTERN p (A a)")}


def test_the_published_schema_is_that_of_the_definition() -> None:
    assert published_schema() == made_schema()


def keys_of(shape: Shape) -> set[str]:
    match shape:
        case Record():
            return {key.name for key in shape.keys}.union(*(keys_of(key.shape) for key in shape.keys))
        case ListOf(item) | MapOf(item):
            return keys_of(item)
    return set()


def test_the_page_names_every_key() -> None:
    page = (Path(__file__).parents[2] / "docs" / "pipelines.md").read_text(encoding="utf-8")
    assert not {key for key in keys_of(PIPELINE) if f"`{key}`" not in page}


def test_order_is_a_column_or_a_list_of_columns(tmp_path: Path) -> None:
    (tmp_path / "events").mkdir()
    for written, names in (("line", ["line"]), ("[day, line]", ["day", "line"])):
        text = ORDERED.replace("ORDER", written)
        pipeline = read_pipeline_text(text, tmp_path / "pipeline.yaml", SECRETS)
        assert [column.value for column in pipeline.sources[0].order] == names
        assert described(pipeline)["sources"][0]["order"] == names
