"""The pictures of docs/gallery.md: each exists, is small, and is made by docs/gallery.py from a report."""

from __future__ import annotations

import re
import shutil
import struct
import sys
from collections.abc import Iterator
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest

from reports.test_report import facts_in

ROOT = Path(__file__).parents[1]
DOCS = ROOT / "docs"
BROWSERS = ("chromium", "chromium-browser", "google-chrome")
PICTURE = re.compile(r"!\[([^\]]+)\]\(([^)]+\.(?:png|svg))\)")


@pytest.fixture(scope="module")
def gallery() -> Iterator[ModuleType]:
    spec = spec_from_file_location("gallery", DOCS / "gallery.py")
    assert spec is not None
    assert spec.loader is not None
    module = module_from_spec(spec)
    sys.modules["gallery"] = module
    spec.loader.exec_module(module)
    yield module
    del sys.modules["gallery"]


def header(png: Path) -> tuple[int, ...]:
    """Width, height, bits of a pixel and kind of colors."""
    data = png.read_bytes()
    assert data[:8] == b"\x89PNG\r\n\x1a\n"
    return struct.unpack(">IIBB", data[16:26])


def test_every_picture_of_the_page_is_made_by_the_script(gallery: ModuleType) -> None:
    found = PICTURE.findall((DOCS / "gallery.md").read_text(encoding="utf-8"))
    shown = [(DOCS / target).resolve() for _, target in found]
    made = [picture.file for picture in gallery.PICTURES]
    assert [path for path in shown if path.suffix == ".png"] == made
    assert [path for path in shown if path.suffix == ".svg"] == [ROOT / "examples" / "smart_home" / "home.svg"]
    assert sorted((DOCS / "images").glob("*.png")) == sorted(made)
    assert all(len(words) > 20 for words, _ in found), "each picture has a description"


def test_pictures_are_small_and_have_the_size_that_the_script_gives_them(gallery: ModuleType) -> None:
    assert len(gallery.PICTURES) <= 8
    for picture in gallery.PICTURES:
        assert header(picture.file) == (gallery.WIDTH, picture.height, 8, 3), picture.name
        assert picture.file.stat().st_size <= gallery.LARGEST, picture.name


def test_every_report_of_the_pages_is_written_by_them(gallery: ModuleType) -> None:
    """Pages name their reports in code; the pages are run by tests/test_docs.py."""
    for picture in gallery.PICTURES:
        name = picture.report.removesuffix(".html")
        if picture.source.startswith("examples/"):
            assert f'Path("{picture.report}")' in (ROOT / picture.source / "run.py").read_text(encoding="utf-8")
        else:
            assert name in (ROOT / picture.source).read_text(encoding="utf-8")


@pytest.mark.parametrize(
    "source",
    [
        "docs/report.md",
        "docs/processes.md",
        pytest.param("examples/incidents", marks=pytest.mark.slow),
        pytest.param("examples/openssh", marks=pytest.mark.slow),
        pytest.param("examples/library", marks=pytest.mark.slow),
    ],
)
def test_a_picture_selects_a_match_of_its_report(source: str, gallery: ModuleType, tmp_path: Path) -> None:
    gallery.write_reports(source, tmp_path)
    for picture in gallery.PICTURES:
        if picture.source == source:
            facts = facts_in((tmp_path / picture.report).read_text(encoding="utf-8"))
            assert 1 <= picture.match <= len(facts["matches"])


@pytest.mark.parametrize("kind", range(5))
def test_lines_of_a_png_are_read_with_every_filter(kind: int, gallery: ModuleType) -> None:
    """Filters a line as the PNG specification says, byte by byte, and reads it back."""
    above, line = (np.random.default_rng(seed).integers(0, 256, 12).astype(np.uint8).tobytes() for seed in (1, 2))

    def guess(place: int) -> int:
        left, corner = (line[place - 3], above[place - 3]) if place >= 3 else (0, 0)
        up = above[place]
        nearest = min((left, up, corner), key=lambda value: abs(left + up - corner - value))
        return (0, left, up, (left + up) // 2, nearest)[kind]

    filtered = bytes((value - guess(place)) % 256 for place, value in enumerate(line))
    assert gallery.unfiltered(kind, filtered, above, 3) == line


def test_unknown_pictures_are_refused(
    gallery: ModuleType, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "argv", ["gallery.py", "no-such-picture"])
    with pytest.raises(SystemExit):
        gallery.main()
    assert "unknown picture: no-such-picture; available: report, " in capsys.readouterr().err


@pytest.mark.slow
@pytest.mark.skipif(
    not any(map(shutil.which, BROWSERS)), reason="no Chromium: `make test` installs Debian's where it can"
)
def test_pictures_are_made_again(gallery: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """All but those of logs.md, which starts Spark. Fonts differ between machines, so pixels are not compared."""
    pytest.importorskip("playwright.sync_api")
    names = [picture.name for picture in gallery.PICTURES if picture.source != "docs/logs.md"]
    heights = [picture.height for picture in gallery.PICTURES if picture.name in names]
    monkeypatch.setattr(gallery, "IMAGES", tmp_path)
    monkeypatch.setattr(sys, "argv", ["gallery.py", *names])
    gallery.main()
    assert {path.stem for path in tmp_path.iterdir()} == {*names}
    assert [header(tmp_path / f"{name}.png") for name in names] == [(gallery.WIDTH, height, 8, 3) for height in heights]
