"""Measures reports on 1 million events with 85,151 matches; see `python benchmarks/report.py --help`.

With `--chromium PATH`, the pages are opened in Chromium: the time until a page is drawn, and until it is drawn again
after zooming, sorting, filtering and choosing.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from figures import Figure, give

import ensue

KEYS = 1_203
EVERYTHING = {"most_keys": KEYS, "most_matches": 100_000, "most_events": 100_000}
QUERY = """
PATTERN takeover SEQ(Failed f, Failed g, Login l) PARTITION BY ip WITHIN 4 hours
  RETURN l.ip AS ip, l.size AS size, f.t AS since
"""
SETTLED = "() => new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)))"


def logins(count: int) -> pa.Table:
    """Events of 1,203 addresses over 30 days, of which a fifth failed and a fifth succeeded."""
    random = np.random.default_rng(1)
    key = random.integers(0, KEYS, count)
    return pa.table(
        {
            "t": pa.array(np.sort(random.integers(0, 30 * 86_400_000, count)), pa.timestamp("ms")),
            "type": np.array(["Failed", "Login", "Other"])[random.choice(3, count, p=[0.2, 0.2, 0.6])],
            "ip": [f"10.0.{number // 256}.{number % 256}" for number in key],
            "size": random.integers(0, 1500, count),
        }
    )


def build_figures(events: pa.Table, folder: Path) -> Iterator[Figure]:
    options: dict[str, Any] = {"time": "t", "type": "type", "limits": ensue.Limits(matches=None)}
    # The first run compiles.
    found = ensue.run(events, QUERY, **options)["takeover"].num_rows
    for name, limits, target, megabytes in (("default limits", {}, 5, 2), ("everything", EVERYTHING, 60, 40)):
        begin = time.perf_counter()
        page = ensue.report(events, QUERY, **options, **limits)
        path = page.save(folder / f"{name}.html")
        spent = time.perf_counter() - begin
        note = f"{found:,} matches; page: {'; '.join(page.facts['leftOut'])}"
        yield Figure(f"build, {name}", spent, "seconds", target, note=note)
        yield Figure(f"size, {name}", path.stat().st_size / 1e6, "MB", megabytes)


def page_figures(path: Path, chromium: str) -> Iterator[Figure]:
    from playwright.sync_api import sync_playwright

    with sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=chromium, args=["--no-sandbox"])
        page = browser.new_page(viewport={"width": 1280, "height": 900})
        begin = time.perf_counter()
        page.goto(path.as_uri())
        page.evaluate(SETTLED)
        yield Figure(f"open, {path.stem}", time.perf_counter() - begin, "seconds", 3)
        for name, script in {
            "whole range": "() => document.getElementById('zoom-all').click()",
            "zoom in": "() => document.getElementById('zoom-in').click()",
            "sort": "() => document.querySelector('[data-column=\"2\"]').click()",
            "filter": "() => { const field = document.getElementById('table-text'); field.value = '10.0.1'; "
            "field.dispatchEvent(new Event('input')); }",
            "choose": "() => document.querySelector('#table-body a').click()",
        }.items():
            spent = page.evaluate(
                f"async () => {{ const begin = performance.now(); ({script})(); await ({SETTLED})(); "
                "return performance.now() - begin; }"
            )
            yield Figure(f"{name}, {path.stem}", spent / 1000, "seconds", 1)
        browser.close()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=1_000_000, help="number of events (default 1,000,000)")
    parser.add_argument("--chromium", help="path of Chromium, to measure the pages too")
    parser.add_argument("--format", choices=("table", "json"), default="table")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        figures = [*build_figures(logins(arguments.rows), Path(folder))]
        for path in sorted(Path(folder).glob("*.html")) if arguments.chromium else ():
            figures += page_figures(path, arguments.chromium)
    give(figures, arguments.format)


if __name__ == "__main__":
    main()
