"""The gate: all checks of a program that need no data. Later phases assume a well-formed program.

Checks that need the schema of the events (fields, types, time, keys) run when a query is planned.
"""

from __future__ import annotations

from ensue.analysis.declarations import check_streams, declarations, unclear_traces, used_streams
from ensue.check.fields import check_expressions
from ensue.check.query import check_constraints, check_query, check_statement_names
from ensue.check.rule_problems import check_rules, check_tables
from ensue.check.state_problems import check_states
from ensue.errors import Problem, QueryError
from ensue.lower.contexts import resolve_contexts
from ensue.lower.phases import CheckedProgram, fields_of, has_forms_to_lower, lowered_forms
from ensue.lower.rulesets import action_query, with_keys
from ensue.nodes.patterns import CONTEXTS, PatternQuery, Statements
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
    if statements.states:
        problems += check_states(statements.states)
    return problems


def _lowered_problems(statements: Statements) -> list[Problem]:
    """The problems of the lowered rules, ON statements and contexts, and of constraints with the patterns."""
    problems: list[Problem] = []
    lowered = statements
    if has_forms_to_lower(statements):
        ruleset = statements.ruleset or Ruleset()
        problems += check_tables(ruleset)
        problems += [problem for action in ruleset.actions for problem in _query_problems(action_query(action))]
        problems += [problem for query in statements.statements for problem in _context_problems(query)]
        if problems:
            return problems
        lowered = lowered_forms(statements)
        written = {id(query) for query in statements.statements}
        made = [query for query in with_keys(lowered.statements) if id(query) not in written]
        problems += [problem for query in made for problem in check_query(query) or check_expressions(query)]
        problems += check_streams(lowered)
    if statements.constraints:
        declared = declarations(lowered.statements)
        # The keys of rules may change once the columns of tables are known.
        plain = [query for query in statements.statements if not used_streams(query, declared)]
        problems += unclear_traces(statements.constraints, plain)
    return problems


def _query_problems(query: PatternQuery) -> list[Problem]:
    """The problems of a query as written. With a context, expressions are checked after lowering, which adds lists."""
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
