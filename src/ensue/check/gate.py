"""The gate: all checks of a program that need no data. Later phases assume a well-formed program.

Checks that need the schema of the events (fields, types, time, keys) run when a query is planned.
"""

from __future__ import annotations

from collections.abc import Iterable

from ensue.analysis.declarations import check_streams, declarations, unclear_traces, used_streams
from ensue.analysis.scopes import has_spans
from ensue.check.fields import check_expressions
from ensue.check.query import check_constraints, check_query, check_statement_names
from ensue.check.rule_problems import action_lookup, check_lookup, check_rules, check_tables, missing_base_case
from ensue.check.selections import check_selections
from ensue.check.state_problems import check_states
from ensue.errors import Problem, QueryError, warn
from ensue.lower.contexts import resolve_contexts
from ensue.lower.phases import CheckedProgram, fields_of, has_forms_to_lower, lowered_forms
from ensue.lower.rulesets import action_query, resolve_alternatives, rule_problems, table_queries, with_keys
from ensue.lower.spans import span_problems, with_spans
from ensue.nodes.expressions import Expr, InTable
from ensue.nodes.expressions import walk as walk_expression
from ensue.nodes.patterns import CONTEXTS, Event, PatternQuery, Statements, result_expressions, walk
from ensue.nodes.rules import Ruleset
from ensue.nodes.uncertainty import check_hierarchies
from ensue.text.citations import joined, written_out


def check(statements: Statements) -> list[Problem]:
    """All problems of a program that can be found without data, in the order of the text.

    Rules and contexts are lowered and checked again only if they are well-formed. The checks of a kind of statement run
    only if the program has such a statement.

    >>> from ensue.text.parser import parse_statements
    >>> [problem.code for problem in check(parse_statements("PATTERN SEQ(A a, NOT B a); STATE s OF x IN (y, y)"))]
    ['open-scope', 'variable-two-streams', 'state-repeats', 'state-domain']
    """
    problems = _written_problems(statements) or _lowered_problems(statements)
    return sorted(problems, key=lambda problem: problem.span.start if problem.span is not None else 0)


def checked(statements: Statements) -> CheckedProgram:
    """Check the statements. Raises a `QueryError` with all problems. A program that is already checked is returned.

    >>> from ensue.text.parser import parse_statements
    >>> program = checked(parse_statements("PATTERN SEQ(A a, B b) WITHIN 5"))
    >>> checked(program) is program
    True
    """
    if isinstance(statements, CheckedProgram):
        return statements
    if statements.source is None:
        statements = joined([statements])
    if problems := check(statements):
        cited = written_out(statements)
        raise QueryError(check(cited) or problems, cited.source)
    if statements.ruleset is not None and (message := missing_base_case(statements.ruleset)):
        warn(message)
    return CheckedProgram(**fields_of(statements))


def _written_problems(statements: Statements) -> list[Problem]:
    problems: list[Problem] = []
    if statements.constraints:
        problems += check_constraints(statements.constraints)
    if statements.hierarchies:
        problems += check_hierarchies(statements.hierarchies)
    problems += [problem for query in statements.statements for problem in _query_problems(query)]
    if len(statements.statements) > 1:
        problems += check_statement_names(statements.results)
    if any(query.declares for query in statements.statements):
        problems += check_streams(statements)
    if statements.ruleset is not None:
        problems += check_rules(statements)
    if statements.selections:
        problems += check_selections(statements)
    if statements.states:
        problems += check_states(statements.states)
    for lookup in () if problems else _lookups(statements.statements):
        problems += check_lookup(lookup, statements.ruleset)
    return problems


def _lowered_problems(statements: Statements) -> list[Problem]:
    """The problems of the lowered rules, ON statements and contexts, and of constraints with the patterns."""
    problems: list[Problem] = []
    lowered = statements
    if has_forms_to_lower(statements):
        ruleset = statements.ruleset or Ruleset()
        problems += check_tables(ruleset)
        acted = [action_query(action) for action in ruleset.actions]
        problems += [problem for query in acted for problem in _query_problems(query)]
        problems += [problem for lookup in _lookups(acted) for problem in action_lookup(lookup)]
        problems += [problem for query in statements.statements for problem in _context_problems(query)]
        choices = resolve_alternatives(statements)
        problems += rule_problems(choices)
        if problems:
            return problems
        lowered = lowered_forms(statements)
        written = {id(query) for query in statements.statements}
        made = [query for query in with_keys(lowered.statements) if id(query) not in written]
        checked_only = table_queries(choices)
        for query in (*made, *checked_only):
            problems += check_query(query) or check_expressions(query)
        problems += [
            problem for lookup in _lookups((*made, *checked_only)) for problem in check_lookup(lookup, ruleset)
        ]
        problems += check_streams(lowered)
    if statements.constraints:
        declared = declarations(lowered.statements)
        # The keys of rules may change once the columns of tables are known.
        plain = [query for query in statements.statements if not used_streams(query, declared)]
        problems += unclear_traces(statements.constraints, plain)
    return problems


def _lookups(queries: Iterable[PatternQuery]) -> list[InTable]:
    """Every `x IN table` of some queries."""
    expressions: list[Expr | None] = []
    for query in queries:
        expressions += [query.where, *result_expressions(query)]
        expressions += [part.predicate for part in walk(query.pattern) if isinstance(part, Event)]
    found = (part for expr in expressions if expr is not None for part in walk_expression(expr))
    return [part for part in found if isinstance(part, InTable)]


def _query_problems(query: PatternQuery) -> list[Problem]:
    """The problems of a query as written. With a context, expressions are checked after lowering, which adds lists."""
    if query.returns and has_spans(query):
        if problems := span_problems(query):
            return [*problems]
        query = with_spans(query)
    return check_query(query) or ([] if query.policy in CONTEXTS else check_expressions(query))


def _context_problems(query: PatternQuery) -> tuple[Problem, ...]:
    """The problems of the policy of a query: why it cannot be lowered."""
    if query.policy not in CONTEXTS:
        return ()
    try:
        resolve_contexts(Statements((query,)))
    except QueryError as error:
        return error.problems
    return ()
