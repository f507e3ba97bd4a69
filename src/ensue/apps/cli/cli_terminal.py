"""The terminal that tables are written to."""

from __future__ import annotations

import os

from rich.console import Console

from ensue.apps.cli.terminal import table_width


def no_color() -> bool:
    """Whether the user wants no colours (see no-color.org); bold and italic text go with them."""
    return bool(os.environ.get("NO_COLOR"))


def open_console() -> Console:
    """Where tables are written: stdout, as wide as fits, in colour if it is a terminal and nobody minds."""
    return Console(width=table_width(), highlight=False, color_system=None if no_color() else "auto")
