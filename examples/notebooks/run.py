"""Runs the notebooks from the first cell to the last, without Jupyter, and writes each as a page with its outputs.

python examples/notebooks/run.py
"""

from __future__ import annotations

import argparse
import ast
import json
from collections.abc import Iterator
from contextlib import redirect_stdout
from html import escape
from io import StringIO
from pathlib import Path
from typing import Any

from markdown_it import MarkdownIt

import ensue

NOTEBOOKS = sorted(Path(__file__).parent.glob("*.ipynb"))
QUICK_START = {"spark.driver.defaultJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC -Xss16m"}
"""Java options for a short run: without them, Java spends half the time on optimizing code that runs a few times."""

STYLE = """
body { max-width: 60rem; margin: 2rem auto; padding: 0 1rem; font: 16px/1.5 system-ui, sans-serif }
pre { padding: .6rem .8rem; overflow-x: auto; font-size: 13px; line-height: 1.4 }
pre.code { background: #f3f4f6; border-radius: 4px }
table { border-collapse: collapse; font-size: 14px } td, th { padding: .2rem .7rem; text-align: right }
iframe { width: 100% }
"""


def page_of(path: Path) -> str:
    """Runs a notebook and returns it as a page."""
    cells = json.loads(path.read_text(encoding="utf-8"))["cells"]
    head = f'<!doctype html><html lang="en"><meta charset="utf-8"><title>{path.stem}</title><style>{STYLE}</style>'
    return "\n".join((head, *_parts(cells))) + "\n</html>\n"


def _parts(cells: list[dict[str, Any]]) -> Iterator[str]:
    names: dict[str, Any] = {"__name__": "__main__"}
    for cell in cells:
        source = "".join(cell["source"])
        if cell["cell_type"] == "markdown":
            yield MarkdownIt().render(source)
            continue
        yield f'<pre class="code">{escape(source)}</pre>'
        printed, value = run_cell(source, names)
        if printed:
            yield f"<pre>{escape(printed)}</pre>"
        if value is not None:
            yield value._repr_html_() if hasattr(value, "_repr_html_") else f"<pre>{escape(repr(value))}</pre>"


def run_cell(source: str, names: dict[str, Any]) -> tuple[str, Any]:
    """Runs a cell. Returns what it prints, and the value of its last line if that is an expression."""
    tree = ast.parse(source)
    last = tree.body.pop() if tree.body and isinstance(tree.body[-1], ast.Expr) else None
    printed = StringIO()
    with redirect_stdout(printed):
        exec(compile(tree, "<cell>", "exec"), names)
        value = eval(compile(ast.Expression(last.value), "<cell>", "eval"), names) if last is not None else None
    return printed.getvalue(), value


def main() -> None:
    parser = argparse.ArgumentParser(description="Runs the notebooks and writes each as a page with its outputs.")
    parser.add_argument("--output", type=Path, default=Path("notebooks"), help="the folder to write")
    folder: Path = parser.parse_args().output
    folder.mkdir(parents=True, exist_ok=True)
    ensue.spark_session("notebooks", config=QUICK_START)  # The notebooks use this session.
    for notebook in NOTEBOOKS:
        path = folder / f"{notebook.stem}.html"
        path.write_text(page_of(notebook), encoding="utf-8")
        print(f"Written to {path}")


if __name__ == "__main__":
    main()
