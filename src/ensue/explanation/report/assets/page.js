"use strict";
(() => {
  const facts = JSON.parse(document.getElementById("facts").textContent);
  const SVG = "http://www.w3.org/2000/svg";
  const LANE_TOP = 30, BAR = 13, BAR_GAP = 4, LETTERED = 9.5, SMALL = 5.5, NEAR = 20;
  const STREAM_TONES = 8, PATTERN_TONES = 6;
  const phone = matchMedia("(max-width: 640px)");
  const count = new Intl.NumberFormat("en-US");
  const byId = (id) => document.getElementById(id);

  // -- small things ---------------------------------------------------------------------------------------------------

  function element(name, options = {}, ...children) {
    const made = document.createElement(name);
    fill(made, options, children);
    return made;
  }

  function drawn(name, options = {}, ...children) {
    const made = document.createElementNS(SVG, name);
    fill(made, options, children);
    return made;
  }

  function fill(made, options, children) {
    for (const [key, value] of Object.entries(options)) {
      if (value === null || value === undefined) continue;
      if (key === "on") for (const [event, handler] of Object.entries(value)) made.addEventListener(event, handler);
      else made.setAttribute(key, value);
    }
    made.append(...children.filter((child) => child !== null && child !== ""));
  }

  const plural = (number, one, many) => `${count.format(number)} ${number === 1 ? one : many}`;
  const patternTone = (number) => `--tone: var(--p${number % PATTERN_TONES})`;
  const streamNumber = new Map(facts.streams.map((stream, number) => [stream.name, number]));
  const streamTone = (name) => `var(--s${(streamNumber.get(name) ?? 0) % STREAM_TONES})`;
  const tag = (pattern) => element("span", { class: "tag", style: patternTone(pattern), "aria-hidden": "true" }, String(pattern + 1));
  const letters = shortNames(facts.streams.map((stream) => stream.name));

  /** One or two letters for each name, different for different names as far as that goes. */
  function shortNames(names) {
    const taken = new Set(), found = new Map();
    const firsts = names.map((name) => [...name][0] ?? "?");
    names.forEach((name, place) => {
      const own = [...name], first = firsts[place].toUpperCase();
      const alone = firsts.filter((other) => other.toUpperCase() === first).length === 1;
      const options = alone ? [first] : own.slice(1).map((letter) => first + letter.toLowerCase());
      const chosen = options.find((option) => !taken.has(option)) ?? first;
      taken.add(chosen);
      found.set(name, chosen);
    });
    return found;
  }

  const SHAPES = [
    (r) => `M${-r} 0A${r} ${r} 0 1 0 ${r} 0A${r} ${r} 0 1 0 ${-r} 0Z`,
    (r) => { const a = r * 0.9; return `M${-a} ${-a}H${a}V${a}H${-a}Z`; },
    (r) => { const a = r * 1.2; return `M0 ${-a}L${a} 0L0 ${a}L${-a} 0Z`; },
    (r) => { const a = r * 1.15; return `M0 ${-a}L${a * 1.05} ${a * 0.8}H${-a * 1.05}Z`; },
    (r) => { const a = r * 1.08, b = a * 0.5, c = a * 0.87; return `M${-b} ${-c}H${b}L${a} 0L${b} ${c}H${-b}L${-a} 0Z`; },
    (r) => { const a = r * 1.15; return `M0 ${a}L${a * 1.05} ${-a * 0.8}H${-a * 1.05}Z`; },
    (r) => { const a = r * 1.1, b = a * 0.45; return `M${-b} ${-a}H${b}L${a} ${-b}V${b}L${b} ${a}H${-b}L${-a} ${b}V${-b}Z`; },
  ];

  function markOf(stream, radius, lettered) {
    const number = streamNumber.get(stream) ?? 0;
    const triangle = number % SHAPES.length === 3 ? 2.2 : number % SHAPES.length === 5 ? -1.8 : 0;
    return [
      drawn("path", { class: "body", d: SHAPES[number % SHAPES.length](radius), style: `fill:${streamTone(stream)}` }),
      lettered ? drawn("text", { y: 3.4 + triangle }, letters.get(stream) ?? "") : null,
    ];
  }

  const badge = (stream) =>
    drawn("svg", { width: 24, height: 24, viewBox: "-12 -12 24 24", class: "mark", "aria-hidden": "true" }, ...markOf(stream, LETTERED, true));

  // -- time -----------------------------------------------------------------------------------------------------------

  const SECOND = 1000, MINUTE = 60 * SECOND, HOUR = 60 * MINUTE, DAY = 24 * HOUR, MONTHS = ["Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"];
  const STEPS = [1, 2, 5, 10, 20, 50, 100, 200, 500, SECOND, 2 * SECOND, 5 * SECOND, 10 * SECOND, 15 * SECOND, 30 * SECOND, MINUTE, 2 * MINUTE, 5 * MINUTE,
    10 * MINUTE, 15 * MINUTE, 30 * MINUTE, HOUR, 2 * HOUR, 3 * HOUR, 6 * HOUR, 12 * HOUR, DAY, 2 * DAY, 4 * DAY, 7 * DAY, 14 * DAY];
  const two = (number) => String(number).padStart(2, "0");

  function ticks(from, to, most) {
    return facts.time.moments ? momentTicks(from, to, most) : numberTicks(from, to, most);
  }

  function numberTicks(from, to, most) {
    const rough = Math.max(1, (to - from) / most), power = 10 ** Math.floor(Math.log10(rough));
    const step = Math.max(1, [1, 2, 5, 10].map((factor) => factor * power).find((size) => size >= rough));
    return evenly(from, to, step).map((at) => ({ at, text: count.format(at) }));
  }

  function evenly(from, to, step) {
    const found = [];
    for (let at = Math.ceil(from / step) * step; at <= to; at += step) found.push(at);
    return found;
  }

  function momentTicks(from, to, most) {
    const rough = (to - from) / most, step = STEPS.find((size) => size >= rough);
    if (step === undefined) return monthTicks(from, to, rough);
    return evenly(from, to, step).map((at, place) => ({ at, text: tickText(at, step, place === 0) }));
  }

  function monthTicks(from, to, rough) {
    const months = [1, 3, 6, 12, 24, 60, 120, 600].find((size) => size * 30.4 * DAY >= rough) ?? 1200, found = [];
    const first = new Date(from);
    for (let month = first.getUTCMonth() - (first.getUTCMonth() % Math.min(months, 12)), year = first.getUTCFullYear(); ; month += months) {
      const at = Date.UTC(year, month, 1);
      if (at > to || found.length > 100) return found;
      const day = new Date(at);
      if (at >= from) found.push({ at, text: months < 12 ? `${MONTHS[day.getUTCMonth()]} ${day.getUTCFullYear()}` : String(day.getUTCFullYear()) });
    }
  }

  function tickText(at, step, first) {
    const moment = new Date(at), day = `${moment.getUTCDate()} ${MONTHS[moment.getUTCMonth()]}`;
    if (step >= DAY) return day;
    const midnight = at % DAY === 0;
    let text = `${two(moment.getUTCHours())}:${two(moment.getUTCMinutes())}`;
    if (step < MINUTE) text += `:${two(moment.getUTCSeconds())}`;
    if (step < SECOND) text += `.${String(moment.getUTCMilliseconds()).padStart(3, "0")}`;
    return midnight ? day : first ? `${day}, ${text}` : text;
  }

  function inWords(at) {
    if (!facts.time.moments) return count.format(at);
    const moment = new Date(at);
    if (Number.isNaN(moment.getTime())) return String(at);
    const text = moment.toISOString().replace("T", " ").replace("Z", "");
    return text.endsWith(".000") ? text.slice(0, -4) : text;
  }

  // -- what is visible -------------------------------------------------------------------------------------------------

  const eventsOf = facts.lanes.map(() => []), matchesOf = facts.lanes.map(() => []);
  facts.events.forEach((event, number) => event.lanes.forEach((lane) => eventsOf[lane].push(number)));
  facts.matches.forEach((match, number) => matchesOf[match.lane].push(number));
  eventsOf.forEach((list) => list.sort((x, y) => facts.events[x].start - facts.events[y].start));

  const whole = wholeRange();
  const state = {
    from: whole.from, to: whole.to,
    patterns: new Set(facts.patterns.keys()), streams: new Set(facts.streams.map((stream) => stream.name)),
    text: "", onlyMatched: false, chosen: null,
  };

  function wholeRange() {
    let from = Infinity, to = -Infinity;
    const cover = (start, end) => { from = Math.min(from, start); to = Math.max(to, end); };
    facts.events.forEach((event) => cover(event.start, event.end));
    facts.matches.forEach((match) => cover(match.start, match.complete));
    if (from > to) cover(facts.time.first ?? 0, facts.time.last ?? 1);
    const margin = (to - from || 1) * 0.025;
    return { from: from - margin, to: to + margin };
  }

  const sees = (match) => state.patterns.has(match.pattern);

  function seenLanes() {
    const all = state.patterns.size === facts.patterns.length, text = state.text.trim().toLowerCase();
    return [...facts.lanes.keys()].filter((lane) => {
      if (text && !facts.lanes[lane].label.toLowerCase().includes(text)) return false;
      return (all && !state.onlyMatched) || matchesOf[lane].some((number) => sees(facts.matches[number]));
    });
  }

  // -- the plot -------------------------------------------------------------------------------------------------------

  const plot = byId("plot"), axis = byId("axis"), laneHome = byId("lanes");
  const width = () => Math.max(120, plot.clientWidth - (phone.matches ? 0 : 132));
  const scale = () => { const factor = width() / (state.to - state.from); return (at) => (at - state.from) * factor; };

  let asked = false;
  function redraw() {
    if (asked) return;
    asked = true;
    requestAnimationFrame(() => { asked = false; drawAll(); });
  }

  function drawAll() {
    const held = document.activeElement?.dataset?.match;
    const lanes = seenLanes(), marks = ticks(state.from, state.to, Math.max(2, width() / 96)), x = scale();
    axis.replaceChildren(drawAxis(marks, x));
    laneHome.replaceChildren(...lanes.map((lane) => drawLane(lane, marks, x)));
    byId("lane-count").textContent = lanes.length === facts.lanes.length
      ? plural(lanes.length, "lane", "lanes") : `${count.format(lanes.length)} of ${plural(facts.lanes.length, "lane", "lanes")}`;
    byId("no-lanes").hidden = lanes.length > 0;
    byId("no-lanes").textContent = facts.lanes.length ? "No key matches these filters." : "No events.";
    if (held !== undefined) laneHome.querySelector(`[data-match="${held}"]`)?.focus({ preventScroll: true });
    drawViews();
  }

  function drawAxis(marks, x) {
    const svg = drawn("svg", { width: width(), height: 33 });
    for (const { at, text } of marks) {
      const place = x(at), edge = place < 34 ? "start" : place > width() - 34 ? "end" : "middle";
      svg.append(drawn("line", { class: "grid", x1: place, x2: place, y1: 26, y2: 33 }), drawn("text", { x: place, y: 20, "text-anchor": edge }, text));
    }
    return svg;
  }

  function drawLane(lane, marks, x) {
    const own = facts.lanes[lane], spans = placed(matchesOf[lane].filter((number) => sees(facts.matches[number])), x);
    const rows = spans.reduce((most, span) => Math.max(most, span.row + 1), 0), height = LANE_TOP + rows * (BAR + BAR_GAP) + (rows ? 6 : 2);
    const svg = drawn("svg", { width: width(), height, role: "group", "aria-label": `${own.keys} ${own.label}` });
    for (const { at } of marks) svg.append(drawn("line", { class: "grid", x1: x(at), x2: x(at), y1: 0, y2: height }));
    spans.forEach((span) => svg.append(drawMatch(span)));
    svg.append(...drawMarks(lane, x));
    const told = own.matches ? plural(own.matches, "match", "matches") : "no match";
    return element("div", { class: "lane", "data-lane": lane },
      element("div", { class: "lane-label", title: own.keys ? `${own.keys}: ${own.label}` : own.label }, own.label, element("small", {}, told)),
      element("div", { class: "lane-plot" }, svg));
  }

  /** Spans in rows, so that no two of a row touch. */
  function placed(numbers, x) {
    const ends = [], found = [];
    for (const number of numbers) {
      const match = facts.matches[number], left = x(match.start), right = Math.max(x(match.end), left + 18), until = Math.max(right, x(match.complete));
      if (until < -20 || left > width() + 20) continue;
      let row = ends.findIndex((end) => end + 4 < left);
      if (row < 0) row = ends.length;
      ends[row] = until;
      found.push({ number, left, right, until, row });
    }
    return found;
  }

  function drawMatch({ number, left, right, until, row }) {
    const match = facts.matches[number], pattern = facts.patterns[match.pattern], y = LANE_TOP + row * (BAR + BAR_GAP);
    const chosen = state.chosen?.match === number, other = state.chosen?.match !== undefined && !chosen && facts.matches[state.chosen.match].lane === match.lane;
    const begin = Math.max(left, -10), stop = Math.min(right, width() + 10), last = Math.min(until, width() + 10);
    const label = `${pattern.name}, ${facts.lanes[match.lane].label}, ${match.words}`;
    const open = () => choose({ match: number });
    return drawn("g", {
      class: `match${chosen ? " chosen" : ""}${other ? " dim" : ""}`, style: patternTone(match.pattern), tabindex: 0, role: "button", "aria-label": label, "data-match": number,
      "aria-pressed": chosen, on: { click: open, keydown: (event) => { if (event.key === "Enter" || event.key === " ") { event.preventDefault(); event.stopPropagation(); open(); } } },
    },
      drawn("title", {}, label),
      last > stop ? drawn("rect", { class: "until", x: begin + 1, y: y + 1, width: Math.max(1, last - begin - 2), height: BAR - 2, rx: 4 }) : null,
      stop > begin ? drawn("rect", { class: "bar", x: begin, y, width: stop - begin, height: BAR, rx: 4 }) : null,
      stop > begin + 12 ? drawn("text", { x: Math.max(begin, 0) + 6, y: y + 10 }, String(match.pattern + 1)) : null,
      drawn("rect", { class: "halo", x: begin - 2, y: y - 2, width: Math.max(18, last - begin) + 4, height: BAR + 4, rx: 6 }));
  }

  function* drawMarks(lane, x) {
    const seen = eventsOf[lane].filter((number) => {
      const event = facts.events[number];
      return state.streams.has(event.stream) && event.end >= state.from && event.start <= state.to;
    });
    const places = seen.map((number) => x(facts.events[number].start)), lately = new Map();
    const match = facts.matches[state.chosen?.match], held = new Set(match?.lane === lane ? match.events : []);
    for (let place = 0; place < seen.length; place += 1) {
      const number = seen[place], event = facts.events[number], at = places[place];
      if (at - (lately.get(event.stream) ?? -9) < 2 && !held.has(number) && state.chosen?.event !== number) continue;
      lately.set(event.stream, at);
      const roomy = at - (places[place - 1] ?? -99) >= NEAR && (places[place + 1] ?? at + 99) - at >= NEAR;
      yield drawMark(number, event, at, roomy, held, x);
    }
  }

  function drawMark(number, event, at, roomy, held, x) {
    const ringed = held.has(number) || state.chosen?.event === number, radius = roomy ? LETTERED : SMALL;
    const lasts = event.end > event.start ? Math.max(2, x(event.end) - at) : 0;
    return drawn("g", { class: `mark${held.size && !ringed ? " dim" : ""}`, transform: `translate(${at} 15)`, "data-event": number, on: { click: () => choose({ event: number }) } },
      drawn("title", {}, `${event.stream}, ${inWords(event.start)}`),
      lasts ? drawn("rect", { x: 0, y: -3, width: lasts, height: 6, rx: 3, style: `fill:${streamTone(event.stream)};opacity:.45` }) : null,
      ringed ? drawn("circle", { class: "ring", r: radius + 3.5 }) : null,
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
    const done = { "+": () => zoom(0.6), "=": () => zoom(0.6), "-": () => zoom(1 / 0.6), "0": () => show(whole.from, whole.to), ArrowLeft: () => move(-0.2), ArrowRight: () => move(0.2), Escape: () => choose(null) }[event.key];
    if (done && !event.ctrlKey && !event.metaKey) { event.preventDefault(); done(); }
  });

  byId("zoom-in").addEventListener("click", () => zoom(0.5));
  byId("zoom-out").addEventListener("click", () => zoom(2));
  byId("zoom-all").addEventListener("click", () => show(whole.from, whole.to));
  byId("earlier").addEventListener("click", () => move(-0.35));
  byId("later").addEventListener("click", () => move(0.35));

  // -- filters --------------------------------------------------------------------------------------------------------

  function chip(set, member, sign, name, number) {
    const made = element("button", { type: "button", class: "chip", "aria-pressed": "true" }, sign, element("span", {}, name), element("span", { class: "count" }, number === null ? "" : count.format(number)));
    made.addEventListener("click", () => {
      set.has(member) ? set.delete(member) : set.add(member);
      made.setAttribute("aria-pressed", String(set.has(member)));
      redraw();
    });
    return made;
  }

  facts.patterns.forEach((pattern, number) => byId("pattern-chips").append(chip(state.patterns, number, tag(number), pattern.name, pattern.count)));
  facts.streams.forEach((stream) => byId("stream-chips").append(chip(state.streams, stream.name, badge(stream.name), stream.name, stream.rows)));
  byId("key-text").addEventListener("input", (event) => { state.text = event.target.value; redraw(); });
  byId("only-matched").addEventListener("change", (event) => { state.onlyMatched = event.target.checked; redraw(); });

  // -- details --------------------------------------------------------------------------------------------------------

  const details = byId("details");

  function choose(what) {
    state.chosen = what;
    details.classList.toggle("open", what !== null);
    if (what === null) details.replaceChildren(...nothingChosen());
    else if (what.match !== undefined) details.replaceChildren(...matchDetails(what.match));
    else details.replaceChildren(...eventDetails(what.event, what.from));
    details.scrollTop = 0;
    redraw();
  }

  function nothingChosen() {
    const told = facts.matches.length ? "Select a match to see its events and its proof, or an event to see its fields." : "No matches. Select an event to see its fields, or run ensue why-not to see what prevents a match.";
    return [element("h3", {}, "Details"), element("p", { class: "nothing" }, told)];
  }

  function heading(sign, title, where) {
    const close = element("button", { type: "button", class: "icon-button", "aria-label": "Close", on: { click: () => choose(null) } }, "✕");
    return element("div", { class: "details-head" }, element("div", {}, element("h3", { style: "display:flex;gap:9px;align-items:center" }, sign, title), element("p", { class: "where" }, where)), close);
  }

  function* matchDetails(number) {
    const match = facts.matches[number], pattern = facts.patterns[match.pattern], lane = facts.lanes[match.lane];
    yield heading(tag(match.pattern), pattern.name, `${lane.keys ? `${lane.keys} ${lane.label}, ` : ""}${match.words}`);
    const padding = Math.max((match.complete - match.start) * 0.35, facts.time.moments ? 1000 : 1);
    yield element("div", { class: "actions" }, element("button", { type: "button", class: "plain-button", on: { click: () => show(match.start - padding, match.complete + padding) } }, "Zoom to this match"));
    if (Object.keys(match.row).length) yield* titled("Result", pairs(match.row));
    yield* titled("Events", eventList(match.events, number));
    yield* titled("Why it is a match", element("ul", { class: "why" }, ...(match.proof.because ?? [match.proof]).map((part) => why(part))));
    if (match.id) yield* titled("Match id", element("p", { style: "font:12px var(--mono);overflow-wrap:anywhere" }, match.id));
  }

  function* titled(title, content) { yield element("h4", {}, title); yield content; }

  function eventList(numbers, match) {
    const own = numbers.filter((number) => facts.events[number].lanes.length).sort((x, y) => facts.events[x].start - facts.events[y].start);
    return element("div", { class: "event-list" }, ...own.map((number) => {
      const event = facts.events[number];
      return element("button", { type: "button", class: "line-button", on: { click: () => choose({ event: number, from: match }) } },
        badge(event.stream), element("span", {}, event.stream), element("span", { class: "when" }, inWords(event.start)));
    }));
  }

  const SIGNS = { absence: "∅", order: "→", window: "↔", key: "=", event: "•", collection: "≡", match: "◦", cut: "…" };

  function why(part) {
    const shown = element("div", { class: "row" }, element("span", { class: "sign", "aria-hidden": "true" }, SIGNS[part.kind] ?? "✓"), element("span", { class: "words" }, part.text));
    return element("li", { class: part.kind }, shown, part.because ? element("ul", {}, ...part.because.map(why)) : null);
  }

  function* eventDetails(number, from) {
    const event = facts.events[number], names = facts.fields[event.fields];
    const lasts = event.end > event.start ? ` to ${inWords(event.end)}` : "";
    yield heading(badge(event.stream), event.stream, inWords(event.start) + lasts + (event.derived ? ", derived" : ""));
    if (from !== undefined) yield element("div", { class: "actions" }, element("button", { type: "button", class: "plain-button", on: { click: () => choose({ match: from }) } }, "← Back to match"));
    yield* titled("Fields", pairs(Object.fromEntries(names.map((name, place) => [name, event.values[place]]))));
    const uses = facts.matches.map((match, place) => [match, place]).filter(([match]) => match.events.includes(number));
    if (uses.length) yield* titled("Used in", element("div", { class: "event-list" }, ...uses.map(([match, place]) =>
      element("button", { type: "button", class: "line-button", on: { click: () => choose({ match: place }) } }, tag(match.pattern), element("span", {}, facts.patterns[match.pattern].name)))));
  }

  function pairs(values) {
    const list = element("dl", { class: "pairs" });
    for (const [name, value] of Object.entries(values)) list.append(element("dt", {}, name), value === null ? element("dd", { class: "null" }, "null") : element("dd", {}, asText(value)));
    return list;
  }

  const asText = (value) => (typeof value === "object" ? Object.entries(value).map(([name, inner]) => `${Array.isArray(value) ? "" : `${name}: `}${inner === null ? "null" : asText(inner)}`).join(", ") : String(value));

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
    if (facts.leftOut.length) byId("left-out").textContent = `This page shows ${facts.leftOut.join("; ")}.`;
    byId("left-out").after(...facts.ties.map((words) => element("span", {}, ` ${words}.`)));
  }

  drawHead();
  drawHistograms();
  drawStatements();
  drawRows();
  choose(null);
  new ResizeObserver(redraw).observe(plot);
})();
