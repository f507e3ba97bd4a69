// The timeline: a lane for each key with its events as marks and its matches as bars. Only what is visible is drawn.

// -- what is visible ------------------------------------------------------------------------------------------------

const FIRST_MATCHES = 20, FIRST_LANES = 12, LEAST_FOLDED = 3, MOST_ROWS = 60;
const eventsOf = facts.lanes.map(() => []), matchesOf = facts.lanes.map(() => []);
events.forEach((event, number) => event.lanes.forEach((lane) => eventsOf[lane].push(number)));
matches.forEach((match) => matchesOf[match.lane].push(match));
eventsOf.forEach((list) => list.sort((x, y) => events[x].start - events[y].start));
matchesOf.forEach((list) => list.sort((x, y) => x.from - y.from));
const longest = eventsOf.map((list) => list.reduce((most, number) => Math.max(most, events[number].end - events[number].start), 0));

const whole = wholeRange(), firstOnes = rangeOf(firstMatches(), 0.08) ?? whole;
const state = {
  ...firstOnes, patterns: new Set(facts.patterns.keys()), streams: new Set(facts.streams.map((stream) => stream.name)),
  text: "", onlyMatched: false, allLanes: facts.lanes.length <= FIRST_LANES + 2, unfolded: new Set(), chosen: null,
};

function wholeRange() {
  let from = Infinity, to = -Infinity;
  const cover = (start, end) => { from = Math.min(from, start); to = Math.max(to, end); };
  events.forEach((event) => cover(event.start, event.end));
  matches.forEach((match) => cover(match.from, match.to));
  if (from > to) cover(facts.time.first ?? 0, facts.time.last ?? 1);
  const margin = (to - from || 1) * 0.025;
  return { from: from - margin, to: to + margin };
}

/** The first matches, and those that overlap or soon follow them, as long as they do not make the time twice as long. */
function firstMatches() {
  const first = matches.slice(0, FIRST_MATCHES), range = rangeOf(first, 0);
  if (range === null) return first;
  const size = range.to - range.from, most = range.to + size, near = size / 10;
  for (let { to } = range, number = first.length; number < matches.length && matches[number].from <= to + near && matches[number].to <= most; number += 1) {
    to = Math.max(to, matches[number].to);
    first.push(matches[number]);
  }
  return first;
}

/** The time of some matches with a margin; null without matches. */
function rangeOf(some, share) {
  if (!some.length) return null;
  let from = Infinity, to = -Infinity;
  for (const match of some) { from = Math.min(from, match.from); to = Math.max(to, match.to); }
  const margin = Math.max((to - from) * share, facts.time.moments ? 1000 : 1);
  return { from: from - margin, to: to + margin };
}

const hasText = (lane) => facts.lanes[lane].label.toLowerCase().includes(state.text.trim().toLowerCase());
const sees = (match) => state.patterns.has(match.pattern);

function seenLanes() {
  const all = state.patterns.size === facts.patterns.length;
  return [...facts.lanes.keys()].filter((lane) => hasText(lane) && ((all && !state.onlyMatched) || matchesOf[lane].some(sees)));
}

// -- the plot -------------------------------------------------------------------------------------------------------

const plot = byId("plot"), axis = byId("axis"), laneHome = byId("lanes");
const labelWidth = () => (phone.matches ? 0 : 188);
const width = () => Math.max(120, plot.clientWidth - labelWidth());
const scale = () => { const factor = width() / (state.to - state.from); return (at) => (at - state.from) * factor; };

let asked = false, laneParts = [];
function redraw() {
  if (asked) return;
  asked = true;
  requestAnimationFrame(() => { if (asked) drawAll(); });
}

function drawAll(withLanes = true) {
  asked = false;
  const held = document.activeElement?.dataset?.item;
  const lanes = seenLanes(), shown = state.allLanes ? lanes : lanes.slice(0, FIRST_LANES);
  const marks = ticks(state.from, state.to, Math.max(2, width() / 96)), x = scale();
  axis.replaceChildren(drawAxis(marks, x));
  laneParts = shown.map((lane) => emptyLane(lane, itemsOf(lane, x), marks, x));
  laneHome.replaceChildren(...laneParts.map((part) => part.node));
  if (withLanes) drawVisibleLanes();
  sayWhatIsShown(lanes, shown);
  if (held !== undefined) laneHome.querySelector(`[data-item="${held}"]`)?.focus({ preventScroll: true });
  drawViews();
}

function sayWhatIsShown(lanes, shown) {
  const inView = lanes.reduce((sum, lane) => sum + matchesOf[lane].filter((match) => sees(match) && match.to >= state.from && match.from <= state.to).length, 0);
  byId("lane-count").textContent = lanes.length === facts.lanes.length
    ? plural(lanes.length, "lane", "lanes") : `${count.format(lanes.length)} of ${plural(facts.lanes.length, "lane", "lanes")}`;
  byId("view-count").textContent = matches.length ? `· ${count.format(inView)} of ${plural(matches.length, "match", "matches")} in view` : "";
  byId("no-lanes").hidden = lanes.length > 0;
  byId("no-lanes").textContent = facts.lanes.length ? "No key matches these filters." : "No events.";
  byId("all-lanes").hidden = state.allLanes || lanes.length === shown.length;
  byId("all-lanes").textContent = `Show all ${plural(lanes.length, "lane", "lanes")}`;
  const is = (range) => Math.abs(state.from - range.from) + Math.abs(state.to - range.to) < (range.to - range.from) * 1e-6;
  byId("zoom-matches").setAttribute("aria-pressed", String(is(firstOnes)));
  byId("zoom-all").setAttribute("aria-pressed", String(is(whole)));
}

function drawAxis(marks, x) {
  const svg = drawn("svg", { width: width(), height: 33 });
  for (const { at, text } of marks) {
    const place = x(at), edge = place < 34 ? "start" : place > width() - 34 ? "end" : "middle";
    svg.append(drawn("line", { class: "grid", x1: place, x2: place, y1: 26, y2: 33 }), drawn("text", { x: place, y: 20, "text-anchor": edge }, text));
  }
  return svg;
}

/** A lane with its height but without content, which it gets when it comes into the window. */
function emptyLane(lane, items, marks, x) {
  const rows = items.placed.reduce((most, item) => Math.max(most, item.row + 1), 0) + (items.before || items.after ? 1 : 0);
  const height = Math.max(phone.matches ? 0 : 50, LANE_TOP + rows * (BAR + BAR_GAP) + (rows ? 6 : 2));
  const draw = () => {
    const svg = drawn("svg", { width: width(), height, role: "group", "aria-label": facts.lanes[lane].label });
    for (const { at } of marks) svg.append(drawn("line", { class: "grid", x1: x(at), x2: x(at), y1: 0, y2: height }));
    items.placed.forEach((item) => svg.append(item.members.length > 1 ? drawFold(lane, item) : drawMatch(item.members[0], item)));
    svg.append(...drawMarks(lane, x));
    node.lastChild.append(svg, ...edges(lane, items));
  };
  const node = element("div", { class: "lane", "data-lane": lane }, laneLabel(lane), element("div", { class: "lane-plot", style: `height:${height}px` }));
  return { node, height: height + 1 + (phone.matches ? 26 : 0), draw, isDrawn: false };
}

function laneLabel(lane) {
  const own = facts.lanes[lane], here = matchesOf[lane].length, drawnEvents = eventsOf[lane].length;
  const told = !own.matches ? "no match" : own.matches > here ? `${count.format(here)} of ${plural(own.matches, "match", "matches")}` : plural(own.matches, "match", "matches");
  const few = own.events > drawnEvents ? `${count.format(drawnEvents)} of ${plural(own.events, "event", "events")}` : null;
  const folds = [...state.unfolded].filter((name) => name.startsWith(`${lane}:`));
  const fold = () => { folds.forEach((name) => state.unfolded.delete(name)); redraw(); };
  return element("div", { class: "lane-label", title: own.label }, own.label, element("small", {}, few ? `${told}, ${few}` : told),
    folds.length ? element("button", { type: "button", class: "text-button", on: { click: fold } }, "Fold matches") : null);
}

function drawVisibleLanes() {
  const home = laneHome.getBoundingClientRect().top, reach = 300;
  let top = home;
  for (const part of laneParts) {
    if (!part.isDrawn && top + part.height > -reach && top < innerHeight + reach) { part.isDrawn = true; part.draw(); }
    top += part.height;
  }
}

addEventListener("scroll", () => requestAnimationFrame(drawVisibleLanes), { passive: true });

/** How many matches are before and after what is visible, each with a button that leads to the nearest. */
function* edges(lane, items) {
  const size = state.to - state.from, own = matchesOf[lane].filter(sees);
  if (items.before) yield edge("before", `‹ ${count.format(items.before)}`, `${plural(items.before, "match", "matches")} earlier`, () => {
    const last = own.filter((match) => match.to < state.from).reduce((found, match) => (found === null || match.to > found ? match.to : found), null);
    if (last !== null) show(last - size * 0.9, last + size * 0.1);
  });
  if (items.after) yield edge("after", `${count.format(items.after)} ›`, `${plural(items.after, "match", "matches")} later`, () => {
    const next = own.find((match) => match.from > state.to);
    if (next) show(next.from - size * 0.1, next.from + size * 0.9);
  });
}

const edge = (side, text, label, click) => element("button", { type: "button", class: `edge ${side}`, "aria-label": label, title: label, on: { click } }, text);

/** Matches of a lane in rows, so that no two of a row touch. Overlapping matches of a pattern are one item: a fold. */
function itemsOf(lane, x) {
  const right = width() + 20, open = new Map(), found = [];
  let before = 0, after = 0;
  for (const match of matchesOf[lane]) {
    if (!sees(match)) continue;
    const left = x(match.from), bar = Math.max(x(match.end), x(match.start) + 18), until = Math.max(bar, x(match.to));
    if (until < -20) { before += 1; continue; }
    if (left > right) { after += 1; continue; }
    const item = { members: [match], left, until, pattern: match.pattern }, last = open.get(match.pattern);
    if (state.chosen?.match === match.number) found.push(item);
    else if (last && left <= last.until + 3) {
      last.members.push(match);
      last.until = Math.max(last.until, until);
    } else {
      open.set(match.pattern, item);
      found.push(item);
    }
  }
  const single = (item) => item.members.map((match) => ({ members: [match], left: x(match.from), until: Math.max(x(match.end), x(match.start) + 18, x(match.to)), pattern: item.pattern }));
  const unfolded = (item) => item.members.length < LEAST_FOLDED || state.unfolded.has(`${lane}:${item.pattern}`);
  const items = found.flatMap((item) => (unfolded(item) ? single(item) : [{ ...item, until: Math.max(item.until, item.left + 26 + 8 * String(item.members.length).length) }]));
  return { placed: placed(items.sort((x, y) => x.left - y.left)), before, after };
}

function placed(items) {
  const ends = [], found = [], more = new Map();
  for (const item of items) {
    let row = ends.findIndex((end) => end + 4 < item.left);
    if (row < 0) row = ends.length;
    if (row < MOST_ROWS) {
      ends[row] = item.until;
      found.push({ ...item, row });
    } else {
      // A fold of what does not fit into the rows of an unfolded lane.
      const rest = more.get(item.pattern) ?? { members: [], left: item.left, until: item.until, pattern: item.pattern };
      rest.members.push(...item.members);
      rest.until = Math.max(rest.until, item.until);
      more.set(item.pattern, rest);
    }
  }
  return [...found, ...[...more.values()].map((rest, place) => ({ ...rest, row: MOST_ROWS + place }))];
}

const clipped = (place) => Math.min(Math.max(place, -10), width() + 10);
const pressed = (open) => ({ click: open, keydown: (event) => { if (event.key === "Enter" || event.key === " ") { event.preventDefault(); event.stopPropagation(); open(); } } });
const nameOf = (match) => `${facts.patterns[match.pattern].name}, ${facts.lanes[match.lane].label}, ${match.words}`;

function drawMatch(match, { row }) {
  const x = scale(), y = LANE_TOP + row * (BAR + BAR_GAP), chosen = state.chosen?.match === match.number;
  const other = state.chosen?.match !== undefined && !chosen && matches[state.chosen.match].lane === match.lane;
  const left = clipped(x(match.start)), stop = clipped(Math.max(x(match.end), x(match.start) + 18));
  const last = clipped(Math.max(x(match.complete), x(match.start) + 18)), label = nameOf(match);
  const first = match.span ? clipped(x(match.span[0])) : left, over = match.span ? clipped(Math.max(x(match.span[1]), stop)) : stop;
  return drawn("g", {
    class: `match${chosen ? " chosen" : ""}${other ? " dim" : ""}`, style: patternTone(match.pattern), tabindex: 0, role: "button", "aria-label": label,
    "data-match": match.number, "data-item": match.number, "aria-pressed": chosen, on: pressed(() => choose({ match: match.number })),
  },
    drawn("title", {}, match.span ? `${label}; collected events from ${inWords(match.span[0])} to ${inWords(match.span[1])}` : label),
    last > stop ? drawn("rect", { class: "until", x: left + 1, y: y + 1, width: Math.max(1, last - left - 2), height: BAR - 2, rx: 4 }) : null,
    match.span ? drawn("rect", { class: "span", x: first, y: y + BAR / 2 - 1.5, width: Math.max(2, over - first), height: 3, rx: 1.5 }) : null,
    stop > left ? drawn("rect", { class: "bar", x: left, y, width: stop - left, height: BAR, rx: 4 }) : null,
    stop > left + 12 ? drawn("text", { x: Math.max(left, 0) + 6, y: y + 10 }, String(match.pattern + 1)) : null,
    drawn("rect", { class: "halo", x: first - 2, y: y - 2, width: Math.max(18, Math.max(last, over) - first) + 4, height: BAR + 4, rx: 6 }));
}

const spanOf = (members) => ({ from: members.reduce((least, match) => Math.min(least, match.from), Infinity), to: members.reduce((most, match) => Math.max(most, match.to), -Infinity) });

function drawFold(lane, { members, pattern, left, row }) {
  const x = scale(), y = LANE_TOP + row * (BAR + BAR_GAP), { from, to } = spanOf(members);
  const start = clipped(members.reduce((least, match) => Math.min(least, x(match.start)), Infinity));
  const end = clipped(members.reduce((most, match) => Math.max(most, x(match.end)), start + 18));
  const first = clipped(left), over = Math.max(end, clipped(x(to))), text = `×${count.format(members.length)}`;
  const label = `${facts.patterns[pattern].name}, ${facts.lanes[lane].label}, ${plural(members.length, "overlapping match", "overlapping matches")}, ${inWords(from)} to ${inWords(to)}`;
  const chosen = state.chosen?.fold?.members[0] === members[0], inside = end - Math.max(start, 0) > 34 + 7 * text.length;
  const long = 8 * text.length, place = inside ? Math.max(start, 0) + 20 : end + 4 + long < width() ? end + 4 : Math.min(start, width()) - long;
  return drawn("g", {
    class: `match fold${chosen ? " chosen" : ""}`, style: patternTone(pattern), tabindex: 0, role: "button", "aria-label": label,
    "data-fold": members.length, "data-item": `fold-${lane}-${pattern}-${members[0].number}`, on: pressed(() => choose({ fold: { lane, pattern, members } })),
  },
    drawn("title", {}, label),
    drawn("rect", { class: "span", x: first, y: y + BAR / 2 - 1.5, width: Math.max(2, over - first), height: 3, rx: 1.5 }),
    drawn("rect", { class: "behind", x: start + 3, y: y - 3, width: Math.max(12, end - start - 6), height: BAR, rx: 4 }),
    drawn("rect", { class: "bar", x: start, y, width: Math.max(0, end - start), height: BAR, rx: 4 }),
    drawn("text", { x: Math.max(start, 0) + 6, y: y + 10 }, String(pattern + 1)),
    drawn("text", { class: inside ? "times" : "times outside", x: place, y: y + 10.5 }, text),
    drawn("rect", { class: "halo", x: first - 2, y: y - 3, width: Math.max(over, inside ? 0 : place + long) - first + 4, height: BAR + 5, rx: 6 }));
}

/** The place of the first of a lane's events that starts at a time or later. */
function placeFrom(list, at) {
  let low = 0, high = list.length;
  while (low < high) {
    const middle = (low + high) >> 1;
    if (events[list[middle]].start < at) low = middle + 1; else high = middle;
  }
  return low;
}

function* drawMarks(lane, x) {
  const list = eventsOf[lane], seen = [];
  for (let place = placeFrom(list, state.from - longest[lane]); place < list.length && events[list[place]].start <= state.to; place += 1) {
    const event = events[list[place]];
    if (event.end >= state.from && state.streams.has(event.stream)) seen.push(list[place]);
  }
  const places = seen.map((number) => x(events[number].start)), lately = new Map(), match = matches[state.chosen?.match];
  const held = new Set(match?.lane === lane ? match.events() : []), ringed = [];
  for (let place = 0; place < seen.length; place += 1) {
    const number = seen[place], event = events[number], at = places[place];
    if (at - (lately.get(event.stream) ?? -9) < 2 && !held.has(number) && state.chosen?.event !== number) continue;
    lately.set(event.stream, at);
    const roomy = at - (places[place - 1] ?? -99) >= NEAR && (places[place + 1] ?? at + 99) - at >= NEAR;
    const made = drawMark(number, event, at, roomy, held, x);
    if (held.has(number) || state.chosen?.event === number) ringed.push(made); else yield made;
  }
  yield* ringed;
}

function drawMark(number, event, at, roomy, held, x) {
  const ringed = held.has(number) || state.chosen?.event === number, radius = roomy ? LETTERED : SMALL;
  const lasts = event.end > event.start ? Math.max(2, x(event.end) - at) : 0;
  return drawn("g", { class: `mark${held.size && !ringed ? " dim" : ""}`, transform: `translate(${at} 15)`, "data-event": number, on: { click: () => choose({ event: number }) } },
    drawn("title", {}, `${event.stream}, ${inWords(event.start)}`),
    lasts ? drawn("rect", { x: 0, y: -3, width: lasts, height: 6, rx: 3, style: `fill:${streamTone(event.stream)};opacity:.45` }) : null,
    ringed ? drawn("circle", { class: roomy ? "ring" : "ring thin", r: radius + (roomy ? 3.5 : 2) }) : null,
    ...markOf(event.stream, radius, roomy));
}

// -- zoom and move --------------------------------------------------------------------------------------------------

function show(from, to) {
  const least = facts.time.moments ? 5 : 2, most = (whole.to - whole.from) * 1.3;
  const size = Math.min(Math.max(to - from, least), most), middle = (from + to) / 2;
  const kept = Math.min(Math.max(middle, whole.from), whole.to);
  state.from = kept - size / 2;
  state.to = kept + size / 2;
  redraw();
}

function zoom(factor, around = (state.from + state.to) / 2) {
  show(around - (around - state.from) * factor, around + (state.to - around) * factor);
}

const move = (share) => { const step = (state.to - state.from) * share; show(state.from + step, state.to + step); };
const timeAt = (clientX) => { const left = axis.querySelector("svg").getBoundingClientRect().left; return state.from + ((clientX - left) / width()) * (state.to - state.from); };

plot.addEventListener("wheel", (event) => {
  if (event.ctrlKey || event.metaKey) {
    event.preventDefault();
    zoom(Math.exp(Math.max(-60, Math.min(60, event.deltaY)) * 0.006), timeAt(event.clientX));
  } else if (event.shiftKey || Math.abs(event.deltaX) > Math.abs(event.deltaY)) {
    event.preventDefault();
    move((event.deltaX || event.deltaY) / width());
  }
}, { passive: false });

const pointers = new Map();
let dragged = 0;
plot.addEventListener("pointerdown", (event) => {
  if (event.button !== 0) return;
  pointers.set(event.pointerId, event.clientX);
  if (pointers.size === 1) dragged = 0;
});
addEventListener("pointermove", (event) => {
  if (!pointers.has(event.pointerId)) return;
  const before = [...pointers.values()];
  pointers.set(event.pointerId, event.clientX);
  const after = [...pointers.values()], unit = (state.to - state.from) / width();
  if (after.length === 1) {
    dragged += Math.abs(after[0] - before[0]);
    if (dragged < 4) return;
    plot.classList.add("moving");
    show(state.from - (after[0] - before[0]) * unit, state.to - (after[0] - before[0]) * unit);
  } else if (after.length === 2) {
    dragged = 99;
    const apart = [before, after].map(([one, other]) => Math.max(12, Math.abs(one - other)));
    zoom(apart[0] / apart[1], timeAt((after[0] + after[1]) / 2));
  }
});
for (const name of ["pointerup", "pointercancel"]) addEventListener(name, (event) => { pointers.delete(event.pointerId); plot.classList.remove("moving"); });
// A drag that ends on a match does not select it.
plot.addEventListener("click", (event) => { if (dragged >= 4) event.stopPropagation(); }, true);

plot.addEventListener("keydown", (event) => {
  const done = { "+": () => zoom(0.6), "=": () => zoom(0.6), "-": () => zoom(1 / 0.6), "0": () => show(whole.from, whole.to), "1": () => show(firstOnes.from, firstOnes.to), ArrowLeft: () => move(-0.2), ArrowRight: () => move(0.2), Escape: () => choose(null) }[event.key];
  if (done && !event.ctrlKey && !event.metaKey) { event.preventDefault(); done(); }
});

byId("zoom-in").addEventListener("click", () => zoom(0.5));
byId("zoom-out").addEventListener("click", () => zoom(2));
byId("zoom-all").addEventListener("click", () => show(whole.from, whole.to));
byId("zoom-matches").addEventListener("click", () => show(firstOnes.from, firstOnes.to));
byId("all-lanes").addEventListener("click", () => { state.allLanes = true; redraw(); });
byId("earlier").addEventListener("click", () => move(-0.35));
byId("later").addEventListener("click", () => move(0.35));

// -- filters --------------------------------------------------------------------------------------------------------

function chip(set, member, sign, name, number) {
  const made = element("button", { type: "button", class: "chip", "aria-pressed": "true" }, sign, element("span", {}, name), element("span", { class: "count" }, number === null ? "" : count.format(number)));
  made.addEventListener("click", () => {
    set.has(member) ? set.delete(member) : set.add(member);
    made.setAttribute("aria-pressed", String(set.has(member)));
    refilter();
  });
  return made;
}

facts.patterns.forEach((pattern, number) => byId("pattern-chips").append(chip(state.patterns, number, tag(number), pattern.name, pattern.count)));
facts.streams.forEach((stream) => byId("stream-chips").append(chip(state.streams, stream.name, badge(stream.name), stream.name, stream.rows)));
byId("key-text").addEventListener("input", (event) => { state.text = event.target.value; refilter(); });
byId("only-matched").addEventListener("change", (event) => { state.onlyMatched = event.target.checked; redraw(); });

/** Filters of patterns and keys apply to the table too. */
function refilter() {
  redraw();
  listMatches();
}
