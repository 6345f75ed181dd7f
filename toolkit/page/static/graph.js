/* The viewer of a graph: draws the boxes in view, finds nodes, shows the details of one. */
const view = { nodes: [], links: null, layout: null, scale: 1, isWhole: false, selected: -1, centre: [], errors: new Map(), step: null, hits: [], hit: 0 };
const READABLE = 0.45;

function startGraph() {
  const step = trace.steps[Math.min(data.focus.step, trace.steps.length - 1)];
  view.step = step;
  view.nodes = nodesOf(step.after ?? step.before);
  if (!view.nodes.length) return;
  view.links = linksOf(view.nodes);
  view.errors = errorsOf(step);
  const named = [...data.focus.nodes, step.node].map((name) => view.links.places.get(name)).filter((at) => at !== undefined);
  view.centre = named.length ? [...new Set(named)] : [0];
  byId("graph-view").hidden = false;
  byId("near").addEventListener("click", () => show(false));
  byId("whole").addEventListener("click", () => show(true));
  byId("zoom-in").addEventListener("click", () => zoom(view.scale * 1.5));
  byId("zoom-out").addEventListener("click", () => zoom(view.scale / 1.5));
  byId("canvas").addEventListener("scroll", () => requestAnimationFrame(draw), { passive: true });
  byId("canvas").addEventListener("click", pick);
  byId("canvas").addEventListener("keydown", walk);
  byId("find").addEventListener("input", () => find(byId("find").value));
  byId("find").addEventListener("keydown", (event) => { if (event.key === "Enter") { event.preventDefault(); nextHit(); } });
  addEventListener("resize", draw);
  legend();
  show(false);
  select(view.centre[0], false);
}

function show(isWhole) {
  view.isWhole = isWhole;
  const shown = isWhole ? null : nearest(view.centre, view.links);
  view.layout = isWhole ? layoutWhole(view.nodes, view.links) : layoutNear(view.nodes, view.links, shown);
  view.boxes = new Map(view.layout.boxes.map((box) => [box.at, box]));
  byId("near").setAttribute("aria-pressed", !isWhole);
  byId("whole").setAttribute("aria-pressed", isWhole);
  const count = view.nodes.length.toLocaleString("en");
  const what = isWhole ? `All ${count} nodes, a block for each module in the order of the graph.` : `${shown.length} of ${count} nodes around the ${data.focus.label}.`;
  byId("graph-note").textContent = `The graph after ${view.step.id}. ${what} The number is the error after this step, in units in the last place.`;
  const canvas = byId("canvas");
  const fit = Math.min((canvas.clientWidth - 2) / view.layout.width, isWhole ? (canvas.clientHeight - 2) / view.layout.height : 1, 1);
  zoom(isWhole ? fit : Math.max(fit, 0.85), isWhole ? null : view.boxes.get(view.centre[0]));
}

/* Change the scale around a box, or around the middle of the view. */
function zoom(scale, box) {
  const canvas = byId("canvas"), old = view.scale;
  view.scale = Math.max(0.005, Math.min(2.5, scale));
  const middle = box
    ? { x: box.x + box.width / 2, y: box.y + box.height / 2 }
    : { x: (canvas.scrollLeft + canvas.clientWidth / 2) / old, y: (canvas.scrollTop + canvas.clientHeight / 2) / old };
  draw();
  canvas.scrollLeft = middle.x * view.scale - canvas.clientWidth / 2;
  canvas.scrollTop = middle.y * view.scale - canvas.clientHeight / 2;
  draw();
}

function draw() {
  const { layout, scale } = view;
  if (!layout) return;
  const canvas = byId("canvas");
  const left = canvas.scrollLeft, top = canvas.scrollTop;
  const area = { x: left / scale - 40, y: top / scale - 40, right: (left + canvas.clientWidth) / scale + 40, bottom: (top + canvas.clientHeight) / scale + 40 };
  const isSeen = (box) => box.x < area.right && box.x + box.width > area.x && box.y < area.bottom && box.y + box.height > area.y;
  const svg = element("svg:svg", { width: Math.ceil(layout.width * scale), height: Math.ceil(layout.height * scale), viewBox: `0 0 ${layout.width} ${layout.height}`, role: "presentation" });
  const seen = layout.boxes.filter(isSeen);
  const isNear = scale >= READABLE && seen.length < 900;
  svg.append(...layout.groups.filter(isSeen).flatMap((group) => drawGroup(group, scale)));
  svg.append(...drawEdges(layout.edges, isSeen, isNear));
  svg.append(...(isNear ? seen.map(drawNode) : drawDots(seen)));
  const box = view.boxes.get(view.selected);
  if (box && !isNear) svg.append(element("svg:circle", { class: "target", cx: box.x + box.width / 2, cy: box.y + box.height / 2, r: 14 / scale, "stroke-width": 3 / scale }));
  const focused = document.activeElement?.dataset?.at;
  canvas.replaceChildren(svg);
  if (focused !== undefined) canvas.querySelector(`[data-at="${focused}"]`)?.focus({ preventScroll: true });
}

function drawGroup(group, scale) {
  const parts = [element("svg:rect", { class: "group", x: group.x, y: group.y, width: group.width, height: group.height, rx: 6 })];
  if (group.name && group.width * scale > 60) {
    const size = Math.min(20, 12 / scale);
    const letters = Math.max(4, Math.floor((group.width - 12) / (size * 0.56)));
    const name = group.name.length > letters ? `…${group.name.slice(1 - letters)}` : group.name;
    parts.push(element("svg:text", { class: "group-name", x: group.x + 6, y: group.y + 19, "font-size": size }, name));
  }
  return parts;
}

const middleOf = (box) => box.x + box.width / 2;

function drawEdges(edges, isSeen, isNear) {
  const paths = { plain: [], picked: [] };
  for (const edge of edges) {
    const from = view.boxes.get(edge.from), to = view.boxes.get(edge.to);
    if (!from || !to) continue;
    const isPicked = edge.from === view.selected || edge.to === view.selected;
    if (!isPicked && !(isSeen(from) || isSeen(to))) continue;
    if (!isPicked && view.isWhole && !isNear && Math.abs(from.x - to.x) > 4 * CELL.width) continue;
    paths[isPicked ? "picked" : "plain"].push(edge.points ? curveOf(edge.points) : `M${middleOf(from)} ${from.y + from.height}C${middleOf(from)} ${from.y + from.height + 24} ${middleOf(to)} ${to.y - 24} ${middleOf(to)} ${to.y}`);
  }
  return Object.entries(paths).filter(([, list]) => list.length).map(([name, list]) =>
    element("svg:path", { class: `edge ${name}${view.isWhole ? " far" : ""}`, d: list.join(""), "vector-effect": "non-scaling-stroke" }));
}

function curveOf(points) {
  const [start, ...rest] = points;
  let path = `M${start.x.toFixed(1)} ${start.y.toFixed(1)}`;
  rest.forEach((point, at) => {
    const next = rest[at + 1];
    path += next ? `Q${point.x.toFixed(1)} ${point.y.toFixed(1)} ${((point.x + next.x) / 2).toFixed(1)} ${((point.y + next.y) / 2).toFixed(1)}` : `L${point.x.toFixed(1)} ${point.y.toFixed(1)}`;
  });
  return path;
}

const isCulprit = (at) => data.focus.nodes.includes(view.nodes[at].name) || view.nodes[at].name === view.step.node;

function classesOf(at) {
  const error = view.errors.get(view.nodes[at].name);
  const names = ["node", error ? `e${classOf(ulpOf(error.after.ulp))}` : view.nodes[at].op === "placeholder" ? "input" : "plain"];
  if (isCulprit(at)) names.push("culprit");
  if (at === view.selected) names.push("selected");
  return names.join(" ");
}

function drawNode(box) {
  const node = view.nodes[box.at], error = view.errors.get(node.name);
  const label = [node.name, targetOf(node), node.value, error && `error ${figure(error.after.ulp)} ULP`, isCulprit(box.at) && data.focus.label].filter(Boolean).join(", ");
  const group = element("svg:g", { class: classesOf(box.at), "data-at": box.at, tabindex: 0, role: "button", "aria-label": label, transform: `translate(${box.x.toFixed(1)} ${box.y.toFixed(1)})` });
  const isTall = box.height > 30;
  const most = Math.floor((box.width - 20) / 7);
  const number = error ? figure(error.after.ulp) : "";
  group.append(element("svg:rect", { width: box.width, height: box.height, rx: 5 }));
  group.append(element("svg:text", { class: "name", x: 9, y: isTall ? 18 : 17 }, cut(node.name, most - (number ? number.length + 1 : 0))));
  if (isTall) group.append(element("svg:text", { class: "op", x: 9, y: 34 }, shortOp(node)));
  if (number) group.append(element("svg:text", { class: "number", x: box.width - 8, y: isTall ? 18 : 17, "text-anchor": "end" }, number));
  return group;
}

/* Draw all boxes of a class as one path: a graph of any size is a few elements. */
function drawDots(boxes) {
  const paths = new Map();
  for (const box of boxes) {
    const name = classesOf(box.at);
    if (!paths.has(name)) paths.set(name, []);
    paths.get(name).push(`M${box.x.toFixed(0)} ${box.y.toFixed(0)}h${box.width.toFixed(0)}v${box.height.toFixed(0)}h-${box.width.toFixed(0)}z`);
  }
  const loud = (name) => (name.includes("culprit") ? 1 : 0);
  return [...paths].sort((a, b) => loud(a[0]) - loud(b[0])).map(([name, list]) => element("svg:path", { class: `${name} dots`, d: list.join("") }));
}

/* Select the node under the pointer; from afar the nearest one. */
function pick(event) {
  const marked = event.target.closest?.("[data-at]");
  if (marked) return select(Number(marked.dataset.at), false);
  if (view.scale >= READABLE) return undefined;
  const place = byId("canvas").getBoundingClientRect();
  const x = (event.clientX - place.left + byId("canvas").scrollLeft) / view.scale;
  const y = (event.clientY - place.top + byId("canvas").scrollTop) / view.scale;
  let best = null, least = Infinity;
  for (const box of view.layout.boxes) {
    const far = Math.hypot(Math.max(box.x - x, 0, x - box.x - box.width), Math.max(box.y - y, 0, y - box.y - box.height));
    if (far < least) { least = far; best = box; }
  }
  return best && least * view.scale < 24 ? select(best.at, true) : undefined;
}

/* Arrow keys go along the edges: up to an operand, down to a user, sideways to the next box. */
function walk(event) {
  const at = Number(event.target.dataset?.at ?? NaN);
  if (Number.isNaN(at)) return;
  if (event.key === "Enter" || event.key === " ") { event.preventDefault(); select(at, false); return; }
  const box = view.boxes.get(at);
  const inRow = view.layout.boxes.filter((each) => Math.abs(each.y - box.y) < 4).sort((a, b) => a.x - b.x);
  const beside = (by) => inRow[inRow.findIndex((each) => each.at === at) + by]?.at;
  const shown = (list) => list.find((each) => view.boxes.has(each));
  const next = { ArrowUp: shown(view.links.operands[at]), ArrowDown: shown(view.links.users[at]), ArrowLeft: beside(-1), ArrowRight: beside(1) }[event.key];
  if (next === undefined) return;
  event.preventDefault();
  reveal(next);
  byId("canvas").querySelector(`[data-at="${next}"]`)?.focus({ preventScroll: true });
}

function reveal(at) {
  if (!view.boxes.has(at)) { view.centre = [at]; show(view.isWhole); }
  const box = view.boxes.get(at), canvas = byId("canvas"), { scale } = view;
  const isSeen = box.x * scale >= canvas.scrollLeft && (box.x + box.width) * scale <= canvas.scrollLeft + canvas.clientWidth && box.y * scale >= canvas.scrollTop && (box.y + box.height) * scale <= canvas.scrollTop + canvas.clientHeight;
  if (!isSeen) zoom(scale, box); else draw();
}

function select(at, doZoom) {
  view.selected = at;
  if (doZoom && view.scale < READABLE) { zoom(0.9, view.boxes.get(at)); } else reveal(at);
  showDetails(at);
}

function showDetails(at) {
  const node = view.nodes[at], error = view.errors.get(node.name), { operands, users } = view.links;
  const link = (each) => element("button", { type: "button", class: "node-link", on: { click: () => select(each, view.isWhole) } }, view.nodes[each].name);
  const list = (places) => places.length ? [...places.slice(0, 12).flatMap((each) => [link(each), " "]), places.length > 12 ? `and ${places.length - 12} more` : ""] : ["none"];
  const rows = [["line", [element("code", {}, node.text ?? node.name)]], ["value", [node.value || "not known"]]];
  rows.push(["program", [node.place || "place not known"]]);
  if (node.module) rows.push(["module", [node.module]]);
  if (error) {
    rows.push(["error before", [`${figure(error.before.ulp)} ULP, ${figure(error.before.abs)} absolute`]]);
    rows.push(["error after", [element("span", { class: `chip e${classOf(ulpOf(error.after.ulp))}` }, `${figure(error.after.ulp)} ULP`), ` ${figure(error.after.abs)} absolute`]]);
  } else rows.push(["error", [whyNoError(node)]]);
  if (node.name === view.step.node && view.step.mismatch) rows.push(["wrong", [view.step.mismatch]]);
  rows.push(["operands", list(operands[at])], ["users", list(users[at])]);
  byId("details").replaceChildren(
    element("h3", {}, node.name, isCulprit(at) ? element("span", { class: "mark wrong" }, data.focus.label) : undefined),
    element("dl", { class: "facts" }, rows.flatMap(([label, value]) => [element("dt", {}, label), element("dd", {}, value)])),
    element("button", { type: "button", on: { click: () => { view.centre = [at]; show(false); select(at, false); } } }, "show its neighbourhood"));
}

function whyNoError(node) {
  if (view.step.errors === undefined) return "not measured in this step";
  const isNew = view.step.before !== undefined && !nodesOf(view.step.before).some((each) => each.name === node.name);
  return isNew ? "not compared: this step made the node" : "unchanged by this step";
}

function find(text) {
  const wanted = text.trim().toLowerCase();
  view.hits = [];
  view.hit = -1;
  if (wanted) view.nodes.forEach((node, at) => { if (`${node.name} ${node.module ?? ""} ${node.text ?? ""}`.toLowerCase().includes(wanted)) view.hits.push(at); });
  const exact = view.hits.findIndex((at) => view.nodes[at].name.toLowerCase() === wanted);
  if (view.hits.length) { view.hit = Math.max(exact, 0) - 1; nextHit(); }
  else byId("found").textContent = wanted ? "no node" : "";
}

function nextHit() {
  if (!view.hits.length) return;
  view.hit = (view.hit + 1) % view.hits.length;
  select(view.hits[view.hit], view.isWhole);
  byId("found").textContent = `${view.hit + 1} of ${view.hits.length}`;
}

function legend() {
  const some = [...view.errors.values()];
  const chips = CLASSES.map(([, text], at) => element("span", { class: `chip e${at}` }, text));
  byId("legend").append(element("span", {}, some.length ? "error in ULP" : "no errors were measured in this step"), ...(some.length ? chips : []),
    element("span", { class: "chip culprit" }, data.focus.label), element("span", { class: "hint" }, "Arrow keys follow edges, Enter shows details."));
}

if (trace && trace.steps.length) {
  if (byId("steps-view")) startSteps();
  if (byId("graph-view")) startGraph();
}
