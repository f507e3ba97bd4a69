"""Computes the tables that rules derive from tables: once, when a run begins, group by group of rules that need each
other.

Semi-naive evaluation, as for recursive rules over events: each round joins the rows of the previous one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import reduce
from itertools import count

import numpy as np
import pyarrow as pa

from ensue.analysis.catalog import is_lineage
from ensue.analysis.declarations import Attributes, components, declared_attributes, in_order_of
from ensue.engine.derivation import MOST_ROUNDS, look_up, row_codes
from ensue.engine.sources import one_chunk
from ensue.errors import LimitError, Problem, QueryError, citing, counted, did_you_mean
from ensue.expr.checker import check_condition
from ensue.expr.evaluation import condition_mask, evaluate
from ensue.expr.types import common_type, convert, describe, expression_type, own_type
from ensue.lower.phases import LoweredProgram
from ensue.nodes import rules
from ensue.nodes.expressions import Binary, Expr, Field, HasRow, IsNull, Literal, walk
from ensue.nodes.names import Stream
from ensue.nodes.patterns import Lookup
from ensue.plan.plans import DEFAULT_LIMIT
from ensue.plan.program_plans import FixedTables, looked_up

PRESENT = "ensue:present"
"""The only column of a table without columns, such as that of `FACT p()`: an Arrow table without any has no rows."""

_PRESENT = pa.table({PRESENT: pa.nulls(1)})


def derived_tables(
    statements: LoweredProgram, given: FixedTables, limit: int | None = DEFAULT_LIMIT
) -> dict[str, pa.Table]:
    """The tables that the rules of a program derive from the `given` ones, by name; none has more rows than `limit`."""
    ruleset = statements.ruleset
    if ruleset is None or not ruleset.derived_tables:
        return {}
    attributes = declared_attributes(statements)
    uses: dict[Stream, list[Stream]] = {name: [] for name in ruleset.derived_tables}
    for rule in ruleset.table_rules:
        uses[rule.head] += [name for name in sorted(rules.used_by(rule)) if name in uses]
    tables = dict(given)
    with citing(statements.source):
        for group in components(dict(sorted(uses.items(), key=str))):
            heads = tuple(map(str, group))
            own = [rule for rule in ruleset.table_rules if rule.head in heads]
            tables |= _Group(own, heads, attributes, tables, limit).rows()
    return {name: tables[name] for name in ruleset.derived_tables}


def _column(name: str, variable: str | None = None) -> str:
    """The column of a name or of the field of an item, in a table of bindings."""
    return f"={name}" if variable is None else f"{len(variable)}:{variable}.{name}"


@dataclass(frozen=True, slots=True)
class _Scan:
    """An item of a body: the columns that it reads, by the column that they bind, and the conditions on its rows."""

    atom: rules.Atom
    columns: Mapping[str, str]
    conditions: tuple[Expr, ...]

    def of(self, table: pa.Table) -> pa.Table:
        kept = _where(table, self.conditions, lambda field: one_chunk(table.column(field.name)))
        found = _PRESENT.take(pa.array(np.zeros(kept.num_rows, np.int64)))
        for name, column in self.columns.items():
            found = found.append_column(name, kept.column(column))
        return found


@dataclass(frozen=True, slots=True)
class _Body:
    """A rule: its items, its other conditions over bindings, and the values of its head."""

    rule: rules.Rule
    scans: tuple[_Scan, ...]
    conditions: tuple[Expr, ...]
    values: tuple[Expr, ...]

    @classmethod
    def of(cls, rule: rules.Rule, attributes: Attributes) -> _Body:
        atoms = [item for item in rule.body if isinstance(item, rules.Atom)]
        places = [argument.term for atom in rules.atoms_of(rule) for argument in atom.arguments]
        names = [term.name for term in places if isinstance(term, rules.Name)]
        shared = {name for name in names if names.count(name) > 1}
        conditions = [item.expression for item in rule.body if isinstance(item, rules.Condition)]
        conditions += [_absence(item, attributes) for item in rule.body if isinstance(item, rules.Absent)]
        values = tuple(argument.expression for argument in in_order_of(rule, attributes[rule.head]))
        fields = {part for value in (*conditions, *values) for part in walk(value) if isinstance(part, Field)}
        scans = tuple(_scan(atom, attributes[atom.stream], shared, fields) for atom in atoms)
        return cls(rule, scans, tuple(conditions), values)

    def bindings(self, tables: Sequence[pa.Table], first: int | None, check: Callable[[int], None]) -> pa.Table:
        """Every choice of rows of `tables`, one table for each item. The item `first` is joined first."""
        bound, waiting = _PRESENT, list(range(len(self.scans)))
        conditions = list(self.conditions)
        while True:
            known = [condition for condition in conditions if _columns_of(condition) <= set(bound.column_names)]
            bound = _where(bound, known, lambda field, rows=bound: _value(field, rows))  # type: ignore[misc]
            conditions = [condition for condition in conditions if condition not in known]
            if not waiting:
                return bound
            names = set(bound.column_names)
            place = first if first in waiting else max(waiting, key=lambda at: (self._shared(at, names), -at))
            waiting.remove(place)
            scan, rows = self.scans[place], self.scans[place].of(tables[place])
            on = tuple((name, name) for name in scan.columns if name in names)
            new = tuple((name, name) for name in scan.columns if name not in names)
            self._check_types(scan, bound, rows, on)
            bound = look_up(bound, Lookup(scan.atom.stream, on, new), rows, check)

    def _shared(self, place: int, names: set[str]) -> int:
        return len(names & self.scans[place].columns.keys())

    def _check_types(self, scan: _Scan, bound: pa.Table, rows: pa.Table, on: Sequence[tuple[str, str]]) -> None:
        for name, _ in on:
            kinds = [table.schema.field(name).type for table in (bound, rows)]
            if common_type(kinds) is None:
                one, other = map(describe, kinds)
                problem = Problem(
                    "table-types",
                    f"`{name.partition('=')[2]}` has type {one}, but column `{scan.columns[name]}` of table"
                    f" `{scan.atom.stream}` has type {other}; they are never equal",
                    scan.atom.span or self.rule.span,
                    hint="convert one of the columns to the type of the other",
                )
                raise QueryError([problem])


def _absence(item: rules.Absent, attributes: Attributes) -> HasRow:
    """`not blocked(ip)` as a condition over bindings."""
    columns = attributes[item.atom.stream]
    terms = [
        (argument.term, argument.attribute or columns[place])
        for place, argument in enumerate(item.atom.arguments)
        if not isinstance(argument.term, rules.Anything)
    ]
    operands = (Field(None, term.name, term.span) if isinstance(term, rules.Name) else term for term, _ in terms)
    return HasRow(tuple(operands), item.atom.stream, tuple(column for _, column in terms), True, item.span)


def _scan(atom: rules.Atom, columns: Sequence[str], shared: set[str], fields: set[Field]) -> _Scan:
    """What an item binds. A name in several places is never null."""
    bound: dict[str, str] = {}
    conditions: list[Expr] = []
    for place, argument in enumerate(atom.arguments):
        field = Field(None, argument.attribute or columns[place], argument.span)
        match argument.term:
            case Literal() as literal:
                conditions.append(Binary("=", field, literal, argument.span))
            case rules.Name(name=name) if _column(name) in bound:
                conditions.append(Binary("=", Field(None, bound[_column(name)]), field, argument.span))
            case rules.Name(name=name):
                bound[_column(name)] = field.name
                conditions += [IsNull(field, negated=True)] if name in shared else []
    if atom.name is not None:
        for field in sorted((field for field in fields if field.variable == atom.name), key=lambda field: field.name):
            if field.name not in columns:
                raise QueryError(
                    [
                        Problem(
                            "no-such-field",
                            f"table `{atom.stream}` has no column `{field.name}`",
                            field.span,
                            label=f"columns: {', '.join(columns)}",
                            hint=did_you_mean(field.name, columns),
                        )
                    ]
                )
            bound[_column(field.name, atom.name)] = field.name
    return _Scan(atom, bound, tuple(conditions))


def _columns_of(expr: Expr) -> set[str]:
    return {_name_of(part) for part in walk(expr) if isinstance(part, Field)}


def _name_of(field: Field) -> str:
    return _column(field.name, None if field.variable is None else str(field.variable))


def _value(field: Field, rows: pa.Table) -> pa.Array:
    return one_chunk(rows.column(_name_of(field)))


def _where(table: pa.Table, conditions: Sequence[Expr], column: Callable[[Field], pa.Array]) -> pa.Table:
    """The rows for which all conditions hold."""
    if not conditions:
        return table
    problems: list[Problem] = []
    for condition in conditions:
        check_condition(condition, lambda field: own_type(column(field).type), problems)
    if problems:
        raise QueryError(problems)
    masks = (condition_mask(each, column, table.num_rows) for each in conditions)
    return table.filter(pa.array(reduce(np.logical_and, masks)))


@dataclass(slots=True)
class _Group:
    """Derived tables that need each other. `tables` are all others that they need."""

    rules: Sequence[rules.Rule]
    heads: tuple[str, ...]
    attributes: Attributes
    tables: Mapping[str, pa.Table]
    limit: int | None

    def rows(self) -> dict[str, pa.Table]:
        bodies = [self._with_tables(_Body.of(rule, self.attributes)) for rule in self.rules]
        known = self._empty(bodies)
        kinds = {name: table.schema for name, table in known.items()}
        new = self._new(known, [self._found(body, known, None, kinds) for body in bodies if not self._own(body)])
        recursive = [(body, place) for body in bodies for place in self._own(body)]
        for number in count():
            known = {name: pa.concat_tables([known[name], new[name]]).combine_chunks() for name in self.heads}
            if not recursive or not any(table.num_rows for table in new.values()):
                break
            self._check_rounds(number, new)
            new = self._new(known, [self._found(body, known, (place, new), kinds) for body, place in recursive])
        return known

    def _own(self, body: _Body) -> list[int]:
        """The items of a rule that are rows of the group itself."""
        return [place for place, scan in enumerate(body.scans) if scan.atom.stream in self.heads]

    def _with_tables(self, body: _Body) -> _Body:
        def known(expr: Expr) -> Expr:
            return looked_up(expr, self.tables)

        return replace(body, conditions=tuple(map(known, body.conditions)), values=tuple(map(known, body.values)))

    def _empty(self, bodies: Sequence[_Body]) -> dict[str, pa.Table]:
        """The tables without rows. Types of recursive tables follow from those types: at first, all are unknown."""
        empty = {name: table.slice(0, 0) for name, table in self.tables.items()}
        known = {name: _table(self.attributes[name], [pa.nulls(0)] * len(self.attributes[name])) for name in self.heads}
        while True:
            before = known
            known = dict(self._typed(bodies, {**empty, **before}))
            if all(known[name].schema == before[name].schema for name in self.heads):
                return known

    def _typed(self, bodies: Sequence[_Body], tables: Mapping[str, pa.Table]) -> Iterator[tuple[str, pa.Table]]:
        for name in self.heads:
            kinds: list[pa.DataType] = []
            for body in (body for body in bodies if body.rule.head == name):
                bound = body.bindings([tables[scan.atom.stream] for scan in body.scans], None, lambda rows: None)
                own = [_type_of(value, bound) for value in body.values]
                for place, (kind, other) in enumerate(zip(kinds, own, strict=False)):
                    common = common_type([kind, other])
                    if common is None:
                        raise QueryError([_different_types(body, self.attributes[name][place], kind, other)])
                    own[place] = common
                kinds = own
            yield name, _table(self.attributes[name], [pa.nulls(0, kind) for kind in kinds])

    def _found(
        self,
        body: _Body,
        known: Mapping[str, pa.Table],
        growing: tuple[int, Mapping[str, pa.Table]] | None,
        kinds: Mapping[str, pa.Schema],
    ) -> tuple[str, pa.Table]:
        """The rows that a rule derives; with `growing`, from the new rows of the item at this place."""
        name, tables = body.rule.head, {**self.tables, **known}
        rows = [tables[scan.atom.stream] for scan in body.scans]
        first = None
        if growing is not None:
            first, new = growing
            rows[first] = new[body.scans[first].atom.stream]
        bound = body.bindings(rows, first, lambda rows: self._check_limit(name, rows))
        columns = [evaluate(value, lambda field: _value(field, bound), bound.num_rows) for value in body.values]
        found = _table(self.attributes[name], columns or [pa.nulls(bound.num_rows)])
        arrays = [convert(one_chunk(found.column(each.name)), each.type) for each in kinds[name]]
        return name, _distinct(pa.table(arrays, schema=kinds[name]), 0)

    def _new(self, known: Mapping[str, pa.Table], found: Sequence[tuple[str, pa.Table]]) -> dict[str, pa.Table]:
        """The rows that are not known yet, each once."""
        new = {}
        for name in self.heads:
            parts = [rows for head, rows in found if head == name]
            new[name] = _distinct(pa.concat_tables([known[name], *parts]), known[name].num_rows)
            self._check_limit(name, known[name].num_rows + new[name].num_rows)
        return new

    def _check_limit(self, name: str, rows: int) -> None:
        if self.limit is not None and rows > self.limit:
            raise LimitError(
                "too-many-table-rows",
                f"the rules of table `{name}` derive more than {counted(self.limit, 'row', 'rows')}",
                "narrow the condition; a rule that depends on itself needs a condition that ends it; "
                "`limits=ensue.Limits(matches=...)` raises the limit",
            )

    def _check_rounds(self, number: int, new: Mapping[str, pa.Table]) -> None:
        """Stops rules that never end before they reach the limit by a few rows per round."""
        if self.limit is not None and number >= MOST_ROUNDS:
            name = next(name for name in self.heads if new[name].num_rows)
            raise LimitError(
                "too-many-rounds",
                f"table `{name}` still has new rows after {MOST_ROUNDS:,} rounds of its rules",
                "add a condition that ends the rule; `limits=ensue.Limits(matches=None)` removes the limit",
            )


def _type_of(value: Expr, bound: pa.Table) -> pa.DataType:
    problems = [
        Problem("lineage-argument", "rows of tables have no lineage", part.span, hint="return a value of the row")
        for part in walk(value)
        if is_lineage(part)
    ]
    kind = pa.null()
    if not problems:
        kind = expression_type(value, lambda field: bound.schema.field(_name_of(field)).type, problems)
    if problems:
        raise QueryError(problems)
    return kind


def _different_types(body: _Body, name: str, kind: pa.DataType, other: pa.DataType) -> Problem:
    return Problem(
        "head-types",
        f"`{name}` of `{body.rule.head}` has type {describe(other)} here, but type {describe(kind)} in an earlier rule",
        body.rule.span,
        hint="convert one of them: rules with the same head must have the same types",
    )


def _table(names: Sequence[str], columns: Sequence[pa.Array]) -> pa.Table:
    """A table of these columns; without names, `columns` is at most one, whose length is the number of rows."""
    if not names:
        return pa.table({PRESENT: columns[0] if columns else pa.nulls(0)})
    return pa.table(list(columns), names=list(names))


def _distinct(table: pa.Table, known: int) -> pa.Table:
    """The rows from place `known` on that differ from all before them."""
    codes, _ = row_codes([one_chunk(column) for column in table.columns])
    # Codes are numbered as values appear, so a row is the first of its like iff no code before is as great.
    first = np.append(-1, np.maximum.accumulate(codes)[:-1]) < codes if len(codes) else np.zeros(0, bool)
    first[:known] = False
    return table.filter(pa.array(first)).combine_chunks()
