"""Text to statements, with all checks that need no data: `ensue check` needs no more, and so loads no engine."""

from __future__ import annotations

from ensue.algebra.check import check_constraints, check_query, check_statement_names
from ensue.algebra.hierarchies import check_hierarchies
from ensue.algebra.nodes import Statements
from ensue.algebra.rule_checks import check_rules
from ensue.algebra.state_checks import check_states
from ensue.algebra.streams import check_streams
from ensue.errors import QueryError
from ensue.lang.parser import parse_statements


def parse_checked(text: str, name: str = "query") -> Statements:
    """Parses statements and checks what can be checked without data; `name` is cited in errors."""
    statements = parse_statements(text, name)
    problems = [*check_constraints(statements.constraints)]
    problems += check_hierarchies(statements.hierarchies)
    problems += [problem for node in statements.statements for problem in check_query(node)]
    problems += check_statement_names(
        [(node.name, node.span) for node in statements.results if isinstance(node.name, str)]
    )
    problems += check_streams(statements)
    problems += check_rules(statements)
    problems += check_states(statements.states)
    if problems:
        raise QueryError(problems, statements.source)
    return statements
