// Lines over time, drawn by uPlot: steps, since a price holds until it changes. Gaps stay gaps.

import { html, useEffect, useRef } from '../core/html.js';
import { clock, moment } from '../core/format.js';
import { theme } from '../core/theme.js';

/**
 * @typedef {{label: string, values: Array<number|null>, color: string, scale: string, text: (value: number|null) => string, tick: (value: number) => string, fill?: boolean}} Line
 */

/** A colour of the style sheet. @param {string} name */
export function color(name) {
  return getComputedStyle(document.documentElement).getPropertyValue(`--${name}`).trim();
}

/**
 * @param {{label: string, at: number[], lines: Line[], marks?: Array<{at: number, color: string, title: string}>, height?: number,
 *   onPick?: (from: number, to: number) => void}} props
 */
export function Chart({ label, at, lines, marks = [], height = 180, onPick }) {
  const box = useRef(/** @type {HTMLElement|null} */ (null));
  const legend = useRef(/** @type {HTMLElement|null} */ (null));
  const chosen = theme.value;
  const latest = useRef({ marks, lines, onPick });
  latest.current = { marks, lines, onPick };
  const chart = useRef(/** @type {any} */ (null));

  useEffect(() => {
    const element = box.current;
    const Plot = /** @type {any} */ (globalThis).uPlot;
    if (!element || !Plot) return undefined;
    const shape = options(element.clientWidth, height, latest, (/** @type {any} */ plot) =>
      describe(plot, legend.current, latest.current.lines),
    );
    chart.current = new Plot(shape, [at, ...lines.map(({ values }) => values)], element);
    const observer = new ResizeObserver(() => chart.current?.setSize({ width: element.clientWidth, height }));
    observer.observe(element);
    return () => {
      observer.disconnect();
      chart.current.destroy();
      chart.current = null;
    };
  }, [chosen, lines.map((line) => line.label).join(), height]);

  useEffect(() => {
    chart.current?.setData([at, ...lines.map(({ values }) => values)]);
  }, [at, lines, marks]);

  const last = at.length - 1;
  return html`<figure class="chart" aria-label=${label}>
    <div class="plot" ref=${box} role="img"
      aria-label=${`${label}. ${lines.map((line) => `${line.label}: ${line.text(line.values[last] ?? null)} now`).join(', ')}.`}></div>
    <figcaption ref=${legend}>${lines.map((line) => html`<span key=${line.label} class="key">
      <i data-color=${line.color} style=${{ background: `var(--${line.color})` }}></i>${line.label} <b>${line.text(line.values[last] ?? null)}</b></span>`)}<time></time></figcaption>
  </figure>`;
}

/** Writes what stands under the cursor. @param {any} plot @param {HTMLElement|null} legend @param {Line[]} lines */
function describe(plot, legend, lines) {
  if (!legend) return;
  const at = plot.cursor.idx ?? plot.data[0].length - 1;
  legend.querySelectorAll('b').forEach((element, line) => {
    element.textContent = lines[line]?.text(plot.data[line + 1]?.[at] ?? null) ?? '';
  });
  const time = legend.querySelector('time');
  if (time)
    time.textContent = plot.cursor.idx === null || plot.cursor.idx === undefined ? '' : moment(plot.data[0][at]);
}

/** @param {number} width @param {number} height @param {any} latest @param {(plot: any) => void} onCursor */
function options(width, height, latest, onCursor) {
  const Plot = /** @type {any} */ (globalThis).uPlot;
  const grid = { stroke: color('line'), width: 1 };
  const font = '11px ' + getComputedStyle(document.body).fontFamily;
  const axis = { stroke: color('muted'), grid, ticks: { show: false }, font, gap: 4 };
  const scales = [...new Set(latest.current.lines.map((/** @type {Line} */ line) => line.scale))];
  return {
    width,
    height,
    padding: [8, scales.length > 1 ? 0 : 8, 0, 0],
    legend: { show: false },
    cursor: { y: false, points: { size: 6 }, drag: { x: Boolean(latest.current.onPick), y: false } },
    scales: { x: { time: true }, ...Object.fromEntries(scales.map((scale, at) => [scale, { range: range(at) }])) },
    axes: [
      {
        ...axis,
        size: 24,
        space: 78,
        values: (/** @type {any} */ _, /** @type {number[]} */ ticks) => ticks.map(ticksOf(ticks)),
      },
      ...scales.map((scale, at) => ({
        ...axis,
        scale,
        side: at ? 1 : 3,
        size: 56,
        grid: at ? { show: false } : grid,
        values: (/** @type {any} */ _, /** @type {number[]} */ ticks) =>
          ticks.map((tick) => latest.current.lines.find((/** @type {Line} */ line) => line.scale === scale).tick(tick)),
      })),
    ],
    series: [
      {},
      ...latest.current.lines.map((/** @type {Line} */ line) => ({
        label: line.label,
        scale: line.scale,
        stroke: color(line.color),
        width: 1.5,
        points: { show: false },
        fill: line.fill ? `${color(line.color)}22` : undefined,
        paths: Plot.paths.stepped({ align: 1 }),
      })),
    ],
    hooks: {
      setCursor: [onCursor],
      setSelect: [
        (/** @type {any} */ plot) => {
          if (plot.select.width > 4)
            latest.current.onPick?.(
              plot.posToVal(plot.select.left, 'x'),
              plot.posToVal(plot.select.left + plot.select.width, 'x'),
            );
        },
      ],
      draw: [(/** @type {any} */ plot) => drawMarks(plot, latest.current.marks)],
    },
  };
}

/** From 0 up; the second scale leaves more space above, so that two lines of one shape do not cover each other. @param {number} order */
function range(order) {
  return (/** @type {any} */ _, /** @type {number} */ low, /** @type {number} */ high) => [
    0,
    high > 0 ? high * (order ? 1.7 : 1.12) : 1,
  ];
}

/** Times as short as their distance allows. @param {number[]} ticks */
function ticksOf(ticks) {
  const step = ticks.length > 1 ? ticks[1] - ticks[0] : 60;
  if (step < 60) return (/** @type {number} */ tick) => clock(tick);
  if (step < 43_200) return (/** @type {number} */ tick) => (clock(tick) === '00:00:00' ? moment(tick).slice(5, 10) : clock(tick).slice(0, 5));
  return (/** @type {number} */ tick) => moment(tick).slice(5, 10);
}

/** A tick below the line for each decision. @param {any} plot @param {Array<{at: number, color: string}>} marks */
function drawMarks(plot, marks) {
  const { ctx, bbox } = plot;
  ctx.save();
  const size = 4 * devicePixelRatio;
  for (const mark of marks) {
    const x = plot.valToPos(mark.at, 'x', true);
    if (!(x >= bbox.left && x <= bbox.left + bbox.width)) continue;
    const y = bbox.top + bbox.height;
    ctx.fillStyle = color(mark.color);
    ctx.beginPath();
    ctx.moveTo(x - size, y);
    ctx.lineTo(x + size, y);
    ctx.lineTo(x, y - 1.8 * size);
    ctx.fill();
  }
  ctx.restore();
}
