/* The difference of two graphs, as rows of (left, right); unchanged rows stand in both. */
function diffRows(before, after) {
  const left = before.map((node) => node.text ?? node.name);
  const right = after.map((node) => node.text ?? node.name);
  const places = new Map(right.map((text, place) => [text, place]));
  const rows = [];
  let i = 0, j = 0;
  for (const [start, place] of matched(left, places)) {
    pair(rows, left.slice(i, start), right.slice(j, place));
    rows.push([left[start], right[place], true]);
    i = start + 1;
    j = place + 1;
  }
  pair(rows, left.slice(i), right.slice(j));
  return rows;
}

/* Return the longest list of equal lines in the order of both sides (each line names its node). */
function matched(left, places) {
  const ends = [], links = [];
  left.forEach((text, start) => {
    const place = places.get(text);
    if (place === undefined) return;
    let low = 0, high = ends.length;
    while (low < high) {
      const middle = (low + high) >> 1;
      if (ends[middle].place < place) low = middle + 1; else high = middle;
    }
    links.push({ start, place, before: ends[low - 1] });
    ends[low] = links[links.length - 1];
  });
  const found = [];
  for (let at = ends[ends.length - 1]; at; at = at.before) found.push([at.start, at.place]);
  return found.reverse();
}

function pair(rows, gone, made) {
  for (let at = 0; at < Math.max(gone.length, made.length); at++) rows.push([gone[at], made[at], false]);
}

/* Keep the rows around changes; null stands for rows that are left out. */
function around(rows, context) {
  const keep = new Uint8Array(rows.length);
  rows.forEach(([, , same], at) => {
    if (same) return;
    for (let near = Math.max(0, at - context); near <= Math.min(rows.length - 1, at + context); near++) keep[near] = 1;
  });
  const shown = [];
  rows.forEach((row, at) => {
    if (keep[at]) shown.push(row);
    else if (shown.at(-1) !== null) shown.push(null);
  });
  return shown;
}

/* Whether a line is that of a node in focus: `add_5: float32[8] = ...` */
const isOfCulprit = (text) => data.focus.nodes.includes(/^[\w.]+/.exec(text)?.[0]);

function diffTable(before, after, most = 600) {
  const rows = diffRows(before, after);
  const shown = around(rows, 3);
  const left = shown.length > most ? shown.length - most : 0;
  const cell = (text, same, kind) => element("td", { class: same || text === undefined ? undefined : kind },
    text === undefined ? undefined : element("span", { class: "sign" }, same ? " " : kind === "del" ? "−" : "+"), text);
  const body = shown.slice(0, most).map((row) => row === null
    ? element("tr", { class: "gap" }, element("td", { colspan: 2 }, "⋯"))
    : element("tr", { class: row[2] ? "same" : isOfCulprit(row[1] ?? row[0]) ? "culprit" : undefined }, cell(row[0], row[2], "del"), cell(row[1], row[2], "add")));
  const table = element("table", { class: "diff" },
    element("thead", {}, element("tr", {}, element("th", { scope: "col" }, "before"), element("th", { scope: "col" }, "after"))),
    element("tbody", {}, body));
  return element("div", { class: "scroll changes", tabindex: 0, role: "region", "aria-label": "Changes of the graph" },
    table, left ? element("p", { class: "note" }, `${left} more rows are not shown.`) : undefined);
}
