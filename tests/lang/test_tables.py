"""The parser's tables on disk: made once, never out of date, never in the way."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest
from lark import Lark

from inside import _STARTS, tables


@pytest.fixture
def places(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[Path]:
    """A package and a home of its own, so that no tables are there yet."""
    package = tmp_path / "package"
    package.mkdir()
    (package / "grammar.lark").write_text(tables.GRAMMAR.read_text(encoding="utf-8"), encoding="utf-8")
    monkeypatch.setattr(tables, "GRAMMAR", package / "grammar.lark")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setattr(sys, "dont_write_bytecode", False)
    return [package / "__pycache__", tmp_path / "cache" / "ensue"]


@pytest.fixture
def made(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What parsers were made of, rather than read."""
    grammars: list[str] = []

    class Counted(Lark):
        def __init__(self, grammar: str, **options: object) -> None:
            grammars.append(grammar)
            super().__init__(grammar, **options)

    monkeypatch.setattr(tables, "Lark", Counted)
    return grammars


def works(parser: Lark) -> bool:
    return parser.parse("PATTERN SEQ(A a, B b) WITHIN 5", start="statements").data == "statements"


def test_made_once_and_read_from_then_on(places: list[Path], made: list[str]) -> None:
    assert works(tables.load_parser(_STARTS))
    assert [file.name for file in places[0].iterdir()] == [tables.NAME]
    assert works(tables.load_parser(_STARTS))
    assert len(made) == 1
    assert not places[1].exists()


def test_another_grammar_or_a_broken_file_is_made_again(places: list[Path], made: list[str]) -> None:
    tables.load_parser(_STARTS)
    grammar = tables.GRAMMAR.read_text(encoding="utf-8")
    tables.GRAMMAR.write_text(f"{grammar}\n// changed\n", encoding="utf-8")
    assert works(tables.load_parser(_STARTS))
    kept = places[0] / tables.NAME
    kept.write_bytes(kept.read_bytes()[:5000])
    assert works(tables.load_parser(_STARTS))
    kept.write_bytes(b"not a pickle")
    assert works(tables.load_parser(_STARTS))
    assert len(made) == 4
    assert works(tables.load_parser(_STARTS))
    assert len(made) == 4


def test_without_a_folder_to_write_to_the_users_cache_is_taken(places: list[Path], made: list[str]) -> None:
    places[0].write_text("a file where the folder would be")
    tables.load_parser(_STARTS)
    assert works(tables.load_parser(_STARTS))
    assert len(made) == 1
    assert [file.name for file in places[1].iterdir()] == [tables.NAME]


def test_without_any_folder_tables_are_made_each_time(places: list[Path], made: list[str]) -> None:
    for folder in places:
        folder.parent.mkdir(exist_ok=True)
        folder.write_text("a file where the folder would be")
    assert works(tables.load_parser(_STARTS))
    assert works(tables.load_parser(_STARTS))
    assert len(made) == 2


def test_who_wants_no_bytecode_beside_sources_gets_no_tables_there(
    places: list[Path], made: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    tables.load_parser(_STARTS)
    assert not places[0].exists()
    assert places[1].exists()


@pytest.mark.skipif(os.name == "nt", reason="folders of Windows have no such modes")
@pytest.mark.parametrize("shared", ["folder", "file"])
def test_tables_that_others_can_write_are_not_read(places: list[Path], made: list[str], shared: str) -> None:
    tables.load_parser(_STARTS)
    kept = places[0] / tables.NAME
    assert not kept.stat().st_mode & 0o022
    tables.load_parser(_STARTS)
    assert len(made) == 1
    (places[0] if shared == "folder" else kept).chmod(0o777)
    assert works(tables.load_parser(_STARTS))
    assert works(tables.load_parser(_STARTS))
    assert len(made) == 2
    assert (places[1] / tables.NAME).exists() == (shared == "folder")
