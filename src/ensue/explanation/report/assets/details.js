// What is chosen, with its details: a match, several matches in one bar, or an event. The address names a chosen match.

const details = byId("details"), FEW = 12;

function choose(what, { reveal = false } = {}) {
  const before = state.chosen?.match;
  state.chosen = what;
  details.classList.toggle("open", what !== null);
  const shown = what === null ? nothingChosen() : what.missing !== undefined ? missing(what.missing) : what.match !== undefined ? matchDetails(what.match)
    : what.fold ? foldDetails(what.fold) : eventDetails(what.event, what.from);
  details.replaceChildren(...shown);
  details.scrollTop = 0;
  if (what?.match !== undefined) bringIntoView(matches[what.match]);
  if (what?.match !== undefined || before !== undefined) setAddress(what?.match === undefined ? "" : addressOf(matches[what.match]));
  if (reveal) revealLane(matches[what.match]); else redraw();
  markChosenRow(what?.match);
}

// -- addresses ------------------------------------------------------------------------------------------------------

const numberOfId = new Map(matches.filter((match) => match.id).map((match) => [match.id, match.number]));

/** The part of the address after `#`: the id of the match, which other reports share, or its number on this page. */
const addressOf = (match) => `#match=${match.id ? encodeURIComponent(match.id) : match.number + 1}`;

function setAddress(address) {
  const page = location.href.split("#")[0];
  // A page in a notebook has no address of its own.
  try { history.replaceState(null, "", page + address); } catch (error) { if (error.name !== "SecurityError") throw error; }
}

function chooseByAddress() {
  const found = /^#match=(.+)$/.exec(location.hash);
  if (!found) return;
  let name = found[1];
  try { name = decodeURIComponent(name); } catch (error) { if (!(error instanceof URIError)) throw error; }
  const number = numberOfId.get(name) ?? (/^\d+$/.test(name) ? Number(name) - 1 : -1);
  if (matches[number]) choose({ match: number }, { reveal: true }); else choose({ missing: name });
}

addEventListener("hashchange", chooseByAddress);

/** Moves the timeline to a match that is not in it. */
function bringIntoView(match) {
  const own = rangeOf([match], 0.35);
  if (match.from < state.from || match.to > state.to) show(own.from, own.to);
}

/** Shows the lane of a match and scrolls the page to it. */
function revealLane(match) {
  if (!sees(match)) { state.patterns.add(match.pattern); byId("pattern-chips").children[match.pattern].setAttribute("aria-pressed", "true"); }
  if (!hasText(match.lane)) { state.text = ""; byId("key-text").value = ""; }
  if (!seenLanes().slice(0, FIRST_LANES).includes(match.lane)) state.allLanes = true;
  drawAll(false);
  const node = laneHome.querySelector(`[data-lane="${match.lane}"]`), box = node.getBoundingClientRect();
  if (box.top < 40 || box.bottom > innerHeight) node.scrollIntoView({ block: "center" });
  drawVisibleLanes();
}

// -- what the panel shows -------------------------------------------------------------------------------------------

function* nothingChosen() {
  const told = matches.length ? "Select a match to see its events and its proof, or an event to see its fields." : "No matches. Select an event to see its fields, or run ensue why-not to see what prevents a match.";
  yield element("h3", {}, "Details");
  yield element("p", { class: "nothing" }, told);
}

function* missing(name) {
  yield heading(null, "Match not on this page", "");
  yield element("p", { class: "nothing" }, `The address names the match ${name}. ${facts.sample.matches.length ? `This page has ${facts.sample.matches[0]}.` : "This page has no such match."}`);
}

function heading(sign, title, where) {
  const close = element("button", { type: "button", class: "icon-button", "aria-label": "Close", on: { click: () => choose(null) } }, "✕");
  return element("div", { class: "details-head" }, element("div", {}, element("h3", {}, sign, title), element("p", { class: "where" }, where)), close);
}

const actions = (...made) => element("div", { class: "actions" }, ...made);
const plainButton = (text, click) => element("button", { type: "button", class: "plain-button", on: { click } }, text);
function* titled(title, content) { yield element("h4", {}, title); yield content; }

function* matchDetails(number) {
  const match = matches[number], pattern = facts.patterns[match.pattern], row = results.pairs(number), proof = match.proof(), range = rangeOf([match], 0.35);
  yield heading(tag(match.pattern), pattern.name, `${facts.lanes[match.lane].label}, ${match.words}`);
  yield actions(plainButton("Zoom to this match", () => show(range.from, range.to)), copyButton("Copy link", () => location.href.split("#")[0] + addressOf(match), "Copied"));
  if (row.length) yield* titled("Result", pairs(row));
  if (match.span) yield* titled("With collected events", element("p", { class: "number" }, `${inWords(match.span[0])} to ${inWords(match.span[1])}`));
  yield* titled("Events", eventList(match.events(), number));
  if (proof) yield* titled("Why it is a match", element("ul", { class: "why" }, ...(proof.because ?? [proof]).map((part) => why(part))));
  else yield* titled("Why it is a match", element("p", { class: "nothing" }, `This page has ${facts.sample.proofs[0]}, and not that of this match. Use ensue.justify to prove it.`));
  if (match.id) yield* titled("Match id", element("p", { class: "id" }, match.id));
}

function* foldDetails({ lane, pattern, members }) {
  const { from, to } = spanOf(members), range = rangeOf(members, 0.05), name = `${lane}:${pattern}`, isOpen = state.unfolded.has(name);
  yield heading(tag(pattern), `${facts.patterns[pattern].name} ×${count.format(members.length)}`, `${facts.lanes[lane].label}, ${inWords(from)} to ${inWords(to)}`);
  yield actions(plainButton("Zoom to these matches", () => show(range.from, range.to)), isOpen ? null : plainButton("Unfold in this lane", () => { state.unfolded.add(name); choose(null); }));
  yield* titled(plural(members.length, "overlapping match", "overlapping matches"), matchList(members));
}

const matchList = (members) => shortened(members, (match) =>
  element("button", { type: "button", class: "line-button", on: { click: () => choose({ match: match.number }) } }, tag(match.pattern), element("span", {}, `#${match.number + 1}`), element("span", { class: "when" }, inWords(match.start))));

/** A list with its first entries, and a button that shows the others. */
function shortened(list, made) {
  const home = element("div", { class: "event-list" }, ...list.slice(0, FEW).map(made));
  if (list.length <= FEW) return home;
  const all = plainButton(`Show all ${count.format(list.length)}`, () => { home.replaceChildren(...list.map(made)); home.children[FEW].focus(); });
  home.append(all);
  return home;
}

function eventList(numbers, match) {
  const own = numbers.filter((number) => events[number].lanes.length).sort((x, y) => events[x].start - events[y].start);
  return shortened(own, (number) => {
    const event = events[number];
    return element("button", { type: "button", class: "line-button", on: { click: () => choose({ event: number, from: match }) } },
      badge(event.stream), element("span", {}, event.stream), element("span", { class: "when" }, inWords(event.start)));
  });
}

const SIGNS = { absence: "∅", order: "→", window: "↔", key: "=", event: "•", collection: "≡", match: "◦", cut: "…" };

function why(part) {
  const shown = element("div", { class: "row" }, element("span", { class: "sign", "aria-hidden": "true" }, SIGNS[part.kind] ?? "✓"), element("span", { class: "words" }, part.text));
  const parts = part.because ? element("ul", {}, ...part.because.map(why)) : null, isLong = part.because?.length > FEW;
  return element("li", { class: part.kind }, shown, isLong ? element("details", {}, element("summary", {}, `${count.format(part.because.length)} parts`), parts) : parts);
}

function* eventDetails(number, from) {
  const event = events[number], lasts = event.end > event.start ? ` to ${inWords(event.end)}` : "";
  yield heading(badge(event.stream), event.stream, inWords(event.start) + lasts + (event.derived ? ", derived" : ""));
  if (from !== undefined) yield actions(plainButton("← Back to match", () => choose({ match: from })));
  yield* titled("Fields", pairs(event.pairs()));
  const uses = matches.filter((match) => match.events().includes(number));
  if (uses.length) yield* titled("Used in", matchList(uses));
}

function pairs(values) {
  const list = element("dl", { class: "pairs" });
  for (const [name, value] of values) list.append(element("dt", {}, name), value === null ? element("dd", { class: "null" }, "null") : element("dd", {}, asText(value)));
  return list;
}
