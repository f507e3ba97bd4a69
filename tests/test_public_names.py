"""The package gives its names when they are asked for, and no others; mistakes in calls get help."""

from __future__ import annotations

import inspect
import pydoc
import subprocess
import sys
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import Any

import pandas as pd
import pyarrow as pa
import pytest

import ensue

VERBS = """detect detect_batches run start matching events explain why_not waiting justify violations any_match report
parse stream_state spark_session"""
VALUES = """Program Query Pattern Results Report Detector DetectorStep StreamHandle WhyNot Proof HtmlReport Events
Limits Rows"""
BUILDERS = "event seq all_of any_of absent var rule rows function"
ERRORS = "EnsueError QueryError SchemaError LimitError StateError SetupError EnsueWarning EnsueNotice"
NAMESPACES = {
    "fn": """Value avg call case collect_set count count_distinct field first flatten last lineage list max min prev
    probability same span_end span_start stddev sum value""",
    "ops": """any_event anyone aperiodic aperiodic_list both chain concurrent except_for follows next_to not_follows
    not_precedes periodic periodic_list precedes prior_to relative simultaneous unless""",
    "rules": "RuleItem RuleStatement atom either fact name on rule stream table timer together while_",
    "constraints": "Constraint ConstraintsLike ends ends_within exclusive implies prior require",
    "actions": "Call Deliveries Delivery RejectedCall act kafka spark_sink table_sink webhook",
    "beliefs": "Beliefs State TrackingOptions of state track",
    "process": "Proposal Workflow mine read_bpmn workflow",
    "learn": "Evaluation Refinement fit load",
}
TOP = {*VERBS.split(), *VALUES.split(), *BUILDERS.split(), *ERRORS.split(), *NAMESPACES}
EVENTS = pa.table({"t": [1, 2], "type": ["A", "B"], "k": [1, 1]})
QUERY = "PATTERN SEQ(A a, B b) PARTITION BY k WITHIN 5"


def test_the_public_names_are_these() -> None:
    assert set(ensue.__all__) == TOP
    assert sorted(dir(ensue)) == sorted(TOP)
    assert all(getattr(ensue, name) is not None for name in ensue.__all__)


@pytest.mark.parametrize("name", NAMESPACES)
def test_a_namespace_is_a_module_with_its_names(name: str) -> None:
    module = getattr(ensue, name)
    assert isinstance(module, ModuleType)
    assert sorted(module.__all__) == sorted(dir(module)) == sorted(NAMESPACES[name].split())
    assert all(getattr(module, public).__doc__ for public in module.__all__ if public != "ConstraintsLike")


def test_names_of_a_namespace_can_be_imported() -> None:
    from ensue.fn import max as greatest

    assert repr(greatest("t.temp")) == 'Value("max(t.temp)")'


def test_a_name_that_is_not_there() -> None:
    with pytest.raises(AttributeError, match=r"`detectt`; did you mean `ensue.detect`"):
        _ = ensue.detectt  # type: ignore[attr-defined]
    with pytest.raises(AttributeError, match=r"did you mean `ensue.fn.max`"):
        _ = ensue.max_  # type: ignore[attr-defined]
    with pytest.raises(AttributeError, match=r"did you mean `ensue.ops.follows`"):
        _ = ensue.follows  # type: ignore[attr-defined]
    with pytest.raises(AttributeError, match=r"`help\(ensue\)` lists all names"):
        _ = ensue.zzzzzz  # type: ignore[attr-defined]


def test_importing_a_module_of_the_package_does_not_load_the_namespaces() -> None:
    code = "import sys; from ensue import nodes; assert not {'numba', 'pyarrow'} & set(sys.modules)"
    subprocess.run([sys.executable, "-c", code], check=True)


def test_importing_the_package_loads_no_compiler() -> None:
    code = "import sys, ensue; print([name for name in ('numba', 'pyarrow', 'pandas', 'lark') if name in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_help_shows_the_verbs_and_the_namespaces() -> None:
    text = pydoc.render_doc(ensue, renderer=pydoc.plaintext)
    for name in (*VERBS.split(), *BUILDERS.split(), *NAMESPACES):
        if name not in ("matching", "stream_state", "spark_session"):
            assert name in (ensue.__doc__ or ""), name
    assert "detect(events, query, time=...)" in text


def functions() -> dict[str, Callable[..., Any]]:
    """Every public function, of the package and of its namespaces."""
    named = {f"ensue.{name}": getattr(ensue, name) for name in TOP}
    for space in NAMESPACES:
        module = import_module(f"ensue.{space}")
        named |= {f"ensue.{space}.{name}": getattr(module, name) for name in module.__all__}
    return {name: value for name, value in named.items() if inspect.isfunction(value)}


def test_events_come_first_and_the_query_second_everywhere() -> None:
    """In `matching` and `Detector` the events come later, and `waiting` asks about a run."""
    for name, function in functions().items():
        parameters = [*inspect.signature(function).parameters]
        assert not {"program", "sources", "limit", "queries"} & {*parameters}, name
        assert "events" not in parameters[1:], f"{name}: `events` is the first argument, or something else"
        if "query" in parameters and name not in ("ensue.explain", "ensue.parse", "ensue.matching"):
            first = "detector" if name == "ensue.waiting" else "events"
            assert parameters[:2] == [first, "query"], name


def test_methods_of_events_take_the_arguments_of_the_functions() -> None:
    described = {"time", "type", "end", "order", "probability", "alternatives", "tick"}
    pairs = {"beliefs": ensue.beliefs.of, "track": ensue.beliefs.track, "mine": ensue.process.mine}
    pairs |= {
        name: getattr(ensue, name) for name in ["detect", "detect_batches", "run", "violations", "any_match", "justify"]
    }
    pairs["report"] = ensue.report
    for name, function in pairs.items():
        own, of_function = (inspect.signature(each).parameters for each in (getattr(ensue.Events, name), function))
        assert [*own][1:] == [each for each in of_function if each not in described and each != "events"], name
        assert all(own[each].default == of_function[each].default for each in [*own][1:]), name


USER_PROGRAM = '''
"""A small program with every namespace."""

from pathlib import Path

import pyarrow as pa

import ensue
from ensue import actions, beliefs, constraints, fn, learn, ops, process, rules
from ensue.fn import max as greatest

table = pa.table({"t": [1, 2], "type": ["A", "B"], "k": [1, 1]})
query: ensue.Query = ensue.seq("A a", ensue.event("B", "b")).where(ensue.var("a").k == 1).within(5)
pattern: ensue.Pattern = ops.follows("A a", "B b", 5)
value: fn.Value = greatest("b.t") - fn.min("b.t")
found: ensue.Results = ensue.run(table, [query.as_pattern("p")], time="t", type="type", limits=ensue.Limits(matches=5))
source: ensue.Events = ensue.events(table, time="t", type="type")
verdict: str = source.why_not(query, constraints=[constraints.prior("A", "B")]).verdict
rule: rules.RuleStatement = ensue.rule("pair", "k").when(rules.atom("A", k="k"), "B(k=k)")
step: ensue.DetectorStep = ensue.Detector(query, time="t", type="type").finish(table)
state: beliefs.State = beliefs.state("s", ["x"], ["y", "z"], on={"A a": "MOVE x TO y"})
believed: beliefs.Beliefs = beliefs.of(table, state, time="t", type="type")
proposal: process.Proposal = process.mine(table, time="t", type="type", partition_by="k")
model: learn.Refinement = learn.fit(table, label="type", context="k")
delivery: actions.Delivery = actions.Delivery()
program: ensue.Program = ensue.parse(Path("fraud.ensue"))
text: str = ensue.explain(query)
'''


@pytest.mark.slow
def test_a_user_program_passes_the_strict_checks_of_mypy(tmp_path: Path) -> None:
    file = tmp_path / "program.py"
    file.write_text(USER_PROGRAM, encoding="utf-8")
    source = str(Path(ensue.__file__).parents[1])
    settings = tmp_path / "mypy.ini"
    settings.write_text("[mypy]\nstrict = True\nignore_missing_imports = True\n", encoding="utf-8")
    command = [sys.executable, "-m", "mypy", "--config-file", str(settings), str(file)]
    done = subprocess.run(command, capture_output=True, text=True, env={"MYPYPATH": source, "PATH": ""})
    assert done.returncode == 0, done.stdout + done.stderr


def test_the_help_of_the_command_line_loads_nothing_that_works_on_data() -> None:
    code = """
import sys
from ensue.apps.cli import main
sys.argv = ["ensue", "--help"]
try:
    main()
except SystemExit:
    loaded = {"numba", "numpy", "pandas", "pyarrow", "pyspark", "lark", "rich"} & set(sys.modules)
    assert not loaded, loaded
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert "detect" in done.stdout
    assert "..." not in done.stdout.replace("[ARGS]...", ""), "a first sentence of a command's help is too long"


# --- Mistakes get help.


def refused(call: Callable[[], object]) -> ensue.EnsueError:
    with pytest.raises(ensue.EnsueError) as caught:
        call()
    return caught.value


@pytest.mark.parametrize(
    "query", [QUERY, ensue.parse(QUERY), ensue.seq("A a", "B b"), [QUERY], Path("fraud.ensue")], ids=str
)
def test_swapped_arguments(query: Any) -> None:
    for call in (ensue.run, ensue.detect, ensue.why_not, ensue.report, ensue.violations, ensue.beliefs.of):
        error = refused(lambda call=call: call(query, EVENTS, time="t", type="type"))
        assert error.code == "swapped-arguments"
        assert "(events, query)" in error.hint
    assert refused(lambda: ensue.actions.act(query, EVENTS, {}, time="t")).code == "swapped-arguments"
    assert refused(lambda: ensue.run(events=query, query=EVENTS, time="t")).code == "swapped-arguments"


def test_a_detector_and_its_query_swapped() -> None:
    detector = ensue.Detector(QUERY, time="t", type="type")
    error = refused(lambda: ensue.waiting(QUERY, detector))
    assert error.code == "not-a-query"
    assert error.hint.endswith("`ensue.waiting(detector, query)`")


@pytest.mark.parametrize(
    ("call", "hint"),
    [
        (lambda: ensue.detect(EVENTS, QUERY, "t", "type"), "`ensue.detect(events, query, time=...)`"),
        (
            lambda: ensue.Detector(EVENTS, QUERY, time="t"),
            "`ensue.Detector(query, ...).advance(events, watermark=...)`",
        ),
        (lambda: ensue.matching(EVENTS, QUERY, time="t"), "`df.transform(ensue.matching(query, ...))`"),
        (lambda: ensue.events(EVENTS, time="t").detect(EVENTS, QUERY), "`ensue.Events.detect(query, limits=...)`"),
    ],
)
def test_too_many_arguments_without_a_name(call: Callable[[], object], hint: str) -> None:
    error = refused(call)
    assert error.code == "too-many-arguments"
    assert hint in error.hint


@pytest.mark.parametrize(
    ("given", "hint"),
    [
        ("orders.csv", "pandas.read_csv"),
        (Path("orders.parquet"), "pandas.read_csv"),
        ({"t": [1], "type": ["A"]}, "pyarrow.table(columns)"),
        ([{"t": 1, "type": "A"}], "from_pylist(rows)"),
        (None, "pass a table"),
    ],
)
def test_events_that_are_not_a_table(given: Any, hint: str) -> None:
    error = refused(lambda: ensue.detect(given, QUERY, time="t", type="type"))
    assert error.code == "not-a-table"
    assert hint in error.hint


@pytest.mark.parametrize(
    ("call", "guess"),
    [
        (lambda: ensue.detect(EVENTS, QUERY, tiem="t", type="type"), "`time`"),
        (lambda: ensue.run(EVENTS, QUERY, time="t", typ="type"), "`type`"),
        (lambda: ensue.run(EVENTS, QUERY, time="t", type="type", limit=5), "`limits`"),
        (lambda: ensue.why_not(EVENTS, QUERY, time="t", type="type", exmples=1), "`examples`"),
        (lambda: ensue.Detector(QUERY, time="t", type="type", matchid=True), "`match_id`"),
        (lambda: ensue.process.mine(EVENTS, time="t", type="type", partitionby="k"), "`partition_by`"),
        (lambda: ensue.events(EVENTS, time="t", typ="type"), "`type`"),
        (lambda: ensue.explain(QUERY, tiem="t"), "`time`"),
        (lambda: ensue.parse(QUERY, nam="x"), "`name`"),
        (lambda: ensue.matching(QUERY, tiem="t"), "`time`"),
        (lambda: ensue.actions.act(EVENTS, QUERY, {}, time="t", typ="type"), "`type`"),
        (lambda: ensue.actions.act(EVENTS, QUERY, {}, time="t", triger={}), "`trigger`"),
        (lambda: ensue.events(EVENTS, time="t", type="type").detect(QUERY, limit=5), "`limits`"),
        (lambda: ensue.Detector(QUERY, time="t", type="type").advance(EVENTS, watermrk=5), "`watermark`"),
    ],
)
def test_a_misspelt_keyword(call: Callable[[], object], guess: str) -> None:
    error = refused(call)
    assert error.code == "unknown-argument"
    assert error.hint == f"did you mean {guess}?"


def test_a_keyword_that_is_like_no_other_lists_all() -> None:
    error = refused(lambda: ensue.explain(QUERY, zzz=1))  # type: ignore[call-arg]
    assert error.hint == "arguments: query, time, end, constraints, stages"


def test_the_signatures_are_those_of_the_functions() -> None:
    parameters = inspect.signature(ensue.detect).parameters
    assert [*parameters][:4] == ["events", "query", "time", "type"]
    assert ensue.detect.__doc__
    assert ensue.detect.__name__ == "detect"


def test_a_file_name_as_a_query() -> None:
    for call in (ensue.parse, ensue.explain, lambda query: ensue.detect(EVENTS, query, time="t")):
        for file in ("rules/fraud.ensue", "my rules.ensue", "fraud.txt", "./fraud", "/srv/fraud.sql"):
            error = refused(lambda call=call, file=file: call(file))
            assert error.code == "file-name"
            assert error.hint == f'pass `pathlib.Path("{file}")`'
    for text in ("fraud", "PATTERN A a WHERE a.", "SELECT a.b"):
        assert refused(lambda text=text: ensue.parse(text)).code == "syntax"
    assert ensue.parse("PATTERN A a RETURN a.ensue").names == ("pattern_1",)


def test_a_path_as_a_query(tmp_path: Path) -> None:
    file = tmp_path / "pair.ensue"
    file.write_text(QUERY, encoding="utf-8")
    expected = ensue.detect(EVENTS, QUERY, time="t", type="type")
    assert ensue.detect(EVENTS, file, time="t", type="type").equals(expected)
    assert ensue.run(EVENTS, [file], time="t", type="type")["pattern_1"].equals(expected)
    assert ensue.parse(file) == ensue.parse(QUERY)
    assert ensue.explain(file) == ensue.explain(QUERY)
    assert ensue.Detector(file, time="t", type="type").finish(EVENTS).matches.equals(expected)
    file.write_text("CONSTRAINT PRIOR(A, B)", encoding="utf-8")
    assert ensue.violations(EVENTS, constraints=file, time="t", type="type", partition_by="k").num_rows == 0
    file.write_text("PATTERN A a WITHIN", encoding="utf-8")
    assert "--> pair.ensue:1:" in str(refused(lambda: ensue.parse(file)))


def test_a_path_that_cannot_be_read(tmp_path: Path) -> None:
    assert refused(lambda: ensue.parse(tmp_path / "missing.ensue")).code == "query-file"
    assert refused(lambda: ensue.detect(EVENTS, tmp_path, time="t")).code == "query-file"
    binary = tmp_path / "binary.ensue"
    binary.write_bytes(b"\xff\xfe\x00")
    assert "not UTF-8" in str(refused(lambda: ensue.parse(binary)))


@pytest.mark.parametrize("table", [EVENTS, EVENTS.to_pandas(), {"A": EVENTS}], ids=["arrow", "pandas", "mapping"])
def test_a_table_as_a_query(table: Any) -> None:
    for call in (ensue.explain, ensue.parse, lambda query: ensue.detect(EVENTS, query, time="t")):
        error = refused(lambda call=call: call(table))
        assert error.code == "not-a-query"
        assert "events first" in error.hint


def test_a_missing_time() -> None:
    for call in (ensue.detect, ensue.run, ensue.why_not, ensue.report, ensue.any_match):
        assert refused(lambda call=call: call(EVENTS, QUERY)).code == "no-time-column"


def test_a_column_that_does_not_exist() -> None:
    error = refused(lambda: ensue.detect(EVENTS.rename_columns(["time", "type", "k"]), QUERY, time="tme", type="type"))
    assert error.code == "no-such-column"
    assert error.hint == "did you mean `time`?"
    error = refused(
        lambda: ensue.detect({"A": EVENTS, "B": EVENTS.rename_columns(["at", "type", "k"])}, QUERY, time="t")
    )
    assert error.hint.endswith('pass a mapping: `time={"B": "...", ...}`')
    error = refused(lambda: ensue.events(EVENTS, time="t", type="typ"))
    assert error.code == "no-such-column"
    assert error.hint == "did you mean `type`?"


def test_limits_are_checked_when_they_are_made() -> None:
    assert refused(lambda: ensue.Limits(matches="many")).code == "limit-type"  # type: ignore[arg-type]
    assert "Limits.matches" in str(refused(lambda: ensue.Limits(matches=-1)))
    error = refused(lambda: ensue.detect(EVENTS, QUERY, time="t", type="type", limits=5))  # type: ignore[arg-type]
    assert error.code == "limit-type"
    assert error.hint == "pass `ensue.Limits(matches=...)`"
    assert ensue.detect(EVENTS, QUERY, time="t", type="type", limits=ensue.Limits(matches=None)).num_rows == 1


# --- Events that are described once.

TABLED = "TABLE vip(k); RULE seen(k) <- A(k=k), vip(k)"


def test_described_events_give_the_same_answers() -> None:
    columns = {"time": "t", "type": "type"}
    source = ensue.events(EVENTS, **columns)
    assert source.detect(QUERY).equals(ensue.detect(EVENTS, QUERY, **columns))
    assert ensue.detect(source, QUERY).equals(source.detect(QUERY))
    assert [*source.detect_batches(QUERY)] == [*ensue.detect_batches(EVENTS, QUERY, **columns)]
    assert source.run(QUERY)["pattern_1"].num_rows == 1
    assert source.why_not(QUERY).verdict == "1 match"
    assert source.any_match(QUERY).num_rows == 1
    assert source.justify(QUERY, source.detect(QUERY, match_id=True).to_pylist()[0]).kind == "match"
    assert source.report(QUERY).facts == ensue.report(EVENTS, QUERY, **columns).facts
    assert source.violations("CONSTRAINT PRIOR(B, A) PARTITION BY k").num_rows == 1
    assert len(source.mine(partition_by="k")) == len(ensue.process.mine(EVENTS, **columns, partition_by="k"))
    assert source.detector(QUERY).finish(EVENTS).matches.num_rows == 1
    state = "STATE s OF x IN (y, z) STARTS z ON A a: MOVE x TO y"
    assert source.beliefs(state).probability("x in y").to_pylist() == [{"probability": 1.0}]
    assert source.track(state, {"p": "P(x in y)"}).column("p").to_pylist() == [1.0, 1.0]


def test_an_argument_of_a_call_goes_before_the_description() -> None:
    renamed = EVENTS.append_column("at", pa.array([2, 1]))
    source = ensue.events(renamed, time="t", type="type")
    assert source.detect(QUERY).num_rows == 1
    assert ensue.detect(source, QUERY, time="at").num_rows == 0


def test_of_the_tables_each_program_uses_those_it_declares() -> None:
    source = ensue.events(EVENTS, time="t", type="type", tables={"vip": pa.table({"k": [1]})})
    assert source.detect(QUERY).num_rows == 1
    assert source.run(TABLED)["seen"].num_rows == 1
    assert source.run(TABLED, tables={"vip": pa.table({"k": [2]})})["seen"].num_rows == 0


def test_described_events_say_what_they_are() -> None:
    assert repr(ensue.events(EVENTS, time="t", type="type")) == (
        "Events: pyarrow table, 2 rows, columns t, type, k\n  time: t\n  type: type"
    )
    frames = {"A": pd.DataFrame({"t": [1]}), "B": pd.DataFrame({"at": [1, 2]})}
    shown = repr(ensue.events(frames, time={"A": "t", "B": "at"}, tick="1 second"))
    assert shown == (
        "Events: A: pandas table, 1 row, columns t; B: pandas table, 2 rows, columns at\n"
        "  time: A: t, B: at\n  tick: 1 second"
    )
    assert "<th>time</th>" in ensue.events(EVENTS, time="t", type="type")._repr_html_()


# --- What a prompt and a notebook show.


def test_results_show_names_rows_and_columns() -> None:
    found = ensue.run(EVENTS, "PATTERN p SEQ(A a, B b) RETURN a.t AS x; PATTERN q (B b)", time="t", type="type")
    assert repr(found) == "Results of 2 patterns\n  p: 1 row, columns x\n  q: 1 row, columns start, end, b"
    assert "<th>p</th><td>1 row, columns x</td>" in found._repr_html_()
    assert repr(ensue.run(EVENTS.to_pandas(), QUERY, time="t", type="type")).startswith("Results of 1 pattern\n")
    with pytest.raises(KeyError, match="unknown pattern 'r'; available: p, q"):
        _ = found["r"]
    assert found.get("r") is None


def test_programs_and_detectors_show_themselves() -> None:
    assert repr(ensue.parse("PATTERN SEQ(A a, B b)")) == 'Program("PATTERN SEQ(A a, B b);")'
    detector = ensue.Detector(QUERY, time="t", type="type")
    assert repr(detector) == "<Detector: no events yet>"
    step = detector.advance(EVENTS, watermark=1)
    assert (
        repr(step) == "DetectorStep\n  matches: 0 rows, columns k, start, end, a, b\n  late: 0 rows, columns t, type, k"
    )
    assert repr(detector) == "<Detector: 2 rows read, 2 kept events, watermark=1>"


def test_texts_are_shown_as_they_are() -> None:
    text = ensue.explain(QUERY)
    assert repr(text) == text
    assert text._repr_html_().startswith("<pre>PATTERN")  # type: ignore[attr-defined]
    for other in (ensue.parse(QUERY).explain(), ensue.seq("A a", "B b").explain(), ensue.explain(QUERY, stages=True)):
        assert repr(other) == other


def test_answers_show_themselves() -> None:
    source = ensue.events(EVENTS, time="t", type="type")
    why = source.why_not("PATTERN SEQ(B b, A a) PARTITION BY k")
    assert repr(why) == why.to_text()
    assert "no match" in why._repr_html_()
    proof = source.justify(QUERY, {"k": 1})
    assert repr(proof) == proof.to_text()
    assert "<pre>" in proof._repr_html_()
    believed = source.beliefs("STATE s OF x IN (y, z) PARTITION BY k STARTS z ON A a: MOVE x TO y")
    assert repr(believed) == "Beliefs about 1 state, exact\n  s: x in (y, z), by k"
    assert "s: x in (y, z)" in believed._repr_html_()
