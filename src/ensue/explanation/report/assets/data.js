// The content of the page, read from its packed form (see columns.py), and small things that all parts use.

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
  const text = letters.get(stream) ?? "";
  const small = triangle && text.length > 1; // Two letters of the usual size are wider than a triangle.
  return [
    drawn("path", { class: "body", d: SHAPES[number % SHAPES.length](radius), style: `fill:${streamTone(stream)}` }),
    lettered ? drawn("text", { y: (small ? 2.8 : 3.4) + triangle, style: small ? "font-size:7px" : null }, text) : null,
  ];
}

const badge = (stream) =>
  drawn("svg", { width: 24, height: 24, viewBox: "-12 -12 24 24", class: "mark", "aria-hidden": "true" }, ...markOf(stream, LETTERED, true));

// -- events and matches ---------------------------------------------------------------------------------------------

const column = (packed) => (Array.isArray(packed) ? packed : packed.at.map((place) => packed.of[place]));

/** A list in which -n stands for the n numbers after the one before it. */
function withSuccessors(list) {
  const found = [];
  for (const number of list) {
    if (number >= 0) found.push(number);
    else for (let left = -number; left > 0; left -= 1) found.push(found[found.length - 1] + 1);
  }
  return found;
}

/** Counts how often each value came before. */
function ranks(values) {
  const counts = new Map();
  return values.map((value) => { const rank = counts.get(value) ?? 0; counts.set(value, rank + 1); return rank; });
}

const events = readEvents(facts.events), results = readResults(facts.matches), matches = readMatches(facts.matches);

function readEvents(packed) {
  const [stream, start, fields, lanes] = ["stream", "start", "fields", "lanes"].map((name) => column(packed[name]));
  const values = packed.values.map((group) => group.map(column)), place = ranks(fields), derived = new Set(packed.derived);
  return start.map((at, number) => ({
    stream: stream[number], start: at, end: packed.end[number] ?? at, lanes: lanes[number], derived: derived.has(number),
    pairs: () => facts.fields[fields[number]].map((name, own) => [name, values[fields[number]][own][place[number]]]),
  }));
}

/** The columns of the results: `value` finds one in the row of a match, or null, without making the row. */
function readResults(packed) {
  const shape = column(packed.shape), place = ranks(shape), rows = packed.rows.map((group) => group.map(column));
  const names = [...new Set(packed.shapes.flat())], columnOf = packed.shapes.map((own) => new Map(own.map((name, number) => [name, number])));
  const value = (name, number) => { const own = columnOf[shape[number]].get(name); return own === undefined ? null : rows[shape[number]][own][place[number]]; };
  return { names, value, has: (name, number) => columnOf[shape[number]].has(name), pairs: (number) => packed.shapes[shape[number]].map((name) => [name, value(name, number)]) };
}

/** `from` and `to` include collected events and the time until the match was complete. */
function readMatches(packed) {
  const names = ["pattern", "lane", "start", "end", "complete", "span", "words", "id"];
  const [pattern, lane, start, end, complete, span, words, id] = names.map((name) => column(packed[name]));
  return start.map((at, number) => ({
    number, pattern: pattern[number], lane: lane[number], start: at, end: end[number], complete: complete[number],
    span: span[number], words: words[number], id: id[number],
    from: span[number] ? span[number][0] : at,
    to: Math.max(complete[number], end[number], span[number] ? span[number][1] : at),
    events: () => withSuccessors(packed.events[number]),
    proof: () => (packed.proof[number] === null ? null : proofPart(packed.proof[number])),
  }));
}

function proofPart(number) {
  const [kind, text, , parts] = facts.proofs[number];
  return { kind, text, because: parts === undefined ? null : withSuccessors(parts).map(proofPart) };
}

const asText = (value) => {
  if (value === null) return "null";
  if (typeof value !== "object") return String(value);
  return Object.entries(value).map(([name, inner]) => `${Array.isArray(value) ? "" : `${name}: `}${asText(inner)}`).join(", ");
};

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
