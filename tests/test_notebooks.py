"""The notebooks run from the first cell to the last and give the outputs that are saved in them."""

from __future__ import annotations

from pathlib import Path

import nbformat
import pytest
from nbclient import NotebookClient

pytestmark = pytest.mark.slow

FOLDER = Path(__file__).parents[1] / "examples" / "notebooks"
MOST_BYTES = 300_000
every_notebook = [
    pytest.param("01-first-steps.ipynb"),
    # Starts a Spark of its own.
    pytest.param("02-spark.ipynb", marks=pytest.mark.soak("pages")),
]


def outputs_of(notebook: nbformat.NotebookNode) -> list[str]:
    """What each cell has put out, as text, however it was cut: of a page, that there is one.

    What goes to stderr is left out: the first run on a machine says there that it compiles.
    """
    return ["".join(map(said, cell.get("outputs", ()))) for cell in notebook.cells]


def said(output: nbformat.NotebookNode) -> str:
    if output.output_type == "stream":
        return str(output.text) if output.name == "stdout" else ""
    assert output.output_type == "execute_result", output
    page = " with a page" if "<iframe" in output.data.get("text/html", "") else ""
    return str(output.data["text/plain"]) + page


@pytest.mark.parametrize("name", every_notebook)
def test_notebook_gives_what_is_saved(name: str, tmp_path: Path) -> None:
    notebook = nbformat.read(FOLDER / name, as_version=4)
    saved = outputs_of(notebook)
    client = NotebookClient(notebook, timeout=1200, kernel_name="python3", resources={"metadata": {"path": tmp_path}})
    client.execute()
    assert outputs_of(notebook) == saved
    assert sum(map(bool, saved)) > 3, "outputs are saved with it"


def test_notebooks_are_small_and_all_tested() -> None:
    sizes = {path.name: path.stat().st_size for path in FOLDER.glob("*.ipynb")}
    assert sorted(sizes) == sorted(str(parameter.values[0]) for parameter in every_notebook)
    assert max(sizes.values()) < MOST_BYTES


def test_the_first_one_shows_a_report() -> None:
    notebook = nbformat.read(FOLDER / "01-first-steps.ipynb", as_version=4)
    assert sum(text.endswith(" with a page") for text in outputs_of(notebook)) == 1
