"""The page in a real Chromium without a network: clicked, filtered, zoomed, looked at on a phone and in the dark."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import ensue
from inside import draw_orders

playwright = pytest.importorskip("playwright.sync_api")
CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(CHROMIUM is None, reason="no Chromium: `make test` installs Debian's where it can"),
]

PROGRAM = """
PATTERN shipped_unpaid SEQ(Placed p, NOT Paid y, Shipped s) PARTITION BY order_id WITHIN 14 days;
PATTERN waiting SEQ(Paid y, NOT OR(Shipped s, Cancelled c)) PARTITION BY order_id WITHIN 2 days;
PATTERN in_vain SEQ(Packed k, NOT Shipped s, Cancelled c) PARTITION BY order_id WITHIN 14 days;
PATTERN unanswered SEQ(Complaint c [severity >= 3], NOT Reply r) PARTITION BY order_id WITHIN 1 day;
"""
DESKTOP = {"viewport": {"width": 1280, "height": 900}}
PHONE = {"viewport": {"width": 390, "height": 844}, "is_mobile": True, "has_touch": True}
NASTY = "</script><script>document.title='gone'</script><img src=x onerror=\"document.title='gone'\">"


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    with playwright.sync_playwright() as driver:
        started = driver.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        yield started
        started.close()


@pytest.fixture(scope="module")
def orders(tmp_path_factory: pytest.TempPathFactory) -> Path:
    page = ensue.report(draw_orders(400, 7), PROGRAM, time="t", type="type", title="Orders", most_keys=20)
    return page.save(tmp_path_factory.mktemp("report") / "orders.html")


class Opened:
    """A page that is open, with all that it complained about."""

    def __init__(self, browser: Any, path: Path, **options: Any) -> None:
        self.context = browser.new_context(offline=True, **{**DESKTOP, **options})
        self.page = self.context.new_page()
        self.complaints: list[str] = []
        self.asked: list[str] = []
        self.page.on("console", lambda said: self.complaints.append(said.text))
        self.page.on("pageerror", lambda error: self.complaints.append(str(error)))
        self.page.on("request", lambda request: self.asked.append(request.url))
        self.page.goto(path.as_uri())
        self.page.wait_for_selector("#lane-count:not(:empty)")

    def __enter__(self) -> Any:
        return self.page

    def __exit__(self, *_: object) -> None:
        self.context.close()
        assert self.complaints == []
        assert [url for url in self.asked if not url.startswith(("file:", "data:"))] == []


def settle(page: Any) -> None:
    """Waits until what was asked for is drawn."""
    page.evaluate("() => new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)))")


def axis(page: Any) -> list[str]:
    return page.locator("#axis text").all_text_contents()


def wait_until(page: Any, condition: str) -> None:
    """Waits for a condition; the page allows no `eval`, by which the driver would wait for it itself."""
    for _ in range(100):
        if page.evaluate(condition):
            return
        page.wait_for_timeout(50)
    raise AssertionError(f"{condition} did not come true")


def test_a_match_shows_its_events_and_what_proves_it(browser: Any, orders: Path) -> None:
    with Opened(browser, orders) as page:
        page.locator(".match[aria-label^=shipped_unpaid]").first.click()
        details = page.locator("#details")
        assert details.locator("h3").inner_text().endswith("shipped_unpaid")
        assert details.locator(".line-button span:nth-of-type(1)").all_inner_texts() == ["Placed", "Shipped"]
        assert "no Paid y after" in details.locator(".why .absence").inner_text()
        settle(page)
        assert page.locator(".match.chosen").count() == 1
        assert page.locator(".mark .ring").count() == 2
        details.locator(".line-button").first.click()
        assert details.locator("h3").inner_text().endswith("Placed")
        assert {"t", "type", "order_id", "amount"} <= {*details.locator(".pairs dt").all_inner_texts()}
        details.get_by_role("button", name="Back to match").click()
        assert details.locator("h3").inner_text().endswith("shipped_unpaid")
        details.get_by_role("button", name="Close").click()
        settle(page)
        assert page.locator(".match.chosen").count() == 0


def test_an_event_shows_its_fields_and_its_matches(browser: Any, orders: Path) -> None:
    with Opened(browser, orders) as page:
        page.locator(".lane").first.locator(".mark[data-event]").last.click()
        names = page.locator("#details .pairs dt").all_inner_texts()
        assert "order_id" in names
        assert page.locator("#details h4").first.inner_text().lower() == "fields"


def test_filters_leave_fewer_lanes_and_marks(browser: Any, orders: Path) -> None:
    with Opened(browser, orders) as page:
        assert page.locator(".lane").count() == 12
        page.get_by_role("button", name="Show all 20 lanes").click()
        settle(page)
        every = page.locator(".lane").count()
        assert every == 20
        label = page.locator(".lane-label").first.evaluate("node => node.firstChild.textContent")
        page.get_by_label("Key", exact=True).fill(label)
        settle(page)
        assert page.locator(".lane").count() == 1
        assert page.locator("#lane-count").inner_text() == "1 of 20 lanes"
        page.get_by_label("Key", exact=True).fill("no such key")
        settle(page)
        assert page.locator("#no-lanes").inner_text() == "No key matches these filters."
        page.get_by_label("Key", exact=True).fill("")
        chips = page.locator("#pattern-chips .chip")
        for number in range(1, chips.count()):
            chips.nth(number).click()
        settle(page)
        assert chips.nth(1).get_attribute("aria-pressed") == "false"
        assert 0 < page.locator(".lane").count() < every
        assert {*page.locator(".match text:not(.times)").all_text_contents()} == {"1"}
        before = page.locator(".mark[data-event]").count()
        page.locator("#stream-chips .chip", has_text="Placed").click()
        settle(page)
        assert page.locator(".mark[data-event]").count() < before


def test_zoom_and_move_by_button_wheel_drag_and_key(browser: Any, orders: Path) -> None:
    with Opened(browser, orders) as page:
        page.get_by_role("button", name="Whole range").click()
        settle(page)
        whole = axis(page)
        page.get_by_role("button", name="Zoom in").click()
        settle(page)
        closer = axis(page)
        assert closer != whole
        page.get_by_role("button", name="Later").click()
        settle(page)
        assert axis(page) != closer
        page.get_by_role("button", name="Whole range").click()
        settle(page)
        assert axis(page) == whole
        box = page.locator(".lane-plot").first.bounding_box()
        middle = box["x"] + box["width"] / 2, box["y"] + 8
        page.mouse.move(*middle)
        page.keyboard.down("Control")
        page.mouse.wheel(0, -200)
        page.keyboard.up("Control")
        settle(page)
        wheeled = axis(page)
        assert wheeled != whole
        page.mouse.down()
        page.mouse.move(middle[0] - 260, middle[1], steps=4)
        page.mouse.up()
        settle(page)
        assert axis(page) != wheeled
        page.locator("#plot").focus()
        page.keyboard.press("0")
        settle(page)
        assert axis(page) == whole
        scrolled = page.evaluate("scrollY")
        page.mouse.wheel(0, 300)
        wait_until(page, f"scrollY > {scrolled}")
        assert axis(page) == whole, "the wheel alone scrolls the page"


def test_a_drag_that_ends_on_a_match_does_not_choose_it(browser: Any, orders: Path) -> None:
    with Opened(browser, orders) as page:
        box = page.locator(".match").first.bounding_box()
        page.mouse.move(box["x"] + 4, box["y"] + 6)
        page.mouse.down()
        page.mouse.move(box["x"] + 40, box["y"] + 6, steps=4)
        page.mouse.up()
        settle(page)
        assert page.locator(".match.chosen").count() == 0


def test_a_match_is_reached_and_chosen_with_the_keyboard(browser: Any, orders: Path) -> None:
    with Opened(browser, orders) as page:
        page.locator("#plot").focus()
        page.keyboard.press("Tab")
        focused = page.evaluate("document.activeElement.getAttribute('aria-label')")
        page.keyboard.press("Enter")
        settle(page)
        name, key, *_ = focused.split(", ")
        assert page.locator("#details h3").inner_text().endswith(name)
        assert key in page.locator("#details .where").inner_text()
        assert page.evaluate("document.activeElement.getAttribute('aria-label')") == focused, "the focus stays"
        page.keyboard.press("Escape")
        settle(page)
        assert page.locator(".match.chosen").count() == 0


def test_matches_over_time_lead_to_their_part_of_the_timeline(browser: Any, orders: Path) -> None:
    with Opened(browser, orders) as page:
        whole = axis(page)
        assert page.locator(".histogram").count() == 4
        page.locator(".histogram").nth(1).locator(".hit").nth(5).click()
        settle(page)
        assert axis(page) != whole


def test_patterns_are_drawn_with_what_is_absent(browser: Any, orders: Path) -> None:
    with Opened(browser, orders) as page:
        first = page.locator(".statement").first
        assert first.locator("svg.graph .node text").all_text_contents() == ["p", "Placed", "s", "Shipped"]
        assert {"no Paid y", "within 2 weeks"} <= {*first.locator("svg.graph > text").all_text_contents()}
        assert first.locator("table tbody tr").count() == 3
        assert "events are grouped by order_id and sorted by time" in first.inner_text()


def test_a_phone_has_nothing_beside_the_page_and_shows_details_below(browser: Any, orders: Path) -> None:
    with Opened(browser, orders, **PHONE) as page:
        assert page.evaluate("document.documentElement.scrollWidth") == 390
        assert not page.locator("#details").is_visible()
        page.locator(".match").first.tap()
        sheet = page.locator("#details").bounding_box()
        assert (sheet["x"], sheet["width"]) == (0, 390)
        assert round(sheet["y"] + sheet["height"]) == 844
        small = page.locator("button:visible").evaluate_all(
            "all => all.filter((one) => one.getBoundingClientRect().height < 32).length"
        )
        assert small == 0, "every button can be hit with a thumb"
        assert page.evaluate("document.documentElement.scrollWidth") == 390


CONTRAST = """
() => {
  const shade = (colour) => {
    const [red, green, blue] = colour.match(/[\\d.]+/g).map(Number).map((value) => value / 255)
      .map((value) => (value <= 0.03928 ? value / 12.92 : ((value + 0.055) / 1.055) ** 2.4));
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue;
  };
  const behind = (node) => {
    for (let at = node; at; at = at.parentElement) {
      const colour = getComputedStyle(at).backgroundColor;
      if (!/^rgba.*, 0\\)$/.test(colour)) return colour;
    }
    return "rgb(255, 255, 255)";
  };
  const kinds = "h1, h2, h3, h4, p, dt, dd, button, label, li, td, th, small, pre, summary, .tag";
  const seen = [...document.querySelectorAll(kinds)].filter((node) => node.offsetParent && node.textContent.trim());
  const ratio = (node) => {
    const [one, other] = [shade(getComputedStyle(node).color), shade(behind(node))].sort((x, y) => y - x);
    return (one + 0.05) / (other + 0.05);
  };
  return seen.filter((node) => ratio(node) < 4.5).map((node) => `${node.textContent} ${ratio(node)}`);
}
"""


@pytest.mark.parametrize(("scheme", "is_dark"), [("light", False), ("dark", True)])
def test_text_can_be_read_in_light_and_dark(browser: Any, orders: Path, scheme: str, is_dark: bool) -> None:
    with Opened(browser, orders, color_scheme=scheme) as page:
        page.locator(".match").first.click()
        background = page.evaluate("getComputedStyle(document.body).backgroundColor")
        assert (background == "rgb(15, 19, 26)") == is_dark
        assert page.evaluate(CONTRAST) == []


def test_data_that_looks_like_markup_stays_text(browser: Any, tmp_path: Path) -> None:
    table = pa.table({"t": [1, 2], "type": ["A", "B"], "id": [NASTY, NASTY], NASTY: ["x", "y"]})
    query = "PATTERN p SEQ(A a, B b) PARTITION BY id WITHIN 5"
    path = ensue.report(table, query, time="t", type="type", title=NASTY).save(tmp_path / "nasty.html")
    with Opened(browser, path) as page:
        assert page.title() == NASTY
        page.locator(".match").click()
        page.locator("#details .line-button").first.click()
        assert NASTY in page.locator("#details .pairs dt").all_inner_texts()
        assert page.locator("img").count() == 0
        assert page.title() == NASTY


@pytest.mark.parametrize("rows", [0, 1])
def test_a_page_without_matches_says_so(browser: Any, tmp_path: Path, rows: int) -> None:
    table = pa.table({"t": [1], "type": ["A"], "id": [7]}).slice(0, rows)
    query = "PATTERN p SEQ(A a, B b) PARTITION BY id WITHIN 5"
    path = ensue.report(table, query, time="t", type="type").save(tmp_path / "empty.html")
    with Opened(browser, path) as page:
        assert page.locator(".lane").count() == rows
        assert "No matches" in page.locator("#details").inner_text()
        assert page.locator("#no-lanes").is_visible() == (rows == 0)


def test_the_frame_of_a_notebook_shows_the_page(browser: Any, orders: Path, tmp_path: Path) -> None:
    table = pa.table({"t": [1, 2], "type": ["A", "B"]})
    shown = ensue.report(table, "PATTERN p SEQ(A a, B b) WITHIN 5", time="t", type="type")._repr_html_()
    path = tmp_path / "notebook.html"
    path.write_text(f"<!doctype html><meta charset=utf-8><body>{shown}", encoding="utf-8")
    context = browser.new_context(offline=True, **DESKTOP)
    page = context.new_page()
    page.goto(path.as_uri())
    frame = page.frame_locator("iframe")
    frame.locator(".match").click()
    assert frame.locator("#details h3").inner_text().endswith("p")
    context.close()
