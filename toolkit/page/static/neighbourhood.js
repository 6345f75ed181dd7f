/* The part of a graph around some nodes, laid out by dagre. */
const MOST_NEAR = 30;
const BOX = { height: 44, gap: 26 };

function linksOf(nodes) {
  const places = new Map(nodes.map((node, at) => [node.name, at]));
  const operands = nodes.map((node) => [...new Set(node.inputs ?? [])].map((name) => places.get(name)).filter((at) => at !== undefined));
  const users = nodes.map(() => []);
  operands.forEach((list, at) => list.forEach((from) => users[from].push(at)));
  return { places, operands, users };
}

/* Return the places of the nodes nearest to the centre, breadth first; producers before users. */
function nearest(centre, links, most = MOST_NEAR) {
  const found = new Set(centre);
  let edge = [...centre];
  while (edge.length && found.size < most) {
    const next = [];
    for (const at of edge) {
      for (const near of [...links.operands[at], ...links.users[at].slice(0, 8)]) {
        if (found.size >= most) break;
        if (!found.has(near)) { found.add(near); next.push(near); }
      }
    }
    edge = next;
  }
  return [...found].sort((a, b) => a - b);
}

function layoutNear(nodes, links, shown) {
  const graph = new dagre.graphlib.Graph();
  graph.setGraph({ rankdir: "TB", nodesep: 18, ranksep: 30, marginx: 12, marginy: 12 });
  graph.setDefaultEdgeLabel(() => ({}));
  const inside = new Set(shown);
  for (const at of shown) graph.setNode(String(at), { width: widthOf(nodes[at]), height: BOX.height });
  for (const at of shown) for (const from of links.operands[at]) if (inside.has(from)) graph.setEdge(String(from), String(at));
  dagre.layout(graph);
  const boxes = shown.map((at) => {
    const { x, y, width, height } = graph.node(String(at));
    return { at, x: x - width / 2, y: y - height / 2, width, height };
  });
  const edges = graph.edges().map((each) => ({ from: Number(each.v), to: Number(each.w), points: graph.edge(each).points }));
  const { width, height } = graph.graph();
  return { boxes, edges, width: Math.ceil(width), height: Math.ceil(height), groups: [] };
}

const widthOf = (node) => Math.min(260, Math.max(92, 7.2 * Math.max(shortName(node).length, shortOp(node).length) + 24));
const cut = (text, most) => (text.length > most ? `${text.slice(0, most - 1)}…` : text);
const shortName = (node) => cut(node.name, 32);
const shortOp = (node) => cut([targetOf(node), node.value].filter(Boolean).join("  "), 32);
/* `add: float32[8] = aten.add.Tensor(x, y)` -> `add.Tensor` */
function targetOf(node) {
  const call = /=\s*([\w.]+)\(/.exec(node.text ?? "");
  return call ? call[1].replace(/^(aten|prims|_operator|torch\._ops)\./, "") : node.op;
}
