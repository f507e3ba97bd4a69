"""The page in a real Chromium without a network: clicked, filtered, zoomed, looked at on a phone and in the dark."""

from __future__ import annotations

import csv
import io
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import quote

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


BURSTS = "PATTERN burst SEQ(COLLECT Failed f{5,}, Failed last) PARTITION BY ip WITHIN 100 seconds RETURN last.n AS n"


@pytest.fixture(scope="module")
def bursts(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """40 overlapping matches of one address, and one match of another an hour later."""
    seconds = [*range(45), *range(3600, 3606)]
    table = pa.table(
        {
            "t": pa.array(seconds, pa.timestamp("s")).cast(pa.timestamp("us")),
            "type": ["Failed"] * len(seconds),
            "ip": ["10.0.0.1"] * 45 + ["10.0.0.2"] * 6,
            "n": [7 * number % 51 for number in range(51)],
        }
    )
    page = ensue.report(table, BURSTS, time="t", type="type", title="Failed logins")
    return page.save(tmp_path_factory.mktemp("bursts") / "bursts.html")


class Opened:
    """A page that is open, with all that it complained about."""

    def __init__(self, browser: Any, path: Path, address: str = "", **options: Any) -> None:
        self.context = browser.new_context(offline=True, **{**DESKTOP, **options})
        self.page = self.context.new_page()
        self.complaints: list[str] = []
        self.asked: list[str] = []
        self.page.on("console", lambda said: self.complaints.append(said.text))
        self.page.on("pageerror", lambda error: self.complaints.append(str(error)))
        self.page.on("request", lambda request: self.asked.append(request.url))
        self.page.goto(path.as_uri() + address)
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


def downloaded(page: Any) -> str:
    """What the button for CSV gives."""
    with page.expect_download() as waiting:
        page.get_by_role("button", name="Download CSV").click()
    return Path(waiting.value.path()).read_text(encoding="utf-8")


def cells(page: Any, place: int) -> list[str]:
    """A column of the rows that the table has drawn."""
    return page.locator(f"#table-body tr[data-row] td:nth-child({place + 1})").all_inner_texts()


def test_the_table_of_matches_is_sorted_and_filtered(browser: Any, bursts: Path) -> None:
    with Opened(browser, bursts) as page:
        heads = page.locator("#table-head th")
        assert heads.locator("button").all_inner_texts() == ["match", "key", "start ↑", "n"]
        assert page.locator("#table-count").inner_text() == "41 matches"
        assert cells(page, 0)[:2] == ["#1", "#2"]
        page.locator("#table-head button", has_text="n").last.click()
        numbers = [int(text) for text in cells(page, 3)]
        assert numbers == sorted(numbers)
        assert numbers[0] == 1, "numbers are sorted as numbers"
        page.locator("#table-head button", has_text="n").last.click()
        assert heads.nth(3).get_attribute("aria-sort") == "descending"
        assert [int(text) for text in cells(page, 3)] == sorted((int(text) for text in cells(page, 3)), reverse=True)
        page.locator("#table-text").fill("10.0.0.2 01:00:05")
        assert page.locator("#table-count").inner_text() == "1 of 41 matches"
        assert cells(page, 0) == ["#41"]
        page.locator("#table-text").fill("no such text")
        assert page.locator("#table-empty").inner_text() == "No match meets these filters."
        page.locator("#table-text").fill("")
        page.get_by_label("Key", exact=True).fill("0.0.2")
        assert cells(page, 1) == ["ip = 10.0.0.2"], "filters of the timeline apply to the table"


def test_the_table_is_copied_and_downloaded_as_it_is_listed(browser: Any, bursts: Path) -> None:
    with Opened(browser, bursts, permissions=["clipboard-read", "clipboard-write"]) as page:
        page.locator("#table-head button", has_text="n").last.click()
        rows = list(csv.reader(io.StringIO(downloaded(page))))
        assert rows[0] == ["match", "key", "start", "n"]
        assert len(rows) == 42, "all that is listed, not only what is drawn"
        numbers = [int(row[3]) for row in rows[1:]]
        assert numbers == sorted(7 * number % 51 for number in (*range(5, 45), 50))
        page.locator("#table-text").fill("0.0.2")
        page.get_by_role("button", name="Copy", exact=True).click()
        page.get_by_role("button", name="Copied 1 row").wait_for()
        copied = page.evaluate("navigator.clipboard.readText()")
        assert copied == "match\tkey\tstart\tn\n41\tip = 10.0.0.2\t1970-01-01 01:00:05\t44\n"


def test_a_link_names_a_match_and_opens_it(browser: Any, bursts: Path) -> None:
    with Opened(browser, bursts) as page:
        page.locator("#table-text").fill("0.0.2")
        page.locator("#table-body a").click()
        settle(page)
        assert page.locator("#details .where").inner_text() == "ip = 10.0.0.2, 1970-01-01 01:00:05"
        assert page.locator(".lane[data-lane='1'] .match.chosen").count() == 1, "the timeline has moved to it"
        assert page.locator("#table-body tr.chosen").count() == 1
        address = page.evaluate("location.hash")
        page.get_by_role("button", name="Close").click()
        assert page.evaluate("location.hash") == ""
    assert len(address.removeprefix("#match=")) == 32, "the id of the match"
    for named in (address, "#match=41"):
        with Opened(browser, bursts, named) as page:
            assert page.locator("#details .where").inner_text() == "ip = 10.0.0.2, 1970-01-01 01:00:05"
            assert page.locator(".match.chosen").is_visible()
            page.evaluate("location.hash = '#match=1'")
            wait_until(page, "document.querySelector('#details .where').innerText.startsWith('ip = 10.0.0.1')")
    with Opened(browser, bursts, "#match=42") as page:
        assert page.locator("#details h3").inner_text() == "Match not on this page"


def test_overlapping_matches_are_folded_listed_and_unfolded(browser: Any, bursts: Path) -> None:
    with Opened(browser, bursts) as page:
        fold = page.locator(".fold")
        assert page.locator(".match").count() == 1, "one bar for all"
        assert fold.locator(".times").text_content() == "×40"
        fold.click()
        details = page.locator("#details")
        assert details.locator("h3").inner_text().endswith("burst ×40")
        assert details.locator(".line-button").count() == 12
        details.get_by_role("button", name="Show all 40").click()
        assert details.locator(".line-button").count() == 40
        details.locator(".line-button").nth(39).click()
        assert details.locator(".where").inner_text() == "ip = 10.0.0.1, 1970-01-01 00:00:44"
        settle(page)
        assert page.locator(".fold .times").text_content() == "×39", "a chosen match has its own bar"
        assert page.locator(".match.chosen").count() == 1
        page.locator(".fold").click()
        details.get_by_role("button", name="Unfold in this lane").click()
        settle(page)
        assert page.locator(".match").count() == 40
        assert page.locator(".fold").count() == 0
        page.get_by_role("button", name="Fold matches").click()
        settle(page)
        assert page.locator(".fold .times").text_content() == "×40"


def test_a_page_opens_on_the_first_matches_and_leads_to_the_others(browser: Any, bursts: Path) -> None:
    with Opened(browser, bursts) as page:
        first = axis(page)
        assert first == ["1 Jan", "00:00:10", "00:00:20", "00:00:30", "00:00:40"]
        assert page.get_by_role("button", name="First matches").get_attribute("aria-pressed") == "true"
        assert page.locator("#view-count").inner_text() == "· 40 of 41 matches in view"
        page.get_by_role("button", name="1 match later").click()
        settle(page)
        assert page.locator(".lane[data-lane='1'] .match").count() == 1
        page.get_by_role("button", name="40 matches earlier").click()
        settle(page)
        assert page.locator(".fold").count() == 1
        page.get_by_role("button", name="Whole range").click()
        settle(page)
        assert page.locator("#view-count").inner_text() == "· 41 of 41 matches in view"
        page.locator("#plot").focus()
        page.keyboard.press("1")
        settle(page)
        assert axis(page) == first


def test_a_thin_bar_is_the_time_of_collected_events(browser: Any, bursts: Path) -> None:
    with Opened(browser, bursts, "#match=41") as page:
        span, bar = (page.locator(f".match.chosen .{name}").bounding_box() for name in ("span", "bar"))
        first, last = (page.locator(".mark[data-event] .ring").nth(place).bounding_box() for place in (0, 5))
        assert abs(span["x"] - (first["x"] + first["width"] / 2)) < 1
        assert abs(bar["x"] - (last["x"] + last["width"] / 2)) < 1
        assert span["height"] < bar["height"] / 2
        assert "1970-01-01 01:00:00 to 1970-01-01 01:00:05" in page.locator("#details").inner_text()


def test_the_table_is_used_from_the_keyboard(browser: Any, bursts: Path) -> None:
    focused = "document.activeElement.innerText"
    with Opened(browser, bursts) as page:
        page.locator("#save-table").focus()
        for _ in range(4):
            page.keyboard.press("Tab")
        assert page.evaluate(focused) == "n"
        page.keyboard.press("Enter")
        assert page.evaluate(focused) == "n ↑", "the focus stays on the head"
        page.keyboard.press("Tab")
        top = page.evaluate(focused)
        page.keyboard.press("ArrowDown")
        assert page.evaluate(focused) == cells(page, 0)[1] != top
        page.keyboard.press("End")
        assert page.evaluate(focused) == cells(page, 0)[-1]
        assert page.locator("#table-home").evaluate("node => node.scrollTop") > 400
        page.keyboard.press("Enter")
        assert page.locator("#table-body tr.chosen a").inner_text() == page.evaluate(focused)
        assert page.locator("#details h3").inner_text().endswith("burst")
        page.locator(".fold").focus()
        page.keyboard.press("Enter")
        assert "overlapping matches" in page.locator("#details").inner_text().lower()


def test_only_what_is_visible_is_drawn_and_samples_are_told(browser: Any, tmp_path: Path) -> None:
    count = 2_500
    table = pa.table({"t": range(2 * count), "type": ["A", "B"] * count, "id": [n // 50 for n in range(2 * count)]})
    query = "PATTERN pair SEQ(A a, B b) PARTITION BY id WITHIN 1"
    path = ensue.report(table, query, time="t", type="type", most_keys=90, most_events=800).save(tmp_path / "many.html")
    with Opened(browser, path) as page:
        assert page.locator("#table-count").inner_text() == "2,000 matches"
        assert page.locator("#keys-sample").inner_text().startswith("This page has 90 of 100 keys (id)")
        assert page.locator("#matches-sample").inner_text().startswith("This page has 2,000 of 2,500 matches")
        assert page.locator("#events-sample").inner_text().startswith("This page has 4,")
        page.get_by_role("button", name="Show all 90 lanes").click()
        settle(page)
        assert page.locator(".lane").count() == 90
        assert 5 < page.locator(".lane svg").count() < 60
        assert page.locator(".lane").last.locator("svg").count() == 0
        page.locator(".lane").last.scroll_into_view_if_needed()
        wait_until(page, "document.querySelector('.lane:last-child svg') !== null")
        assert page.locator("#table-body tr").count() < 60
        page.locator("#table-home").evaluate("node => { node.scrollTop = node.scrollHeight; }")
        wait_until(page, "document.querySelector('#table-body tr:last-child a')?.innerText === '#2000'")
        page.locator("#table-body a").last.click()
        assert "This page has 500 of 2,000 proofs" in page.locator("#details").inner_text()
        assert page.locator("#details .line-button").count() == 2


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
        assert {"no Paid y", "within 14d"} <= {*first.locator("svg.graph > text").all_text_contents()}
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
    query = "PATTERN p SEQ(A a, B b) PARTITION BY id WITHIN 5 RETURN a.id AS found"
    path = ensue.report(table, query, time="t", type="type", title=NASTY).save(tmp_path / "nasty.html")
    with Opened(browser, path, "#match=" + quote(NASTY)) as page:
        assert page.title() == NASTY
        assert NASTY in page.locator("#details").inner_text(), "the address names a match that is not there"
        assert page.locator("#table-body td").all_inner_texts() == ["#1", f"id = {NASTY}", "1", "2", NASTY]
        page.locator("#table-text").fill("</script>")
        assert page.locator("#table-body a").count() == 1
        assert list(csv.reader(io.StringIO(downloaded(page)))) == [
            ["match", "key", "start", "end", "found"],
            ["1", f"id = {NASTY}", "1", "2", NASTY],
        ]
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
    errors: list[str] = []
    page.on("pageerror", lambda error: errors.append(str(error)))
    page.goto(path.as_uri())
    frame = page.frame_locator("iframe")
    frame.locator(".match").click()
    assert frame.locator("#details h3").inner_text().endswith("p")
    frame.get_by_role("button", name="Close").click()
    frame.locator("#table-body a").click()
    assert frame.locator("#details h3").inner_text().endswith("p"), "links work without an address"
    frame.get_by_role("button", name="Copy", exact=True).click()
    frame.get_by_role("button", name="Copied 1 row").wait_for()
    assert errors == []
    context.close()
