"""What MkDocs does not do by itself for this site.

- The reference of the Python API: one page for `ensue`, one for each of its namespaces, from the names they export.
- Links that leave docs/, such as `../examples/library/README.md`: what they lead to becomes part of the site, below
  `repository/`, so that the same link works on GitHub and on the site.
- Doctests in docstrings become blocks of code.
"""

from __future__ import annotations

import inspect
import posixpath
import re
from pathlib import Path
from types import ModuleType
from typing import Any

import griffe
from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page
from pymdownx.slugs import slugify

import ensue

ROOT = Path(__file__).parent.parent
DOCS = Path(__file__).parent
OUTSIDE = "repository"
API = "Python API: every name"

_LINK = re.compile(
    r"^(?P<indent> *)```.*?^(?P=indent)```$|(?P<before>!?\[(?:`[^`]*`|[^\]`])*\]\()(?P<target>[^)\s]+)\)|`[^`\n]+`",
    re.MULTILINE | re.DOTALL,
)
"""A link, or code, in which nothing is a link."""
_DOCTEST = re.compile(r"^>>> .*?(?=^\s*$|\Z)", re.MULTILINE | re.DOTALL)


# --- the reference of the Python API


def on_config(config: MkDocsConfig) -> MkDocsConfig:
    """Puts the pages of the reference into the group "Reference", and gives headings the anchors of GitHub."""
    config.mdx_configs["toc"]["slugify"] = slugify(case="lower")
    pages = [{module.__name__: _reference_uri(module)} for module in _modules()]
    for group in config.nav or ():
        if "Reference" in group:
            group["Reference"].append({API: pages})
    return config


def _modules() -> list[ModuleType]:
    """`ensue` and its namespaces."""
    members = (getattr(ensue, name) for name in ensue.__all__)
    return [ensue, *(member for member in members if isinstance(member, ModuleType))]


def _reference_uri(module: ModuleType) -> str:
    return f"reference/{module.__name__}.md"


def _reference_page(module: ModuleType) -> str:
    """The page of a module: what it is, then its functions, values and errors, each from its docstring."""
    names = getattr(module, "__all__", [name for name in vars(module) if not name.startswith("_")])
    found = {name: getattr(module, name) for name in sorted(names, key=str.lower)}
    groups: dict[str, list[str]] = {"Functions": [], "Classes": [], "Errors and warnings": [], "Constants": []}
    for name, value in found.items():
        if isinstance(value, ModuleType):
            continue
        if not inspect.isclass(value):
            group = "Functions" if callable(value) else "Constants"
        else:
            group = "Errors and warnings" if issubclass(value, Exception) else "Classes"
        groups[group].append(_entry(module, name, value))
    parts = [f"# `{module.__name__}`", inspect.cleandoc(_with_blocks(module.__doc__ or ""))]
    parts += [f"## {group}\n\n" + "\n\n".join(entries) for group, entries in groups.items() if entries]
    return "\n\n".join(parts) + "\n"


def _entry(module: ModuleType, name: str, value: Any) -> str:
    """The directive that mkdocstrings replaces with signature and docstring, by the place of the definition."""
    home = f"{value.__module__}.{value.__qualname__}" if callable(value) else f"{module.__name__}.{name}"
    return f'::: {home}\n    options:\n      heading: "{module.__name__}.{name}"\n      toc_label: "{name}"'


def _with_blocks(text: str) -> str:
    """A docstring with its doctests as blocks of code."""
    return _DOCTEST.sub(lambda found: f"```pycon\n{found[0].rstrip()}\n```\n", inspect.cleandoc(text))


class Doctests(griffe.Extension):  # type: ignore[misc]
    """Doctests of docstrings as blocks of code."""

    def on_instance(self, *, obj: griffe.Object, **_: Any) -> None:
        if obj.docstring:
            obj.docstring.value = _with_blocks(obj.docstring.value)


# --- links that leave docs/


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Adds the pages of the reference, and what links outside of docs/ lead to."""
    for module in _modules():
        files.append(File.generated(config, _reference_uri(module), content=_reference_page(module)))
    waiting = [DOCS / file.src_uri for file in files.documentation_pages() if file.generated_by is None]
    seen = set(waiting)
    while waiting:
        page = waiting.pop()
        for link in _LINK.finditer(page.read_text(encoding="utf-8")):
            target = _target_of(page, link["target"])
            if target is None or target in seen or target.is_relative_to(DOCS) or not target.is_file():
                continue
            seen.add(target)
            files.append(File.generated(config, _site_uri(target), abs_src_path=str(target)))
            if target.suffix == ".md":
                waiting.append(target)
    return files


def on_page_markdown(text: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Rewrites the links that leave docs/ or come from outside of it to what they lead to on the site."""
    path = _source_of(page.file)
    if path is None:
        return text

    def rewritten(found: re.Match[str]) -> str:
        target = _target_of(path, found["target"])
        if target is None or (target.is_relative_to(DOCS) and path.is_relative_to(DOCS)):
            return found[0]
        if target.is_dir():  # a site has no page for it
            return found["before"].removeprefix("[").removesuffix("](")
        place = posixpath.relpath(_site_uri(target), posixpath.dirname(page.file.src_uri))
        _, hash_sign, anchor = found["target"].partition("#")
        return f"{found['before']}{place}{hash_sign}{anchor})"

    return _LINK.sub(rewritten, text)


def _target_of(page: Path, link: str | None) -> Path | None:
    """The file that a relative link leads to; None for other links."""
    if link is None or re.match(r"[a-z]+:|#", link):
        return None
    return (page.parent / link.partition("#")[0]).resolve()


def _site_uri(path: Path) -> str:
    """Where a file of the repository is in the sources of the site."""
    if path.is_relative_to(DOCS):
        return path.relative_to(DOCS).as_posix()
    return f"{OUTSIDE}/{path.relative_to(ROOT).as_posix()}"


def _source_of(file: File) -> Path | None:
    """The file of the repository that a page is made from; None for the pages of the reference."""
    return Path(file.abs_src_path) if file.abs_src_path else None
