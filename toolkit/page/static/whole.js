/* The whole graph in linear time: blocks of one module each from left to right, ranks downwards.

   A node stands one rank below its lowest operand of the same block. Blocks follow the order of the
   graph, on shelves; a long one continues in a further strip. */
const CELL = { width: 150, height: 26, gapX: 10, gapY: 12 };
const TALLEST = 60;
const WIDEST = 12;
const HEAD = 28;
const SPACE = 20;

const moduleAt = (node, depth) => (node.module ?? "").split(".").slice(0, depth).join(".");

/* Return the blocks at the greatest depth of module paths at which they have several nodes each. */
function blocksOf(nodes) {
  const most = Math.min(120, Math.max(6, nodes.length / 8));
  let blocks;
  for (let depth = 4; depth > 0; depth--) {
    blocks = blocksAt(nodes, depth);
    if (blocks.length <= most) break;
  }
  return blocks;
}

function blocksAt(nodes, depth) {
  const blocks = [];
  nodes.forEach((node, at) => {
    const name = moduleAt(node, depth);
    const last = blocks.at(-1);
    if (last && (last.name === name || !name)) last.places.push(at);
    else blocks.push({ name, places: [at] });
  });
  return blocks;
}

/* Return the length of the path that all named blocks share: `encoder.layers.` */
function sharedPath(blocks) {
  const names = blocks.map((block) => block.name).filter(Boolean);
  let length = names.length > 1 ? names[0].lastIndexOf(".") + 1 : 0;
  while (length && !names.every((name) => name.startsWith(names[0].slice(0, length)))) length = names[0].lastIndexOf(".", length - 2) + 1;
  return length;
}

function layoutWhole(nodes, links) {
  const boxOf = new Array(nodes.length);
  const blocks = blocksOf(nodes);
  const shared = sharedPath(blocks);
  const groups = blocks.map((block) => {
    const rows = rankBlock(block, links, boxOf);
    return { name: block.name.slice(shared), places: block.places, ...sizeOf(block, rows, boxOf) };
  });
  const { width, height } = shelve(groups);
  for (const group of groups) for (const at of group.places) { boxOf[at].x += group.x; boxOf[at].y += group.y; }
  const edges = [];
  links.operands.forEach((list, to) => list.forEach((from) => edges.push({ from, to })));
  return { boxes: boxOf, edges, width, height, groups };
}

/* Give each node of a block its row and column; return how many nodes each row has. */
function rankBlock(block, links, boxOf) {
  const rank = new Map(), rows = [];
  for (const at of block.places) {
    let row = 0;
    for (const from of links.operands[at]) if (rank.has(from)) row = Math.max(row, rank.get(from) + 1);
    while ((rows[row] ?? 0) >= WIDEST) row++;
    rank.set(at, row);
    const column = rows[row] ?? 0;
    rows[row] = column + 1;
    boxOf[at] = { at, row, column, width: CELL.width, height: CELL.height };
  }
  return rows;
}

/* Place the rows of a block, within it, in strips of at most TALLEST rows; return its size. */
function sizeOf(block, rows, boxOf) {
  const starts = [];
  let right = 5;
  for (let first = 0; first < rows.length; first += TALLEST) {
    starts.push(right);
    right += Math.max(...rows.slice(first, first + TALLEST).map((count) => count ?? 0)) * (CELL.width + CELL.gapX);
  }
  for (const at of block.places) {
    const box = boxOf[at];
    box.x = starts[Math.floor(box.row / TALLEST)] + box.column * (CELL.width + CELL.gapX);
    box.y = HEAD + (box.row % TALLEST) * (CELL.height + CELL.gapY);
  }
  return { width: right, height: HEAD + Math.min(rows.length, TALLEST) * (CELL.height + CELL.gapY) };
}

/* Put blocks on shelves, in order, so that the whole has about the form of a screen. */
function shelve(groups) {
  const area = groups.reduce((sum, group) => sum + (group.width + SPACE) * (group.height + SPACE), 0);
  const most = Math.max(...groups.map((group) => group.width), Math.sqrt(area * 1.7));
  let x = SPACE, y = SPACE, tallest = 0, width = 0;
  for (const group of groups) {
    if (x > SPACE && x + group.width > most + SPACE) { x = SPACE; y += tallest + SPACE; tallest = 0; }
    Object.assign(group, { x, y });
    x += group.width + SPACE;
    width = Math.max(width, x);
    tallest = Math.max(tallest, group.height);
  }
  return { width, height: y + tallest + SPACE };
}
