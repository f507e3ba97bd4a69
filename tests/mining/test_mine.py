"""`ensue.process.mine` in this process, against a loop over the traces."""

from __future__ import annotations

import warnings
from collections import Counter
from collections.abc import Sequence
from datetime import datetime, timedelta
from fractions import Fraction
from typing import Any

import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

import ensue
from inside import ConstraintStatement, Ends, Exclusive, Prior, Require
from mining.logs import COLUMNS, STREAMS, Found, Row, expected, is_lawful, relevant, rows, table, traces

QUERIES = (
    "PATTERN SEQ(A a, B b) PARTITION BY id RETURN a.t AS a, b.t AS b, a.id AS id",
    "PATTERN SEQ(A a, NOT C, B b) PARTITION BY id RETURN a.t AS a, b.t AS b, a.id AS id",
    "PATTERN AND(A a, C c) PARTITION BY id WITHIN 2 RETURN a.t AS a, c.t AS c, a.id AS id",
    "PATTERN SEQ(C c, NOT A) PARTITION BY id WITHIN 2 RETURN c.t AS c, c.id AS id",
)


def mined(events: Any, **options: Any) -> ensue.process.Proposal:
    """A proposal, without the warnings about rows that take no part."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ensue.EnsueWarning)
        return ensue.process.mine(events, **{**COLUMNS, **options})


def found(proposal: ensue.process.Proposal) -> list[Found]:
    return [(row.kind, row.streams, row.support, row.holds, row.share) for row in proposal]


@given(rows() | rows(least=12), st.sampled_from([1.0, 0.9, 0.5, 1e-9]), st.integers(1, 4))
def test_same_as_a_loop_over_traces(log: Sequence[Row], share: float, support: int) -> None:
    assert found(mined(table(log), share=share, support=support)) == expected(log, share, support)


@given(rows())
def test_one_table_per_stream(log: Sequence[Row]) -> None:
    tables = {name: table([row for row in log if row[1] == name]).drop_columns("type") for name in STREAMS}
    assert found(mined(tables, type=None)) == expected(log)


@given(rows())
def test_what_holds_in_all_traces_is_lawful_in_each(log: Sequence[Row]) -> None:
    for statement in mined(table(log), share=0.5).constraints():
        assert statement.partition_by == ("id",)
        assert all(is_lawful(statement.constraint, trace) for trace in traces(log))


@given(rows(complete=True), st.sampled_from(QUERIES))
@pytest.mark.filterwarnings("ignore::ensue.EnsueWarning")
def test_accepted_constraints_change_no_match_of_their_log(log: Sequence[Row], query: str) -> None:
    free = ensue.detect(table(log), query, time="t", type="type")
    assert matches_by(mined(table(log)), log, query) == Counter(map(str, free.to_pylist()))


def matches_by(proposal: ensue.process.Proposal, log: Sequence[Row], query: str) -> Counter[str]:
    """The matches of a query with a proposal's constraints; none where they forbid all."""
    try:
        found = ensue.detect(table(log), query, time="t", type="type", constraints=proposal)
    except ensue.QueryError as error:
        if error.code != "never-lawful":
            raise
        return Counter()
    return Counter(map(str, found.to_pylist()))


@given(rows(complete=True, least=12), st.sampled_from([1e-9, 0.3, 0.9]))
def test_relevant_traces_obey_what_is_proposed(log: Sequence[Row], share: float) -> None:
    """All other traces obey a constraint anyway, so they are no evidence for it."""
    for row in mined(table(log), share=share):
        judged = relevant(row.constraint, traces(log))
        assert sum(is_lawful(row.constraint, trace) for trace in judged) >= max(1, share * len(judged))
        assert all(trace in judged or is_lawful(row.constraint, trace) for trace in traces(log))


@given(st.integers(1, 5), st.integers(1, 60), st.booleans())
def test_a_pair_that_always_occurs_together_is_never_exclusive(rare: int, others: int, swapped: bool) -> None:
    """However many traces have only the more frequent stream of the two."""
    frequent, seldom = ("B", "A") if swapped else ("A", "B")
    log: list[Row] = [(key, frequent, 1) for key in range(rare + others)] + [(key, seldom, 2) for key in range(rare)]
    assert found(mined(table(log), share=1e-9, kinds="exclusive")) == []


def test_one_appeal_in_two_hundred_cases() -> None:
    cases: list[Row] = [(key, "Create", 1) for key in range(200)]
    proposal = mined(table([*cases, (7, "Appeal", 2)]), share=0.9)
    assert found(proposal) == [
        ("ENDS", ("Appeal",), 1, 1, 1.0),
        ("ENDS", ("Create",), 200, 199, 0.995),
        ("PRIOR", ("Create", "Appeal"), 1, 1, 1.0),
        ("REQUIRE", ("Appeal", "Create"), 1, 1, 1.0),
    ]
    nowhere_together = mined(table([*cases, (200, "Appeal", 2)]), kinds="exclusive")
    assert found(nowhere_together) == [("EXCLUSIVE", ("Appeal", "Create"), 1, 1, 1.0)]


@given(rows(), st.sampled_from([1.0, 0.7]))
def test_text_reads_back(log: Sequence[Row], share: float) -> None:
    proposal = mined(table(log), share=share)
    text = proposal.to_text()
    assert len(text.splitlines()) == len(proposal)
    if len(proposal):
        assert ensue.parse(text).constraints == proposal.constraints(min_share=share)


@given(rows())
def test_several_keys(log: Sequence[Row]) -> None:
    """A key of two columns is as good as one that numbers their pairs."""
    events = table(log)
    keys = events.column("id").to_pylist()
    for place, name in enumerate(("shop", "order")):
        values = [None if key is None else divmod(key, 3)[place] for key in keys]
        events = events.append_column(name, pa.array(values, pa.int64()))
    assert found(mined(events.drop_columns("id"), partition_by=["shop", "order"])) == expected(log)


LOG: list[Row] = [
    (1, "A", 1), (1, "B", 2), (1, "C", 3),
    (2, "A", 1), (2, "B", 1),
    (3, "B", 1), (3, "A", 2),
    (4, "C", 5),
]  # fmt: skip


@pytest.mark.parametrize("frame", [table(LOG).to_pandas(), pl.from_arrow(table(LOG)), table(LOG).to_batches()[0]])
def test_tables_of_all_kinds(frame: Any) -> None:
    assert mined(frame, share=0.3) == mined(table(LOG), share=0.3)
    assert found(mined(frame, share=0.3)) == expected(LOG, 0.3)


@pytest.mark.parametrize("kind", [pa.timestamp("us", "UTC"), pa.timestamp("s"), pa.date32()])
def test_times_of_all_kinds(kind: pa.DataType) -> None:
    times = [datetime(2026, 1, 1) + timedelta(days=row[2] or 0) for row in LOG]
    events = table(LOG).set_column(2, "t", pa.array(times, pa.timestamp("us")).cast(kind))
    assert found(mined(events, share=0.3)) == expected(LOG, 0.3)


def test_encoded_columns() -> None:
    events = table(LOG)
    encoded = events.set_column(1, "type", events.column("type").dictionary_encode())
    assert mined(pa.concat_tables([encoded.slice(0, 3), encoded.slice(3)]), share=0.3) == mined(events, share=0.3)


@pytest.mark.parametrize("rows_without", [table([]), pd.DataFrame({"id": [], "type": [], "t": []}, dtype="Int64")])
def test_a_table_without_rows(rows_without: Any) -> None:
    if isinstance(rows_without, pd.DataFrame):
        rows_without["type"] = rows_without["type"].astype("string")
    proposal = mined(rows_without)
    assert (len(proposal), list(proposal), proposal.constraints(), proposal.to_text()) == (0, [], (), "")
    assert proposal.table.schema == mined(table(LOG)).table.schema


def test_types_that_are_all_missing() -> None:
    assert len(mined(table(LOG).set_column(1, "type", pa.nulls(len(LOG))))) == 0


def test_rows_that_take_no_part_are_counted() -> None:
    log = [*LOG, (None, "A", 1), (1, None, 2), (1, "", 3), (2, "A", None)]
    with pytest.warns(ensue.EnsueWarning) as caught:
        proposal = ensue.process.mine(table(log), **COLUMNS)
    assert found(proposal) == expected(LOG)
    assert [str(warning.message) for warning in caught] == [
        "1 row ignored: no timestamp; 2 rows ignored: no type; 1 row ignored: no key"
    ]
    assert {warning.filename for warning in caught} == {__file__}


def test_keys_that_are_no_numbers() -> None:
    keys = pa.array([0.0, -0.0, float("nan"), None])
    events = pa.table({"id": keys, "type": ["A", "B", "A", "A"], "t": [1, 2, 3, 4]})
    assert found(mined(events, kinds="prior")) == [("PRIOR", ("A", "B"), 1, 1, 1.0)]


def test_integers_and_floats_are_one_key() -> None:
    tables = {"A": pa.table({"id": [1, 2**53 + 1], "t": [1, 1]}), "B": pa.table({"id": [1.0, 2.0**53], "t": [2, 2]})}
    assert found(mined(tables, type=None, kinds="prior")) == [("PRIOR", ("A", "B"), 1, 1, 1.0)]


class TestProposal:
    def test_table(self) -> None:
        proposal = mined(table(LOG), share=0.6, kinds=iter(("PRIOR", "require")))
        assert proposal.table.schema.names == ["kind", "streams", "support", "holds", "share"]
        assert proposal.table.to_pylist()[:3] == [
            {"kind": "PRIOR", "streams": ["A", "C"], "support": 1, "holds": 1, "share": 1.0},
            {"kind": "PRIOR", "streams": ["B", "C"], "support": 1, "holds": 1, "share": 1.0},
            {"kind": "PRIOR", "streams": ["A", "B"], "support": 3, "holds": 2, "share": 2 / 3},
        ]

    def test_constraints_that_hold_in_all(self) -> None:
        proposal = mined(table(LOG), share=0.3)
        assert [statement.constraint for statement in proposal.constraints()] == [
            Ends(("C",)),
            Prior("A", "C"),
            Prior("B", "C"),
            Require("A", "B"),
            Require("B", "A"),
        ]

    def test_constraints_that_are_chosen(self) -> None:
        proposal = mined(table(LOG), share=0.3)
        chosen = proposal.constraints(min_share=0.5, min_support=2, kinds=["exclusive", "prior"])
        assert chosen == tuple(
            ConstraintStatement(constraint, ("id",))
            for constraint in (Exclusive(("A", "C")), Exclusive(("B", "C")), Prior("A", "B"), Prior("B", "A"))
        )

    def test_text(self) -> None:
        assert mined(table(LOG), share=0.3, kinds=["prior"], support=2).to_text() == (
            "CONSTRAINT PRIOR(A, B) PARTITION BY id; -- 66.6 % of 3 traces\n"
            "CONSTRAINT PRIOR(B, A) PARTITION BY id; -- 66.6 % of 3 traces\n"
        )

    def test_names_that_need_quotes(self) -> None:
        log: list[Row] = [(1, "order line", 1), (1, "in`v -- oice", 2), (2, "order line", 1)]
        events = table(log).rename_columns(["case id", "type", "t"])
        proposal = mined(events, partition_by="case id")
        assert ensue.parse(proposal.to_text()).constraints == proposal.constraints()

    def test_a_share_is_never_rounded_up_to_all(self) -> None:
        log: list[Row] = [(key, name, 1) for key in range(10_000) for name in ("A", "B")]
        proposal = mined(table(log[:-1]), share=0.9, kinds=["require"])
        assert [(row.constraint, row.holds) for row in proposal] == [
            (Require("B", "A"), 9999),
            (Require("A", "B"), 9999),
        ]
        assert proposal.to_text().splitlines()[1].endswith("-- 99.9 % of 10000 traces")
        assert len(proposal.constraints()) == 1

    def test_repr(self) -> None:
        assert repr(mined(table(LOG), kinds="ends")) == (
            "Proposal of 1 constraint over traces by id\n  ENDS(C)  -- 2 traces"
        )
        many = mined(table([(1, f"S{number}", number) for number in range(9)]))
        assert repr(many).splitlines()[-1] == f"  ... and {len(many) - 20} more"

    def test_is_taken_where_constraints_are(self) -> None:
        proposal = mined(table(LOG))
        query = "PATTERN p SEQ(C c, A a) PARTITION BY id"
        with pytest.raises(ensue.QueryError) as caught:
            ensue.run(table(LOG), query, time="t", type="type", constraints=proposal)
        assert caught.value.code == "never-lawful"

    def test_says_nothing_about_other_traces(self) -> None:
        """A query over other keys is none of its business."""
        events = table(LOG).append_column("shop", pa.array([1] * len(LOG)))
        query = "PATTERN SEQ(C c, C d) PARTITION BY shop"
        assert ensue.detect(events, query, time="t", type="type", constraints=mined(events)).num_rows == 1


def many_streams(number: int) -> pa.Table:
    return table([(stream, f"S{stream}", 1) for stream in range(number)])


ERRORS: list[tuple[str, dict[str, Any], str]] = [
    ("no-such-column", {"time": "tt"}, "has no column `tt` for `time`"),
    ("no-such-column", {"type": "kind"}, "has no column `kind` for `type`"),
    ("no-such-column", {"partition_by": ["id", "idd"]}, "did you mean `id`?"),
    ("no-type-column", {"type": None}, "pass `type=`"),
    ("column-name", {"time": 3}, "`time` must be a column name"),
    ("column-name", {"partition_by": 3}, "`partition_by` must be a column name, found 3"),
    ("column-name", {"partition_by": ["id", 3]}, "`partition_by` must be a column name, found 3"),
    ("no-trace-key", {"partition_by": ()}, "`partition_by` is empty"),
    ("time-type", {"time": "type"}, "must be a timestamp or an integer column, but is string"),
    ("stream-type", {"type": "tags"}, "must be text"),
    ("key-type", {"partition_by": "tags"}, "column `tags` of the table has type list<item: string>"),
    ("share-range", {"share": 0}, "`share` must be greater than 0 and at most 1, found 0"),
    ("share-range", {"share": 1.01}, "found 1.01"),
    ("share-range", {"share": float("nan")}, "found nan"),
    ("share-range", {"share": "all"}, "found 'all'"),
    ("support-range", {"support": 0}, "`support` must be an integer of at least 1, found 0"),
    ("support-range", {"support": 1.5}, "found 1.5"),
    ("support-range", {"support": True}, "found True"),
    ("constraint-kind", {"kinds": "prio"}, "did you mean 'prior'?"),
    ("constraint-kind", {"kinds": ["ends", "implies"]}, "unknown kind of constraint 'implies'"),
    ("constraint-kind", {"kinds": []}, "`kinds` is empty"),
    ("constraint-kind", {"kinds": 3}, "available: 'ends', 'exclusive', 'prior', 'require'"),
]


class TestErrors:
    @pytest.mark.parametrize(("code", "options", "text"), ERRORS)
    def test_codes(self, code: str, options: dict[str, Any], text: str) -> None:
        events = table(LOG).append_column("tags", pa.array([["x"]] * len(LOG)))
        with pytest.raises(ensue.SchemaError) as caught:
            mined(events, **options)
        assert caught.value.code == code
        assert text in str(caught.value)
        assert caught.value.hint

    def test_keys_of_different_types(self) -> None:
        tables = {"A": pa.table({"id": [1], "t": [1]}), "B": pa.table({"id": ["1"], "t": [1]})}
        with pytest.raises(ensue.SchemaError, match="is number in the table of stream `A` but text in the table of"):
            mined(tables, type=None)

    def test_a_type_column_and_several_tables(self) -> None:
        with pytest.raises(ensue.SchemaError) as caught:
            mined({"A": table(LOG)})
        assert caught.value.code == "type-and-tables"

    def test_times_of_different_types(self) -> None:
        tables = {"A": table(LOG), "B": table(LOG).set_column(2, "t", pa.array([datetime(2026, 1, 1)] * len(LOG)))}
        with pytest.raises(ensue.SchemaError) as caught:
            mined(tables, type=None)
        assert caught.value.code == "time-mix"

    def test_too_many_streams(self) -> None:
        assert len(mined(many_streams(2000), kinds="ends")) == 2000
        with pytest.raises(ensue.LimitError) as caught:
            mined(many_streams(2001), kinds="ends")
        assert caught.value.code == "too-many-streams"

    @pytest.mark.parametrize("options", [{"min_share": 0}, {"min_support": 0}, {"kinds": "all"}])
    def test_of_a_proposal(self, options: dict[str, Any]) -> None:
        with pytest.raises(ensue.SchemaError) as caught:
            mined(table(LOG)).constraints(**options)
        assert caught.value.code in ("share-range", "support-range", "constraint-kind")


def test_shares_are_fractions_of_traces() -> None:
    for row in mined(table(LOG), share=0.01):
        assert row.share == float(Fraction(row.holds, row.support))
