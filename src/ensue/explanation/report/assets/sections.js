// The parts below the timeline: matches over time, patterns with their plans, rows; and the head of the page.

// -- matches over time ----------------------------------------------------------------------------------------------

const HEIGHT = 54, UNITS = 600, views = [];

function drawHistograms() {
  const home = byId("histograms"), most = Math.max(1, ...facts.patterns.flatMap((pattern) => pattern.bars));
  facts.patterns.forEach((pattern, number) => home.append(histogram(pattern, number, most)));
  if (facts.time.first !== null) home.append(element("div", { class: "ends" }, element("span", {}, inWords(facts.time.first)), element("span", {}, inWords(facts.time.first + facts.time.step * facts.patterns[0].bars.length))));
}

function histogram(pattern, number, most) {
  const size = UNITS / pattern.bars.length, first = facts.time.first ?? 0, length = facts.time.step;
  const view = drawn("rect", { class: "view", y: 0, height: HEIGHT });
  views.push(view);
  const svg = drawn("svg", { viewBox: `0 0 ${UNITS} ${HEIGHT}`, preserveAspectRatio: "none", style: patternTone(number), role: "img", "aria-label": `${pattern.name}: ${plural(pattern.count, "match", "matches")} over time` }, view);
  pattern.bars.forEach((value, place) => {
    const tall = value ? Math.max(2, (value / most) * (HEIGHT - 4)) : 0, from = first + place * length;
    if (value) svg.append(drawn("rect", { class: "bar", x: place * size + size * 0.1, y: HEIGHT - tall, width: size * 0.8, height: tall }));
    svg.append(drawn("rect", { class: "hit", x: place * size, y: 0, width: size, height: HEIGHT, on: { click: () => show(from - length, from + 2 * length) } },
      drawn("title", {}, `${plural(value, "match", "matches")} from ${inWords(Math.round(from))}`)));
  });
  svg.append(drawn("line", { class: "base", x1: 0, x2: UNITS, y1: HEIGHT - 0.5, y2: HEIGHT - 0.5 }));
  return element("div", { class: "histogram" }, element("div", { class: "name" }, tag(number), element("div", {}, pattern.name, element("small", {}, plural(pattern.count, "match", "matches")))), svg);
}

function drawViews() {
  if (facts.time.first === null) return;
  const length = facts.time.step * facts.patterns[0].bars.length;
  const place = (at) => Math.min(UNITS, Math.max(0, ((at - facts.time.first) / length) * UNITS));
  const everything = state.from <= facts.time.first && state.to >= facts.time.last;
  for (const view of views) {
    view.setAttribute("x", everything ? 0 : place(state.from));
    view.setAttribute("width", everything ? 0 : Math.max(1, place(state.to) - place(state.from)));
  }
}

// -- patterns, plans and rows ---------------------------------------------------------------------------------------

function drawStatements() {
  byId("statements").append(...facts.statements.map(statement));
}

function statement(entry) {
  const number = facts.patterns.findIndex((pattern) => pattern.name === entry.name), pattern = facts.patterns[number];
  const section = (title) => entry.sections.find((found) => found.title === title);
  const plan = element("div", {}, ...linesOf("How it runs", section("PLAN")), ...(pattern ? readTable(pattern) : []));
  const left = element("div", {}, element("div", { class: "scroll", tabindex: 0, role: "group", "aria-label": `Graph of ${entry.name}` }, ...entry.drawings.map(asSvg)), element("pre", {}, entry.text));
  const more = entry.sections.filter((found) => found.title !== "PLAN");
  return element("article", { class: "card statement" },
    element("div", { class: "statement-head" }, pattern ? tag(number) : null, element("h3", {}, entry.name), element("span", { class: "kind" }, entry.kind), pattern ? element("span", { class: "found" }, plural(pattern.count, "match", "matches")) : null),
    element("div", { class: "statement-body" }, left, plan),
    element("details", {}, element("summary", {}, `More: ${more.map((found) => found.title.toLowerCase()).join(", ")}`), ...more.flatMap((found) => linesOf(found.title, found))));
}

const linesOf = (title, section) => (section ? [element("h4", {}, title), element("ul", { class: "lines" }, ...section.lines.map((line) => element("li", {}, line)))] : []);

function asSvg(text) {
  const svg = document.importNode(new DOMParser().parseFromString(text, "image/svg+xml").documentElement, true);
  for (const node of svg.querySelectorAll(".node")) if (streamNumber.has(node.dataset.stream)) node.style.setProperty("--tone", streamTone(node.dataset.stream));
  return svg;
}

function readTable(pattern) {
  if (!pattern.read.length) return [];
  const rows = pattern.read.map((entry) => element("tr", {},
    element("td", {}, element("span", { class: "cell" }, badge(entry.stream), `${entry.stream} ${entry.variable}`)),
    element("td", { class: "number" }, count.format(entry.events)),
    element("td", { class: "number" }, count.format(entry.kept), element("span", { class: "meter", "aria-hidden": "true" }, element("i", { style: `width:${entry.events ? (100 * entry.kept) / entry.events : 0}%` })))));
  return [element("h4", {}, "Rows"), element("div", { class: "scroll" }, element("table", {},
    element("thead", {}, element("tr", {}, element("th", { scope: "col" }, "variable"), element("th", { scope: "col", class: "number" }, "events"), element("th", { scope: "col", class: "number" }, "meet predicates"))),
    element("tbody", {}, ...rows)))];
}

function drawRows() {
  const rows = facts.streams.map((stream) => element("tr", {},
    element("td", {}, element("span", { class: "cell" }, badge(stream.name), stream.name)), element("td", {}, stream.derived ? "derived" : "read"), element("td", { class: "number" }, stream.rows === null ? "not counted" : count.format(stream.rows))));
  const aside = Object.entries(facts.setAside).map(([reason, number]) => element("tr", {}, element("td", {}, `rows: ${reason}`), element("td", {}, "ignored"), element("td", { class: "number" }, count.format(number))));
  byId("rows").append(element("table", {}, element("thead", {}, element("tr", {}, element("th", { scope: "col" }, "stream"), element("th", { scope: "col" }, ""), element("th", { scope: "col", class: "number" }, "rows"))), element("tbody", {}, ...rows, ...aside)));
}

function drawHead() {
  byId("range").textContent = facts.time.words + (facts.time.moments && facts.time.first !== null ? " (UTC)" : "");
  const found = facts.patterns.reduce((sum, pattern) => sum + pattern.count, 0);
  const tiles = [["rows read", facts.rows], ["matches", found], ["patterns", facts.patterns.length], [facts.lanes.length === 1 ? "lane shown" : "lanes shown", facts.lanes.length]];
  byId("tiles").append(...tiles.map(([name, value]) => element("div", { class: "tile" }, element("dt", {}, name), element("dd", {}, count.format(value)))));
  const { keys, events: some, matches: few } = facts.sample;
  byId("keys-sample").textContent = keys.length ? `This page has ${keys.join(" and ")}, those with matches first` : "";
  byId("events-sample").textContent = some.length ? `This page has ${some[0]}.` : "";
  byId("matches-sample").textContent = few.length ? `This page has ${few[0]}: the first ones of each pattern and key` : "";
  byId("bars-sample").textContent = few.length ? "; all matches are counted" : "";
  byId("events-sample").after(...facts.ties.map((words) => element("span", {}, ` ${words}.`)));
}

drawHead();
drawHistograms();
drawStatements();
drawRows();
listMatches();
details.replaceChildren(...nothingChosen());
drawAll();
chooseByAddress();
new ResizeObserver(redraw).observe(plot);
