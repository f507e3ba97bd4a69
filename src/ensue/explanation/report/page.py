"""The page itself: one file with its styles, its script and its data, which asks the network for nothing."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from html import escape
from importlib.resources import files
from pathlib import Path
from typing import Any

from ensue.errors import counted

FRAME_HEIGHT = 760
"""Pixels of the page in a notebook."""


@dataclass(frozen=True)
class HtmlReport:
    """A run as one HTML page: `save` writes it, a notebook shows it, `facts` is what it says.

    `facts` holds nothing but what JSON can.
    """

    facts: Mapping[str, Any] = field(repr=False)

    @cached_property
    def html(self) -> str:
        """The whole page."""
        assets = files("ensue.explanation.report").joinpath("assets")
        parts = {
            "title": escape(str(self.facts["title"])),
            "style": assets.joinpath("page.css").read_text(encoding="utf-8"),
            "script": assets.joinpath("page.js").read_text(encoding="utf-8"),
            "facts": embedded(self.facts),
        }
        page = assets.joinpath("page.html").read_text(encoding="utf-8")
        first, *rest = page.split("{{")
        return first + "".join(parts[name] + text for name, text in (piece.split("}}", 1) for piece in rest))

    def save(self, path: str | Path) -> Path:
        """Writes the page to a file and gives its path."""
        target = Path(path)
        target.write_text(self.html, encoding="utf-8")
        return target

    def _repr_html_(self) -> str:
        """The page in a frame of its own, so that its styles and those of a notebook do not meet."""
        return (
            f'<iframe title="{escape(str(self.facts["title"]), quote=True)}" sandbox="allow-scripts" '
            f'style="width:100%;height:{FRAME_HEIGHT}px;border:0" srcdoc="{escape(self.html, quote=True)}"></iframe>'
        )

    def __repr__(self) -> str:
        said = (f"{one['name']!r}: {counted(one['count'], 'match', 'matches')}" for one in self.facts["patterns"])
        return f"{type(self).__name__}({', '.join(said)})"


def embedded(facts: Mapping[str, Any]) -> str:
    """A value as JSON that can stand in a script: nothing in it ends the script or begins a comment.

    >>> embedded({"name": "</script><!--"})
    '{"name":"\\\\u003c/script\\\\u003e\\\\u003c!--"}'
    """
    text = json.dumps(facts, allow_nan=False, separators=(",", ":"))
    return text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")
