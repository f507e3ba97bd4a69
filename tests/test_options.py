"""One name per option on all commands: the same meaning has the same name everywhere."""

from __future__ import annotations

from collections import defaultdict
from typing import Any

import pytest
import typer.main
from typer.testing import CliRunner

from inside import app

OPTIONS = {
    "the events: a file, a folder, stdin, or one per stream": "--events",
    "the rows of a TABLE": "--table",
    "the columns of a text file": "--parse",
    "the column with the time": "--time",
    "the column with the stream": "--type",
    "the column with the end": "--end",
    "the columns that order events at the same time": "--order",
    "the columns that group events": "--key",
    "the column with the probability": "--probability",
    "the column with the alternatives": "--alternatives",
    "which pattern": "--pattern",
    "the form of the results": "--format",
    "the file to write": "--output",
    "the folder to write to": "--to",
    "whether files may be overwritten": "--force",
    "results that complete after this time": "--since",
    "results that complete until this time": "--until",
    "how many rows are shown": "--rows",
    "how many keys are shown": "--keys",
    "how many near misses are shown": "--examples",
    "how many matches are too many": "--limit",
    "how many events are generated": "--size",
    "how many orders are generated": "--orders",
    "the seed of random numbers": "--seed",
    "how often something is measured": "--runs",
    "on Spark or in this process": "--on",
    "the title of a page": "--title",
    "whether only to look": "--check",
    "whether only to describe": "--dry-run",
    "whether to show rewrites": "--stages",
    "whether a checkpoint may be of another program": "--upgrade",
    "whether to show Spark's log": "--verbose",
    "the version": "--version",
    "help": "--help",
    "the completion script, installed": "--install-completion",
    "the completion script, printed": "--show-completion",
}
"""A new option has a line here, if no line has its meaning; otherwise it has the name of that line."""

ALIASES = {("init", "--data"): "--events"}
"""Other names of options, by command. docs/cli.md has them."""


def options() -> list[tuple[str, Any]]:
    """The options of all commands, each with the name of its command."""
    group: Any = typer.main.get_command(app)
    commands = {"": group, **group.commands}
    return [
        (name, option)
        for name, command in commands.items()
        for option in command.params
        if option.param_type_name == "option"
    ]


def test_each_meaning_has_one_name() -> None:
    names = set(OPTIONS.values())
    assert len(names) == len(OPTIONS)
    used = set()
    for command, option in options():
        first, *others = option.opts
        assert first in names, f"`{first}` of `{command}`: is its meaning in OPTIONS already?"
        assert {(command, other): first for other in others} == {
            alias: name for alias, name in ALIASES.items() if alias[0] == command and name == first
        }
        assert option.secondary_opts == []
        used.add(first)
    assert names - used <= {"--help"}


def test_a_name_has_one_meaning() -> None:
    """What an option takes is the same on all commands, and two options never have the same help."""
    kinds, names = defaultdict(set), defaultdict(set)
    for _, option in options():
        kinds[option.opts[0]].add(option.metavar)
        names[option.help].add(option.opts[0])
    assert {name: found for name, found in kinds.items() if len(found) > 1} == {}
    assert {text: found for text, found in names.items() if len(found) > 1} == {}


@pytest.mark.parametrize(
    ("command", "former", "name"),
    [
        ("why-not", "--data", "--events"),
        ("why-not", "--name=pair", "--pattern"),
        ("demo", "--events", "--output"),
        ("demo", "--save", "--to"),
    ],
)
def test_former_names(command: str, former: str, name: str) -> None:
    result = CliRunner().invoke(app, [command, former, "x"])
    assert (result.exit_code, result.stdout) == (2, "")
    said = f"error[renamed-option]: unknown option `{former.partition('=')[0]}`; it is now called `{name}`\n"
    assert result.stderr == said
