// Draws the map. Paths are gathered by colour: ten thousand boxes are a few strokes of the brush, not ten thousand.

/**
 * @param {HTMLCanvasElement} canvas
 * @param {import('./layout.js').Layout} map
 * @param {{live: Map<string, any>, colors: Record<string, string>, selected: Set<string>, current: string, scale: number, x: number, y: number}} how
 */
export function draw(canvas, map, how) {
  const ratio = devicePixelRatio || 1;
  const width = canvas.clientWidth;
  const height = canvas.clientHeight;
  if (canvas.width !== Math.round(width * ratio) || canvas.height !== Math.round(height * ratio)) {
    canvas.width = Math.round(width * ratio);
    canvas.height = Math.round(height * ratio);
  }
  const context = canvas.getContext('2d');
  if (!context) return;
  context.setTransform(ratio, 0, 0, ratio, 0, 0);
  context.clearRect(0, 0, width, height);
  const isSeen = (/** @type {any} */ box) => {
    const left = box.x * how.scale + how.x;
    const top = box.y * how.scale + how.y;
    return left < width && top < height && left + box.w * how.scale > 0 && top + box.h * how.scale > 0;
  };
  drawAreas(context, map.areas.filter(isSeen), how);
  drawBoxes(context, map.boxes.filter(isSeen), how);
  keep(canvas, how);
}

/** The last whole picture of a canvas, and the view that it shows. @type {WeakMap<HTMLCanvasElement, {picture: HTMLCanvasElement, view: any}>} */
const pictures = new WeakMap();

/** @param {HTMLCanvasElement} canvas @param {{x: number, y: number, scale: number}} view */
function keep(canvas, view) {
  if (!canvas.width || !canvas.height) return;
  const picture = pictures.get(canvas)?.picture ?? document.createElement('canvas');
  if (picture.width !== canvas.width || picture.height !== canvas.height) {
    picture.width = canvas.width;
    picture.height = canvas.height;
  }
  const context = picture.getContext('2d');
  context?.clearRect(0, 0, picture.width, picture.height);
  context?.drawImage(canvas, 0, 0);
  pictures.set(canvas, { picture, view: { x: view.x, y: view.y, scale: view.scale } });
}

/**
 * Shows the last picture moved and scaled to a view. Returns false if there is none, or the view has not changed: then it is drawn.
 * @param {HTMLCanvasElement} canvas @param {{x: number, y: number, scale: number}} view @param {Record<string, string>} colors
 */
export function slide(canvas, view, colors) {
  const kept = pictures.get(canvas);
  const context = canvas.getContext('2d');
  if (!kept || !context) return false;
  const { picture, view: before } = kept;
  if (before.x === view.x && before.y === view.y && before.scale === view.scale) return false;
  const ratio = devicePixelRatio || 1;
  const factor = view.scale / before.scale;
  context.setTransform(1, 0, 0, 1, 0, 0);
  context.fillStyle = colors.surface;
  context.fillRect(0, 0, canvas.width, canvas.height);
  context.drawImage(
    picture,
    (view.x - before.x * factor) * ratio,
    (view.y - before.y * factor) * ratio,
    picture.width * factor,
    picture.height * factor,
  );
  return true;
}

/** @param {CanvasRenderingContext2D} context @param {any[]} areas @param {any} how */
function drawAreas(context, areas, how) {
  const { colors, scale, x, y } = how;
  const family = getComputedStyle(document.body).fontFamily;
  for (const area of areas) {
    const left = Math.round(area.x * scale + x);
    const top = Math.round(area.y * scale + y);
    const wide = area.w * scale;
    context.fillStyle = area.depth ? colors.surface : colors.raised;
    context.strokeStyle = colors.line;
    context.lineWidth = 1;
    context.beginPath();
    context.roundRect(left + 0.5, top + 0.5, Math.round(wide) - 1, Math.round(area.h * scale) - 1, area.depth ? 3 : 5);
    context.fill();
    context.stroke();
    if (wide < 34) continue;
    const inset = area.depth ? 5 : 7;
    context.textBaseline = 'top';
    context.font = `${area.depth ? 400 : 600} ${area.depth ? 10.5 : 12}px ${family}`;
    const number = String(area.count);
    const room = wide - 2 * inset - 6;
    const numberWidth = context.measureText(number).width;
    const title = shortened(context, area.title, room - numberWidth - 6);
    context.fillStyle = area.depth ? colors.muted : colors.ink;
    context.fillText(title, left + inset, top + (area.depth ? 3 : 5));
    if (room > numberWidth + 20) {
      context.fillStyle = colors.muted;
      context.fillText(number, left + wide - inset - numberWidth, top + (area.depth ? 3 : 5));
    }
  }
}

/** @param {CanvasRenderingContext2D} context @param {string} text @param {number} width */
function shortened(context, text, width) {
  if (width < 8) return '';
  if (context.measureText(text).width <= width) return text;
  let end = text.length - 1;
  while (end > 1 && context.measureText(`${text.slice(0, end)}…`).width > width) end -= 1;
  return end > 1 ? `${text.slice(0, end)}…` : '';
}

/** @param {CanvasRenderingContext2D} context @param {any[]} boxes @param {any} how */
function drawBoxes(context, boxes, how) {
  const { colors, scale, x, y, live, selected, current } = how;
  const paths = Object.fromEntries(
    [
      'box',
      'cpu',
      'memory',
      'plain',
      'starting',
      'ghost',
      'draining',
      'cordoned',
      'bad',
      'corner',
      'lock',
      'selected',
    ].map((name) => [name, new Path2D()]),
  );
  const labels = [];
  for (const box of boxes) {
    const node = box.isPlanned ? box.node : (live.get(box.node.name) ?? box.node);
    const left = box.x * scale + x;
    const top = box.y * scale + y;
    const wide = Math.max(1, box.w * scale - 0.5);
    const high = Math.max(1, box.h * scale - 0.5);
    if (box.isPlanned) {
      paths.ghost.rect(left + 0.5, top + 0.5, wide - 1, high - 1);
      continue;
    }
    paths.box.rect(left, top, wide, high);
    bars(paths, node, left, top, wide, high);
    state(paths, node, left, top, wide, high);
    if (selected.has(node.name) || node.name === current) paths.selected.rect(left - 1, top - 1, wide + 2, high + 2);
    if (wide >= 22) labels.push([node, left, top, wide, high]);
  }
  const fill = (/** @type {string} */ path, /** @type {string} */ name) => {
    context.fillStyle = colors[name];
    context.fill(paths[path]);
  };
  const stroke = (
    /** @type {string} */ path,
    /** @type {string} */ name,
    width = 1,
    dash = /** @type {number[]} */ ([]),
  ) => {
    context.strokeStyle = colors[name];
    context.lineWidth = width;
    context.setLineDash(dash);
    context.stroke(paths[path]);
    context.setLineDash([]);
  };
  fill('box', 'box');
  fill('cpu', 'first');
  fill('memory', 'second');
  stroke('plain', 'line-strong');
  stroke('starting', 'info', 1.5, [3, 2]);
  stroke('ghost', 'muted', 1, [2, 2]);
  const isFar = boxes.length > 2000;
  stroke('draining', 'warn', isFar ? 1 : 1.2);
  stroke('cordoned', 'warn', isFar ? 1 : 1.8);
  stroke('bad', 'bad', 1.8);
  fill('corner', 'bad');
  fill('lock', 'ink');
  stroke('selected', 'accent', 2.5);
  writeLabels(context, labels, colors);
}

/** Below this width lines inside a box run together. */
const SMALL = 13;
/** From this width on a box has its name above its bars. */
const NAMED = 64;
/** Height of three lines of text. */
const TEXT = 41;

/** Two columns that fill from below: cpu and memory. @param {any} paths @param {any} node @param {number} left @param {number} top @param {number} wide @param {number} high */
function bars(paths, node, left, top, wide, high) {
  const inset = wide > 12 ? 1.5 : 0.5;
  const half = (wide - 2 * inset) / 2;
  const below = wide >= NAMED ? TEXT : 0;
  const inner = high - 2 * inset - below;
  for (const [path, share, at] of [
    ['cpu', node.cpu, 0],
    ['memory', node.mem, half],
  ]) {
    if (share === null || share === undefined) continue;
    const tall = Math.min(1, share / 1000) * inner;
    paths[path].rect(left + inset + at, top + below + inset + inner - tall, half - (at ? 0 : 0.5), tall);
  }
}

/** @param {any} paths @param {any} node @param {number} left @param {number} top @param {number} wide @param {number} high */
function state(paths, node, left, top, wide, high) {
  const outline = { s: 'starting', c: 'cordoned', d: 'draining', n: 'bad' }[node.state] ?? 'plain';
  paths[outline].rect(left + 0.5, top + 0.5, wide - 1, high - 1);
  if (node.state === 'd') {
    for (let at = wide < SMALL ? wide : 4; at < wide + high; at += wide < SMALL ? 99 : Math.max(4, wide / 5)) {
      paths.draining.moveTo(left + Math.max(0, at - high), top + Math.min(high, at));
      paths.draining.lineTo(left + Math.min(wide, at), top + Math.max(0, at - wide));
    }
  }
  if (node.state === 'n') {
    const corner = Math.min(wide, high) * 0.45;
    paths.corner.moveTo(left + wide, top);
    paths.corner.lineTo(left + wide - corner, top);
    paths.corner.lineTo(left + wide, top + corner);
    paths.corner.closePath();
  }
  if (node.state === 'c' && wide >= SMALL) paths.cordoned.rect(left + 0.5, top + 0.5, wide / 2, high - 1);
  if (node.doNotDisrupt && wide > 7) {
    const radius = Math.min(3, wide / 8);
    const x = left + wide - 2 * radius - 3;
    const y = top + radius + 3;
    paths.lock.moveTo(x + 2 * radius, y);
    paths.lock.arc(x + radius, y, radius, 0, 2 * Math.PI);
  }
}

/** @param {CanvasRenderingContext2D} context @param {any[]} labels @param {Record<string, string>} colors */
function writeLabels(context, labels, colors) {
  if (labels.length > 1500) return;
  const family = getComputedStyle(document.body).fontFamily;
  context.textBaseline = 'top';
  context.lineWidth = 3;
  context.lineJoin = 'round';
  context.strokeStyle = colors.box;
  const write = (/** @type {string} */ text, /** @type {number} */ x, /** @type {number} */ y) => {
    context.strokeText(text, x, y);
    context.fillStyle = colors.ink;
    context.fillText(text, x, y);
  };
  for (const [node, left, top, wide, high] of labels) {
    const lines = [];
    context.font = `10px ${family}`;
    if (wide >= NAMED) lines.push(shortened(context, node.name, wide - 8), shortened(context, node.type, wide - 8));
    if (wide >= NAMED && node.pods !== null && node.pods !== undefined) lines.push(`${node.pods} pods`);
    lines.forEach((line, at) => {
      if (line && (at + 1) * 12 < high) write(line, left + 4, top + 4 + at * 12);
    });
    if (node.priceNanos === null) {
      context.font = `700 11px ${family}`;
      write('?', left + wide - 9, top + high - 13);
    }
  }
}
