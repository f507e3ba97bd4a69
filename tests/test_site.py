"""The documentation site builds without a broken link, loads nothing from elsewhere, and has every public name."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import yaml

import ensue

ROOT = Path(__file__).parent.parent
DOCS = ROOT / "docs"
GROUPS = ("Learn", "How-to", "Reference", "Explanation")


def nav() -> dict[str, list[str]]:
    """The pages of each group."""
    config: dict[str, Any] = yaml.safe_load((ROOT / "mkdocs.yml").read_text(encoding="utf-8"))
    return {name: pages for item in config["nav"] for name, pages in item.items() if name in GROUPS}


def test_every_page_is_in_one_group() -> None:
    grouped = [page for pages in nav().values() for page in pages]
    assert tuple(nav()) == GROUPS
    assert sorted(grouped) == sorted({path.relative_to(DOCS).as_posix() for path in DOCS.rglob("*.md")} - {"index.md"})


def test_first_page_has_the_groups_of_the_site() -> None:
    _, *parts = re.split(r"^## (.+)$", (DOCS / "index.md").read_text(encoding="utf-8"), flags=re.MULTILINE)
    found = {
        name: re.findall(r"^\| \[[^\]]+\]\(([^)]+)\) \|", text, re.MULTILINE)
        for name, text in zip(parts[::2], parts[1::2], strict=True)
    }
    assert found == nav()


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("site")
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(folder)]
    environment = os.environ | {"NO_MKDOCS_2_WARNING": "1"}
    ran = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)
    assert ran.returncode == 0, ran.stderr
    return folder


@pytest.mark.slow
def test_site_has_every_page_and_a_search(site: Path) -> None:
    for page in (path for pages in nav().values() for path in pages):
        assert (site / page.removesuffix(".md") / "index.html").is_file()
    assert (site / "search" / "search_index.json").is_file()


@pytest.mark.slow
def test_reference_has_every_public_name_with_its_docstring(site: Path) -> None:
    modules = [ensue, *(value for name in ensue.__all__ if isinstance(value := getattr(ensue, name), ModuleType))]
    for module in modules:
        page = (site / "reference" / module.__name__ / "index.html").read_text(encoding="utf-8")
        headings = set(re.findall(rf"\b{re.escape(module.__name__)}\.(\w+)\s*<", page))
        names = {name for name in module.__all__ if not isinstance(getattr(module, name), ModuleType)}
        assert names - headings == set()


@pytest.mark.slow
def test_pages_load_nothing_from_elsewhere(site: Path) -> None:
    loaded = re.compile(r"<(?:script|img|link|iframe)\b[^>]*\b(?:src|href)=\"(?:https?:)?//[^\"]*\"")
    for page in site.rglob("*.html"):
        found = [tag for tag in loaded.findall(page.read_text(encoding="utf-8")) if 'rel="canonical"' not in tag]
        assert found == [], page.relative_to(site)
