/* The data of the page, and small helpers. All text reaches the page as text nodes. */
const data = JSON.parse(document.getElementById("data").textContent);

const byId = (id) => document.getElementById(id);

function element(name, attributes = {}, ...children) {
  const made = name.startsWith("svg:")
    ? document.createElementNS("http://www.w3.org/2000/svg", name.slice(4))
    : document.createElement(name);
  for (const [key, value] of Object.entries(attributes)) {
    if (value === undefined || value === false) continue;
    if (key === "on") for (const [event, call] of Object.entries(value)) made.addEventListener(event, call);
    else made.setAttribute(key, value === true ? "" : String(value));
  }
  for (const child of children.flat()) {
    if (child !== undefined && child !== null && child !== false) made.append(child);
  }
  return made;
}

const trace = data.trace;
const graphs = new Map();

/* Return the nodes of a graph: those of its base with the edits applied. */
function nodesOf(index) {
  if (index === undefined) return [];
  const chain = [];
  let at = index;
  while (at !== undefined && !graphs.has(at)) {
    chain.push(at);
    at = trace.graphs[at].base;
  }
  let nodes = at === undefined ? [] : graphs.get(at);
  for (const each of chain.reverse()) {
    const made = [];
    let done = 0;
    for (const edit of trace.graphs[each].edits) {
      for (; done < edit.at; done++) made.push(nodes[done]);
      made.push(...edit.nodes);
      done = edit.at + edit.removed;
    }
    for (; done < nodes.length; done++) made.push(nodes[done]);
    nodes = made;
    graphs.set(each, nodes);
  }
  return nodes;
}

/* Errors in units in the last place, in classes that differ in lightness as well as in colour. */
const CLASSES = [[0, "0"], [1, "≤ 1"], [16, "≤ 16"], [1e3, "≤ 1,000"], [1e6, "≤ 10⁶"], [Infinity, "> 10⁶"]];
const classOf = (ulp) => CLASSES.findIndex(([most]) => ulp <= most);

function figure(value) {
  if (value === undefined) return "∞";
  if (value === 0) return "0";
  const size = Math.abs(value);
  if (size >= 1e5 || size < 1e-3) return value.toExponential(1).replace("e+", "e");
  return size >= 100 ? Math.round(value).toLocaleString("en") : String(Number(value.toPrecision(3)));
}

const ulpOf = (value) => (value === undefined ? Infinity : value);

/* Return the errors of a step by the node behind each value. */
function errorsOf(step) {
  const found = new Map();
  for (const error of step.errors ?? []) {
    const name = error.node ?? error.value;
    if (!found.has(name)) found.set(name, error);
  }
  return found;
}
