// Where each box of the map is: groups in groups, boxes as large as their CPUs, in rows. Pure: the same nodes give the same map.

/** Side of a box of one core, in units of the map. */
const CORE = 11;
const LEAST = 9;
const MOST = 64;
const GAP = 2;
/** From here on boxes are put in plain rows. */
const MANY = 300;
/** How much of the canvas boxes cover, more or less: the rest is titles and gaps. */
const COVERED = 0.55;
/** What is not known is drawn as a middling machine. */
const UNKNOWN_CORES = 4;

/**
 * @typedef {{x: number, y: number, w: number, h: number, node: any, isPlanned: boolean}} Box
 * @typedef {{x: number, y: number, w: number, h: number, title: string, depth: number, count: number}} Area
 * @typedef {{boxes: Box[], areas: Area[], width: number, height: number}} Layout
 */

/** @param {number|null|undefined} milli */
function side(milli) {
  return Math.round(Math.min(MOST, Math.max(LEAST, CORE * Math.sqrt((milli ?? UNKNOWN_CORES * 1000) / 1000))));
}

/**
 * Puts things below a skyline of at most `width`: each as high up as it fits, then as far left.
 * @template {{x: number, y: number, w: number, h: number}} T
 * @param {T[]} things @param {number} width @param {number} gap
 */
function pack(things, width, gap) {
  let skyline = [{ x: 0, y: 0, w: width + gap }];
  let widest = 0;
  let deepest = 0;
  for (const thing of things) {
    const spot = lowest(skyline, thing.w + gap) ?? { x: 0, y: deepest + gap };
    thing.x = spot.x;
    thing.y = spot.y;
    widest = Math.max(widest, thing.x + thing.w);
    deepest = Math.max(deepest, thing.y + thing.h);
    skyline = raised(skyline, thing.x, thing.w + gap, thing.y + thing.h + gap);
  }
  return { w: widest, h: deepest };
}

/**
 * Puts things in rows; for many things of falling size it wastes hardly more than a skyline, and is much faster.
 * @template {{x: number, y: number, w: number, h: number}} T
 * @param {T[]} things @param {number} width @param {number} gap
 */
function shelve(things, width, gap) {
  let x = 0;
  let y = 0;
  let row = 0;
  let widest = 0;
  for (const thing of things) {
    if (x > 0 && x + thing.w > width) {
      x = 0;
      y += row + gap;
      row = 0;
    }
    thing.x = x;
    thing.y = y;
    x += thing.w + gap;
    row = Math.max(row, thing.h);
    widest = Math.max(widest, x - gap);
  }
  return { w: widest, h: y + row };
}

/** Where something of this width lies highest. @param {Array<{x: number, y: number, w: number}>} skyline @param {number} width */
function lowest(skyline, width) {
  let best = /** @type {{x: number, y: number}|null} */ (null);
  for (let from = 0; from < skyline.length; from += 1) {
    let y = 0;
    let left = width;
    for (let at = from; at < skyline.length && left > 0.01; at += 1) {
      y = Math.max(y, skyline[at].y);
      left -= skyline[at].w;
    }
    if (left <= 0.01 && (best === null || y < best.y)) best = { x: skyline[from].x, y };
  }
  return best;
}

/** The skyline with the part from `x` on at `y`; neighbours of one height become one. @param {Array<{x: number, y: number, w: number}>} skyline @param {number} x @param {number} width @param {number} y */
function raised(skyline, x, width, y) {
  const next = [];
  const put = (/** @type {{x: number, y: number, w: number}} */ part) => {
    const last = next[next.length - 1];
    if (part.w <= 0.01) return;
    if (last && last.y === part.y) last.w += part.w;
    else next.push(part);
  };
  let isPut = false;
  for (const part of skyline) {
    const end = part.x + part.w;
    put({ x: part.x, y: part.y, w: Math.min(end, x) - part.x });
    if (!isPut && end > x) {
      put({ x, y, w: width });
      isPut = true;
    }
    const from = Math.max(part.x, x + width);
    put({ x: from, y: part.y, w: end - from });
  }
  return next;
}

/**
 * Packs at the width that wastes least, and is neither a tower nor a ribbon.
 * @param {any[]} things @param {number} least @param {number} gap @param {number} aspect
 */
function packWell(things, least, gap, aspect) {
  const area = things.reduce((sum, thing) => sum + (thing.w + gap) * (thing.h + gap), 0);
  const narrowest = Math.max(least, ...things.map((thing) => thing.w));
  let best = { width: narrowest, cost: Infinity };
  if (things.length > MANY) return shelve(things, Math.max(narrowest, Math.sqrt(area * aspect)), gap);
  for (const factor of [0.6, 0.75, 0.9, 1, 1.15, 1.35, 1.6, 2]) {
    const width = Math.max(narrowest, Math.sqrt(area * aspect) * factor);
    const size = pack(things, width, gap);
    const shape = size.w / Math.max(1, size.h) / aspect;
    const cost = Math.max(size.w, least) * size.h * (1 + 0.15 * Math.abs(Math.log(shape)));
    if (cost < best.cost) best = { width, cost };
  }
  return pack(things, best.width, gap);
}

/**
 * How large a unit of the map will be on a canvas, before the map is made.
 * @param {any[]} nodes @param {number} width @param {number} height
 */
export function expectedScale(nodes, width, height) {
  const area = nodes.reduce((sum, node) => sum + (side(node.cpuTotal) + GAP) ** 2, 1);
  return Math.sqrt((width * height * COVERED) / area);
}

/** @param {any[]} things @param {(thing: any) => string} key */
function grouped(things, key) {
  const groups = new Map();
  for (const thing of things) {
    const name = key(thing) || 'none';
    if (!groups.has(name)) groups.set(name, []);
    groups.get(name).push(thing);
  }
  return [...groups].sort(([a], [b]) => (a < b ? -1 : 1));
}

/**
 * @param {any[]} nodes @param {any[]} planned @param {string[]} by outer and inner group
 * @param {number} aspect width by height of what it is drawn on
 * @param {number} title height of a group's title, in units of the map
 * @returns {Layout}
 */
export function layout(nodes, planned, by, aspect, title) {
  const things = [
    ...nodes.map((node) => ({ x: 0, y: 0, w: side(node.cpuTotal), h: side(node.cpuTotal), node, isPlanned: false })),
    ...planned.map((node) => ({ x: 0, y: 0, w: side(node.cpuTotal), h: side(node.cpuTotal), node, isPlanned: true })),
  ];
  const pad = title * 0.35;
  const outer = grouped(things, (box) => box.node[by[0]]).map(([name, boxes]) => {
    const inner = grouped(boxes, (/** @type {any} */ box) => box.node[by[1]]).map(([part, members]) => {
      members.sort((/** @type {any} */ a, /** @type {any} */ b) => b.h - a.h || (a.node.name < b.node.name ? -1 : 1));
      const size = packWell(members, title * 4.5, GAP, 1.3);
      return {
        x: 0,
        y: 0,
        w: Math.max(size.w, title * 4.5) + 2 * pad,
        h: size.h + title + pad,
        title: part,
        boxes: members,
      };
    });
    inner.sort((a, b) => b.h - a.h || (a.title < b.title ? -1 : 1));
    const size = packWell(inner, 0, pad, Math.max(1, aspect));
    return { x: 0, y: 0, w: size.w + 2 * pad, h: size.h + title * 1.25 + pad, title: name, inner, count: boxes.length };
  });
  outer.sort((a, b) => b.h - a.h || b.w - a.w || (a.title < b.title ? -1 : 1));
  const size = fitting(outer, aspect, pad * 1.5);
  return { ...flatten(outer, title, pad), width: Math.max(1, size.w), height: Math.max(1, size.h) };
}

/** Packs at the width that lets the map be drawn largest. @param {any[]} groups @param {number} aspect @param {number} gap */
function fitting(groups, aspect, gap) {
  const area = groups.reduce((sum, group) => sum + (group.w + gap) * (group.h + gap), 0);
  const narrowest = Math.max(1, ...groups.map((group) => group.w));
  let best = { width: narrowest, cost: Infinity };
  for (let factor = 0.7; factor < 2.4; factor += 0.08) {
    const width = Math.max(narrowest, Math.sqrt(area * aspect) * factor);
    const size = pack(groups, width, gap);
    const cost = Math.max(size.w, size.h * aspect);
    if (cost < best.cost) best = { width, cost };
  }
  return pack(groups, best.width, gap);
}

/** Coordinates of the whole map. @param {any[]} groups @param {number} title @param {number} pad */
function flatten(groups, title, pad) {
  const boxes = [];
  const areas = [];
  for (const group of groups) {
    areas.push({ x: group.x, y: group.y, w: group.w, h: group.h, title: group.title, depth: 0, count: group.count });
    for (const part of group.inner) {
      const x = group.x + pad + part.x;
      const y = group.y + title * 1.25 + part.y;
      areas.push({ x, y, w: part.w, h: part.h, title: part.title, depth: 1, count: part.boxes.length });
      for (const box of part.boxes) {
        box.x += x + pad;
        box.y += y + title;
        boxes.push(box);
      }
    }
  }
  return { boxes, areas };
}

/** The box in a direction from another, for walking by keys. @param {Box[]} boxes @param {Box} from @param {string} key */
export function neighbour(boxes, from, key) {
  const [dx, dy] = { ArrowLeft: [-1, 0], ArrowRight: [1, 0], ArrowUp: [0, -1], ArrowDown: [0, 1] }[key] ?? [0, 0];
  let best = from;
  let least = Infinity;
  for (const box of boxes) {
    const x = box.x + box.w / 2 - from.x - from.w / 2;
    const y = box.y + box.h / 2 - from.y - from.h / 2;
    const along = x * dx + y * dy;
    if (box === from || along <= 1) continue;
    const across = Math.abs(x * dy) + Math.abs(y * dx);
    const cost = along + 3 * across;
    if (cost < least) {
      least = cost;
      best = box;
    }
  }
  return best;
}
