"""Makes the pictures of reports in docs/images: runs the pages and examples that write reports, and opens these reports
in Chromium. `make gallery` makes all of them; `python docs/gallery.py NAME ...` some of them.

All data is made up and drawn with fixed seeds, so the pictures are the same on every machine with the same fonts.
"""

from __future__ import annotations

import argparse
import contextlib
import io
import shutil
import struct
import subprocess
import sys
import tempfile
import zlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

import ensue

DOCS = Path(__file__).parent
ROOT = DOCS.parent
IMAGES = DOCS / "images"
WIDTH = 1180
LARGEST = 150_000
"""The maximum size of a picture in bytes."""

BROWSERS = ("chromium", "chromium-browser", "google-chrome")
QUIET = (
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
)
"""Chromium asks nobody for anything."""


@dataclass(frozen=True, slots=True)
class Picture:
    """A picture of a report: the file that the page or example writes, the chosen match, and the height in pixels.

    If `button` is given, it is clicked first.
    """

    name: str
    source: str
    report: str
    match: int
    height: int
    button: str | None = None

    @property
    def file(self) -> Path:
        return IMAGES / f"{self.name}.png"


PICTURES = (
    Picture("report", "docs/report.md", "orders.html", 5, 1240),
    Picture("logs-brute-force", "docs/logs.md", "brute_force.html", 2, 900, "Zoom to this match"),
    Picture("logs-new-place", "docs/logs.md", "new_place.html", 3, 900),
    Picture("processes-deadlines", "docs/processes.md", "deadlines.html", 2, 1000),
    Picture("processes-violations", "docs/processes.md", "violations.html", 2, 1000),
    Picture("incidents", "examples/incidents", "incidents.html", 24, 1000),
    Picture("openssh", "examples/openssh", "openssh.html", 12, 1000, "Zoom to this match"),
    Picture("library", "examples/library", "library.html", 84, 1000, "Zoom to this match"),
)

ARGUMENTS: Mapping[str, tuple[str, ...]] = {
    "examples/incidents": (str(ROOT / "examples/incidents/made_up.csv.gz"),),
    "examples/openssh": (str(ROOT / "examples/openssh/made_up.log"),),
    "examples/library": ("--batch",),
}
"""The arguments of examples: pictures need neither real data nor Spark."""


# --- the reports


def write_reports(source: str, folder: Path) -> None:
    """Runs what writes the reports of a source, in this folder."""
    if source == "docs/report.md":
        write_orders(folder / "orders.html")
    elif source.endswith(".md"):
        play(ROOT / source, folder)
    else:
        command = [sys.executable, str(ROOT / source / "run.py"), *ARGUMENTS[source]]
        subprocess.run(command, cwd=folder, check=True, stdout=subprocess.DEVNULL)


def write_orders(path: Path) -> None:
    """Writes the report of the demo's orders with the patterns of the quickstart's shop."""
    from ensue.apps.cli.orders import draw_orders

    program = """
    PATTERN shipped_unpaid SEQ(Placed p, NOT Paid y, Shipped s) PARTITION BY order_id WITHIN 14 days;
    PATTERN waiting SEQ(Paid y, NOT OR(Shipped s, Cancelled c)) PARTITION BY order_id WITHIN 2 days;
    PATTERN in_vain SEQ(Packed k, NOT Shipped s, Cancelled c) PARTITION BY order_id WITHIN 14 days;
    PATTERN unanswered SEQ(Complaint c [severity >= 3], NOT Reply r) PARTITION BY order_id WITHIN 1 day
    """
    ensue.report(draw_orders(400, 7), program, time="t", type="type", title="Orders", most_keys=9).save(path)


def play(page: Path, folder: Path) -> None:
    """Runs the Python blocks of a page, as its reader would."""
    sys.path.insert(0, str(ROOT / "tests"))
    from pages import blocks_of

    names: dict[str, object] = {"__name__": "__main__"}
    with contextlib.chdir(folder), contextlib.redirect_stdout(io.StringIO()):
        for block in blocks_of(page):
            if block.word == "python":
                exec(compile("\n" * block.first + block.text, str(page), "exec"), names)


# --- the pictures


def take(pictures: Iterable[Picture], folder: Path) -> None:
    """Opens each report at its match, and writes what is on the screen."""
    from playwright.sync_api import sync_playwright

    browser = next(filter(None, map(shutil.which, BROWSERS)), None)
    if browser is None:
        sys.exit("gallery.py: Chromium not found; on Debian: apt-get install chromium")
    with sync_playwright() as driver:
        chromium = driver.chromium.launch(executable_path=browser, args=QUIET)
        for picture in pictures:
            context = chromium.new_context(
                offline=True, viewport={"width": WIDTH, "height": picture.height}, color_scheme="light"
            )
            page = context.new_page()
            page.goto(f"{(folder / picture.report).as_uri()}#match={picture.match}")
            page.wait_for_selector("#details h3")
            if picture.button is not None:
                page.get_by_role("button", name=picture.button).click()
            page.evaluate(
                "() => new Promise(done => { scrollTo(0, 0); requestAnimationFrame(() => setTimeout(done, 100)); })"
            )
            data = with_palette(page.screenshot(animations="disabled"))
            context.close()
            if len(data) > LARGEST:
                sys.exit(f"gallery.py: {picture.name} has {len(data):,} bytes; the maximum is {LARGEST:,}")
            picture.file.write_bytes(data)
            print(f"Written to {picture.file}: {len(data):,} bytes")
        chromium.close()


def with_palette(png: bytes) -> bytes:
    """Returns a picture of Chromium with the 256 most frequent colors; all others become the nearest of these."""
    pixels = pixels_of(png)
    height, width, _ = pixels.shape
    codes = pixels.astype(np.uint32) @ np.array([1 << 16, 1 << 8, 1], np.uint32)
    found, places, counts = np.unique(codes.ravel(), return_inverse=True, return_counts=True)
    colors = np.stack([found >> 16, found >> 8 & 255, found & 255], axis=1).astype(np.int32)
    palette = colors[np.argsort(-counts, kind="stable")[:256]]
    nearest = np.empty(len(colors), np.uint8)
    for first in range(0, len(colors), 4096):
        part = colors[first : first + 4096]
        nearest[first : first + 4096] = ((part[:, None] - palette[None]) ** 2).sum(axis=2).argmin(axis=1)
    rows = np.zeros((height, width + 1), np.uint8)
    rows[:, 1:] = nearest[places].reshape(height, width)
    chunks = (
        (b"IHDR", struct.pack(">IIBBBBB", width, height, 8, 3, 0, 0, 0)),
        (b"PLTE", palette.astype(np.uint8).tobytes()),
        (b"IDAT", zlib.compress(rows.tobytes(), 9)),
        (b"IEND", b""),
    )
    return b"\x89PNG\r\n\x1a\n" + b"".join(
        struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data)) for kind, data in chunks
    )


def pixels_of(png: bytes) -> NDArray[np.uint8]:
    """Reads a PNG with 8 bits a channel and no interlacing, as Chromium writes it; without an alpha channel."""
    place, data, header = 8, b"", b""
    while place < len(png):
        size, kind = struct.unpack(">I4s", png[place : place + 8])
        content = png[place + 8 : place + 8 + size]
        header, data = (content if kind == b"IHDR" else header), (data + content if kind == b"IDAT" else data)
        place += size + 12
    width, height, depth, color, *_, interlaced = struct.unpack(">IIBBBBB", header)
    if depth != 8 or color not in (2, 6) or interlaced:
        raise ValueError("expected a PNG with 8 bits a channel, in RGB or RGBA, without interlacing")
    channels = 3 if color == 2 else 4
    lines = np.frombuffer(zlib.decompress(data), np.uint8).reshape(height, 1 + width * channels)
    rows, above = [], bytes(width * channels)
    for line in lines:
        above = unfiltered(int(line[0]), line[1:].tobytes(), above, channels)
        rows.append(np.frombuffer(above, np.uint8))
    return np.stack(rows).reshape(height, width, channels)[:, :, :3]


def unfiltered(kind: int, line: bytes, above: bytes, channels: int) -> bytes:
    """Undoes the filter of a line (PNG specification, section 9)."""
    if kind == 0:
        return line
    if kind == 2:
        return (np.frombuffer(line, np.uint8) + np.frombuffer(above, np.uint8)).tobytes()
    out = bytearray(line)
    for place, value in enumerate(line):
        left, corner = (out[place - channels], above[place - channels]) if place >= channels else (0, 0)
        up = above[place]
        if kind == 1:
            guess = left
        elif kind == 3:
            guess = (left + up) // 2
        else:
            to_left, to_up, to_corner = abs(up - corner), abs(left - corner), abs(left + up - 2 * corner)
            guess = left if to_left <= to_up and to_left <= to_corner else up if to_up <= to_corner else corner
        out[place] = (value + guess) & 255
    return bytes(out)


def main() -> None:
    names = [picture.name for picture in PICTURES]
    parser = argparse.ArgumentParser(description="Makes the pictures of reports in docs/images.")
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"{', '.join(names)} (default: all)")
    chosen = parser.parse_args().names
    if unknown := {*chosen} - {*names}:
        parser.error(f"unknown picture: {', '.join(sorted(unknown))}; available: {', '.join(names)}")
    pictures = [picture for picture in PICTURES if not chosen or picture.name in chosen]
    with tempfile.TemporaryDirectory(prefix="ensue-gallery-") as name:
        for source in dict.fromkeys(picture.source for picture in pictures):
            write_reports(source, Path(name))
        take(pictures, Path(name))


if __name__ == "__main__":
    main()
