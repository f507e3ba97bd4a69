// The matches as a table: sorted, filtered, copied, downloaded. Only the rows in its window are in the document.

const ROW = 34, tableHome = byId("table-home"), tableBody = byId("table-body"), MEASURED = 200;
const columns = tableColumns();
const table = { sort: columns.findIndex((one) => one.name === "start"), isDescending: false, text: "", listed: [], texts: new Map() };

/** Columns of the page, and those of RETURN. Columns in which nothing differs from the one before it are left out. */
function tableColumns() {
  const time = (name, value) => ({ name, value, text: (match) => inWords(value(match)) });
  const found = [{ name: "match", value: (match) => match.number + 1, text: (match) => `#${match.number + 1}`, isNumber: true }];
  if (facts.patterns.length > 1) found.push({ name: "pattern", value: (match) => facts.patterns[match.pattern].name });
  if (matches.some((match) => keysInResult(match) !== facts.lanes[match.lane].label)) found.push({ name: "key", value: (match) => facts.lanes[match.lane].label });
  found.push(time("start", (match) => match.start));
  if (matches.some((match) => match.end !== match.start)) found.push(time("end", (match) => match.end));
  if (matches.some((match) => match.complete !== match.end)) found.push(time("complete", (match) => match.complete));
  return [...found, ...resultColumns(found)].map((one) => withDefaults(one));
}

/** The label of a match's lane, if its result row has the columns of the key. */
function keysInResult(match) {
  const { keys } = facts.patterns[match.pattern];
  return keys.every((key) => results.has(key, match.number)) ? keys.map((key) => `${key} = ${asText(results.value(key, match.number))}`).join(", ") || "all events" : null;
}

function resultColumns(known) {
  return results.names.map((name) => ({ name, isResult: true, value: (match) => results.value(name, match.number) })).filter((one) => {
    // Without RETURN, the result repeats the times.
    const same = known.find((other) => other.name === one.name);
    return !same || matches.some((match) => one.value(match) !== null && String(one.value(match)).replace("+00:00", "") !== same.text?.(match));
  });
}

function withDefaults(one) {
  const text = one.text ?? ((match) => { const value = one.value(match); return value === null ? "" : asText(value); });
  const isNumber = one.isNumber ?? (!one.text && matches.some((match) => typeof one.value(match) === "number") && matches.every((match) => ["number", "object"].includes(typeof one.value(match))));
  const letters = matches.slice(0, MEASURED).reduce((most, match) => Math.max(most, text(match).length), one.name.length + 2);
  return { ...one, text, isNumber, width: Math.min(320, Math.max(64, letters * 7.4 + (one.name === "pattern" ? 60 : 30))) };
}

function matchText(match) {
  if (!table.texts.has(match.number)) table.texts.set(match.number, columns.map((one) => one.text(match)).join("\u0001").toLowerCase());
  return table.texts.get(match.number);
}

/** Lists the matches that meet the filters, in the order of the table. */
function listMatches() {
  const words = table.text.trim().toLowerCase().split(/\s+/).filter(Boolean), lanes = facts.lanes.map((_, lane) => hasText(lane));
  const found = matches.filter((match) => sees(match) && lanes[match.lane] && words.every((word) => matchText(match).includes(word)));
  const sorted = columns[table.sort], sign = table.isDescending ? -1 : 1, keys = new Map(found.map((match) => [match, sortKey(sorted.value(match))]));
  table.listed = found.sort((x, y) => {
    const one = keys.get(x), other = keys.get(y);
    // Null is last in both directions.
    if (one === null || other === null) return one === other ? x.number - y.number : one === null ? 1 : -1;
    if (typeof one !== typeof other) return sign * (typeof one < typeof other ? -1 : 1);
    return one < other ? -sign : one > other ? sign : x.number - y.number;
  });
  byId("table-count").textContent = found.length === matches.length ? plural(found.length, "match", "matches") : `${count.format(found.length)} of ${plural(matches.length, "match", "matches")}`;
  byId("table-empty").hidden = found.length > 0;
  byId("table-empty").textContent = matches.length ? "No match meets these filters." : "No matches.";
  byId("table").hidden = !found.length;
  for (const name of ["copy-table", "save-table"]) byId(name).disabled = !found.length;
  drawTableHead();
  tableHome.scrollTop = 0;
  drawTableRows();
}

const sortKey = (value) => (value === null || typeof value === "number" || typeof value === "string" ? value : asText(value));

function drawTableHead() {
  byId("table-columns").replaceChildren(...columns.map((one) => element("col", { style: `width:${one.width}px` })));
  byId("table").style.width = `${columns.reduce((sum, one) => sum + one.width, 0)}px`;
  const held = document.activeElement?.dataset?.column;
  byId("table-head").replaceChildren(...columns.map((one, place) => {
    const isSorted = place === table.sort, sign = isSorted ? (table.isDescending ? " ↓" : " ↑") : "";
    const sort = () => { table.isDescending = isSorted && !table.isDescending; table.sort = place; listMatches(); };
    const button = element("button", { type: "button", "data-column": place, on: { click: sort } }, one.name, element("span", { "aria-hidden": "true" }, sign));
    return element("th", { scope: "col", class: one.isNumber ? "number" : null, "aria-sort": isSorted ? (table.isDescending ? "descending" : "ascending") : "none" }, button);
  }));
  if (held !== undefined) byId("table-head").querySelector(`[data-column="${held}"]`)?.focus();
}

function drawTableRows() {
  const first = Math.max(0, Math.floor(tableHome.scrollTop / ROW) - 8), last = Math.min(table.listed.length, first + Math.ceil(tableHome.clientHeight / ROW) + 18);
  const held = tableBody.contains(document.activeElement) ? document.activeElement.closest("tr").dataset.row : undefined;
  const filler = (rows) => (rows > 0 ? element("tr", { class: "filler", "aria-hidden": "true", style: `height:${rows * ROW}px` }) : null);
  byId("table").setAttribute("aria-rowcount", table.listed.length + 1);
  const rows = table.listed.slice(first, last).map((match, place) => tableRow(match, first + place));
  tableBody.replaceChildren(...[filler(first), ...rows, filler(table.listed.length - last)].filter(Boolean));
  if (held !== undefined) tableBody.querySelector(`[data-row="${held}"] a`)?.focus({ preventScroll: true });
}

function tableRow(match, place) {
  const link = element("a", { href: addressOf(match), title: "Show in the timeline" }, `#${match.number + 1}`);
  const cells = columns.map((one) => {
    const text = one.text(match), sign = one.name === "pattern" && !one.isResult ? tag(match.pattern) : null;
    return element("td", { class: one.isNumber ? "number" : null, title: text.length > 30 ? text : null }, one === columns[0] ? link : sign ? element("span", { class: "cell" }, sign, text) : text);
  });
  return element("tr", { "data-row": place, "data-number": match.number, "aria-rowindex": place + 2, class: state.chosen?.match === match.number ? "chosen" : null }, ...cells);
}

function markChosenRow(number) {
  for (const row of tableBody.querySelectorAll("tr")) row.classList.toggle("chosen", row.dataset.number === String(number));
  const place = number === undefined ? -1 : table.listed.findIndex((match) => match.number === number);
  if (place < 0) return;
  const top = place * ROW, shown = tableHome.clientHeight - ROW;
  if (top < tableHome.scrollTop || top + ROW > tableHome.scrollTop + shown) tableHome.scrollTop = Math.max(0, top - shown / 2);
}

tableHome.addEventListener("scroll", () => requestAnimationFrame(drawTableRows), { passive: true });

tableBody.addEventListener("click", (event) => {
  const row = event.target.closest("tr[data-number]"), link = event.target.closest("a");
  if (!row || event.ctrlKey || event.metaKey || event.shiftKey || (!link && String(getSelection()))) return;
  event.preventDefault();
  choose({ match: Number(row.dataset.number) }, { reveal: link !== null });
});

tableBody.addEventListener("keydown", (event) => {
  const row = event.target.closest("tr[data-row]"), page = Math.max(1, Math.floor(tableHome.clientHeight / ROW) - 2);
  const step = { ArrowDown: 1, ArrowUp: -1, PageDown: page, PageUp: -page, Home: -Infinity, End: Infinity }[event.key];
  if (!row || step === undefined) return;
  event.preventDefault();
  const place = Math.min(table.listed.length - 1, Math.max(0, Number(row.dataset.row) + step)), top = place * ROW, shown = tableHome.clientHeight - 2 * ROW;
  if (top < tableHome.scrollTop) tableHome.scrollTop = top;
  else if (top > tableHome.scrollTop + shown) tableHome.scrollTop = top - shown;
  drawTableRows();
  tableBody.querySelector(`[data-row="${place}"] a`).focus({ preventScroll: true });
});

byId("table-text").addEventListener("input", (event) => { table.text = event.target.value; listMatches(); });

// -- copy and download ----------------------------------------------------------------------------------------------

const exact = (one, match) => { const value = one.isResult ? one.value(match) : one.isNumber ? one.value(match) : one.text(match); return value === null ? "" : typeof value === "object" ? JSON.stringify(value) : String(value); };
const asTable = (separator, end, cell) => [columns.map((one) => one.name), ...table.listed.map((match) => columns.map((one) => exact(one, match)))].map((row) => row.map(cell).join(separator)).join(end) + end;
const csvCell = (text) => (/[",\r\n]/.test(text) ? `"${text.replaceAll('"', '""')}"` : text);

async function copyText(text) {
  try {
    await navigator.clipboard.writeText(text);
  } catch {
    // A frame of a notebook may not use the clipboard; a copied selection needs no permission.
    const area = element("textarea", { readonly: "", class: "away" });
    area.value = text;
    document.body.append(area);
    area.select();
    document.execCommand("copy");
    area.remove();
  }
}

/** A button that copies a text and then says so for a moment. */
function copyButton(name, text, told) {
  const button = plainButton(name, async () => {
    await copyText(text());
    button.textContent = typeof told === "function" ? told() : told;
    setTimeout(() => { button.textContent = name; }, 2000);
  });
  return button;
}

function saveTable() {
  const address = URL.createObjectURL(new Blob([asTable(",", "\r\n", csvCell)], { type: "text/csv;charset=utf-8" }));
  const name = facts.title.replace(/[^\p{L}\p{N}]+/gu, "-").replace(/^-+|-+$/g, "").slice(0, 60).toLowerCase() || "report";
  const link = element("a", { href: address, download: `${name}-matches.csv` });
  link.click();
  setTimeout(() => URL.revokeObjectURL(address), 10_000);
}

const copyTable = copyButton("Copy", () => asTable("\t", "\n", (text) => text.replace(/[\t\r\n]+/g, " ")), () => `Copied ${plural(table.listed.length, "row", "rows")}`);
copyTable.id = "copy-table";
byId("save-table").before(copyTable);
byId("save-table").addEventListener("click", saveTable);
