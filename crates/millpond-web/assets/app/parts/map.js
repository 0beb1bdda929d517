// The map of nodes on a canvas: drawn only when something changed, and only what is seen.

import { html, useEffect, useMemo, useRef, useState } from '../core/html.js';
import { money, wholePercent } from '../core/format.js';
import { stateName } from '../core/nodes.js';
import { theme } from '../core/theme.js';
import { color } from './chart.js';
import { draw, slide } from './draw.js';
import { expectedScale, layout, neighbour } from './layout.js';

/** A few nodes must not fill the screen with one box each. */
const LARGEST_SCALE = 3;
/** Maps of more boxes take longer to draw than a frame lasts. */
const SLID = 1500;
const WHEN_RESTING = 90;
/** Between the map and the edge of the canvas. */
const EDGE = 10;
const TITLE_PIXELS = 16;
const COLORS = [
  'surface',
  'raised',
  'line',
  'line-strong',
  'ink',
  'muted',
  'accent',
  'first',
  'second',
  'good',
  'warn',
  'bad',
  'info',
  'box',
];

/**
 * @param {{nodes: any[], planned: any[], structure: string, by: string[], selected: Set<string>, select: (name: string) => void, open: (name: string) => void}} props
 */
export function NodeMap({ nodes, planned, structure, by, selected, select, open }) {
  const canvas = useRef(/** @type {HTMLCanvasElement|null} */ (null));
  const [size, setSize] = useState({ w: 0, h: 0 });
  const [current, setCurrent] = useState('');
  const [view, setView] = useState(/** @type {{scale: number, x: number, y: number}|null} */ (null));
  const [hover, setHover] = useState(/** @type {{x: number, y: number, box: any}|null} */ (null));

  const map = useMemo(() => {
    if (!size.w) return null;
    const aspect = size.w / Math.max(1, size.h);
    // Titles have one height on the screen, whatever the map is shrunk by.
    const scale = Math.min(LARGEST_SCALE, expectedScale(nodes, size.w, size.h));
    return layout(nodes, planned, by, aspect, Math.min(60, TITLE_PIXELS / scale));
  }, [structure, by.join(), size.w, size.h, planned.length]);
  const live = useMemo(() => new Map(nodes.map((node) => [node.name, node])), [nodes]);
  const fit = useMemo(() => fitted(map, size), [map, size]);
  const seen = view ?? fit;
  const colors = useMemo(() => Object.fromEntries(COLORS.map((name) => [name, color(name)])), [theme.value]);

  useEffect(() => {
    const element = canvas.current;
    if (!element) return undefined;
    const observer = new ResizeObserver(() => setSize({ w: element.clientWidth, h: element.clientHeight }));
    observer.observe(element);
    return () => observer.disconnect();
  }, []);
  useEffect(() => setView(null), [by.join(), size.w]);

  useEffect(() => {
    const element = canvas.current;
    if (!element || !map || !size.w) return undefined;
    const whole = () => draw(element, map, { live, colors, selected, current, ...seen });
    let timer = /** @type {any} */ (null);
    const frame = requestAnimationFrame(() => {
      // While a large map is dragged, its last picture is moved; it is drawn anew when the hand rests.
      if (map.boxes.length > SLID && slide(element, seen, colors)) timer = setTimeout(whole, WHEN_RESTING);
      else whole();
    });
    return () => {
      cancelAnimationFrame(frame);
      clearTimeout(timer);
    };
  }, [map, live, colors, selected, current, seen.x, seen.y, seen.scale, size]);

  const boxAt = (/** @type {{offsetX: number, offsetY: number}} */ event) => {
    const x = (event.offsetX - seen.x) / seen.scale;
    const y = (event.offsetY - seen.y) / seen.scale;
    return map?.boxes.find((box) => x >= box.x && x <= box.x + box.w && y >= box.y && y <= box.y + box.h) ?? null;
  };
  const zoom = (/** @type {number} */ factor, x = size.w / 2, y = size.h / 2) => {
    const scale = Math.min(12, Math.max(fit.scale * 0.5, seen.scale * factor));
    setView({ scale, x: x - ((x - seen.x) * scale) / seen.scale, y: y - ((y - seen.y) * scale) / seen.scale });
  };
  const drag = useRef(/** @type {{x: number, y: number, isMoved: boolean}|null} */ (null));
  const wheel = useRef(zoom);
  wheel.current = zoom;
  useEffect(() => {
    const element = canvas.current;
    // Preact's listeners are passive here; this one has to keep the page from scrolling.
    const onWheel = (/** @type {WheelEvent} */ event) => {
      if (!event.ctrlKey && !event.metaKey && document.activeElement !== element) return;
      event.preventDefault();
      wheel.current(Math.exp(-event.deltaY / 300), event.offsetX, event.offsetY);
    };
    element?.addEventListener('wheel', onWheel, { passive: false });
    return () => element?.removeEventListener('wheel', onWheel);
  }, []);

  const onKey = (/** @type {KeyboardEvent} */ event) => {
    if (!map?.boxes.length) return;
    const box = map.boxes.find((candidate) => candidate.node.name === current) ?? null;
    if (event.key.startsWith('Arrow')) {
      const next = box
        ? neighbour(
            map.boxes.filter((candidate) => !candidate.isPlanned),
            box,
            event.key,
          )
        : map.boxes[0];
      setCurrent(next.node.name ?? '');
      setView(shownWhole(next, seen, size));
    } else if (event.key === 'Enter' && box) open(current);
    else if (event.key === 'x' && box) select(current);
    else if (event.key === '+' || event.key === '=') zoom(1.4);
    else if (event.key === '-') zoom(1 / 1.4);
    else if (event.key === '0') setView(null);
    else return;
    event.preventDefault();
    event.stopPropagation();
  };

  const focused = current ? live.get(current) : null;
  return html`<div class="map">
    <canvas ref=${canvas} tabindex="0" role="application"
      aria-label=${`map of ${nodes.length} nodes; arrow keys walk it, Enter opens a node, m shows the table`}
      onKeyDown=${onKey}
      onPointerDown=${(/** @type {PointerEvent} */ event) => {
        drag.current = { x: event.clientX, y: event.clientY, isMoved: false };
        canvas.current?.setPointerCapture(event.pointerId);
      }}
      onPointerMove=${(/** @type {PointerEvent} */ event) => {
        const start = drag.current;
        if (start) {
          const dx = event.clientX - start.x;
          const dy = event.clientY - start.y;
          if (start.isMoved || Math.abs(dx) + Math.abs(dy) > 4) {
            drag.current = { x: event.clientX, y: event.clientY, isMoved: true };
            setView({ ...seen, x: seen.x + dx, y: seen.y + dy });
            setHover(null);
          }
          return;
        }
        const box = boxAt(event);
        if (box?.node !== hover?.box.node) setHover(box ? { x: event.offsetX, y: event.offsetY, box } : null);
      }}
      onPointerUp=${(/** @type {PointerEvent} */ event) => {
        const wasMoved = drag.current?.isMoved;
        drag.current = null;
        if (wasMoved) return;
        const box = boxAt(event);
        if (!box || box.isPlanned) return;
        setCurrent(box.node.name);
        if (event.shiftKey || event.ctrlKey) select(box.node.name);
        else open(box.node.name);
      }}
      onPointerLeave=${() => setHover(null)}></canvas>
    ${hover && html`<${Tip} at=${hover} node=${live.get(hover.box.node.name) ?? hover.box.node}
      isPlanned=${hover.box.isPlanned} width=${size.w} />`}
    <p class="unseen" role="status" aria-live="polite">${focused ? spoken(focused) : ''}</p>
    <div class="map-foot"><${Legend} /><div class="map-tools" role="group" aria-label="zoom">
      <button onClick=${() => zoom(1.4)} aria-label="closer">+</button>
      <button onClick=${() => zoom(1 / 1.4)} aria-label="farther">−</button>
      <button onClick=${() => setView(null)}>All</button></div></div>
  </div>`;
}

/** All of the map in the middle of the canvas. @param {any} map @param {{w: number, h: number}} size */
function fitted(map, size) {
  if (!map || !size.w) return { scale: 1, x: 0, y: 0 };
  const scale = Math.min(LARGEST_SCALE, (size.w - 2 * EDGE) / map.width, (size.h - 2 * EDGE) / map.height);
  return { scale, x: Math.max(EDGE, (size.w - map.width * scale) / 2), y: EDGE };
}

/** Moves the view just as far as a box needs to be seen. @param {any} box @param {any} seen @param {any} size */
function shownWhole(box, seen, size) {
  const margin = 30;
  const left = box.x * seen.scale + seen.x;
  const top = box.y * seen.scale + seen.y;
  const right = left + box.w * seen.scale;
  const bottom = top + box.h * seen.scale;
  const dx = left < margin ? margin - left : right > size.w - margin ? size.w - margin - right : 0;
  const dy = top < margin ? margin - top : bottom > size.h - margin ? size.h - margin - bottom : 0;
  return dx || dy ? { ...seen, x: seen.x + dx, y: seen.y + dy } : seen;
}

/** @param {any} node */
function spoken(node) {
  return `${node.name}, pool ${node.pool || 'none'}, ${node.type}, ${node.zone}, ${stateName(node.state)}, cpu ${wholePercent(node.cpu)}, memory ${wholePercent(node.mem)}, ${node.pods ?? 'unknown number of'} pods`;
}

/** @param {{at: any, node: any, isPlanned: boolean, width: number}} props */
function Tip({ at, node, isPlanned, width }) {
  const style = { left: `${Math.min(at.x + 14, width - 270)}px`, top: `${at.y + 14}px` };
  if (isPlanned)
    return html`<div class="tip" style=${style}><b>planned</b><span>${node.type} in ${node.zone}</span>
      <span>for ${node.pods?.length ?? '?'} pods</span></div>`;
  return html`<div class="tip" style=${style}><b>${node.name}</b>
    <span>${node.type || 'type not known'} · ${node.zone || 'zone not known'} · ${node.capacityType || '?'}</span>
    <span>${stateName(node.state)} · cpu ${wholePercent(node.cpu)} · memory ${wholePercent(node.mem)} · ${node.pods ?? '?'} pods · ${money(node.priceNanos)}</span>
    ${node.why && html`<span class="dim">${node.why}</span>`}</div>`;
}

function Legend() {
  return html`<ul class="legend" aria-label="signs of the map"><li><i class="swatch first"></i>cpu requested</li><li>
    <i class="swatch second"></i>memory requested</li><li><i class="swatch dashed"></i>starting</li><li>
    <i class="swatch ghost"></i>planned</li>
    <li><i class="swatch hatch"></i>draining</li><li><i class="swatch half"></i>cordoned</li><li>
      <i class="swatch corner"></i>not ready</li><li><i class="swatch dot"></i>do not disrupt</li><li>
      <b>?</b> price not known</li></ul>`;
}
