// The table of every list: sorted by any column, walked by keys, and never more rows in the document than are seen.

import { html, useEffect, useLayoutEffect, useMemo, useRef, useState } from '../core/html.js';
import { query, setQuery } from '../core/router.js';
import { useKeys } from '../core/keys.js';

const ROW = 32;
const OVERSCAN = 8;
/** Between columns and at both ends, as `parts.css` has it. */
const GAP = 12;

/**
 * @typedef {{id: string, title: string, width?: string, align?: 'right', help?: string, hidden?: boolean, rare?: boolean,
 *   value: (row: any) => any, cell?: (row: any) => any}} Column
 * `rare` columns are shown when they are asked for; `value` sorts, filters and is exported; `cell` draws, if a text is not enough.
 */

/** Rows in the order of `by`, which is a column with an optional `-` in front. @param {any[]} rows @param {Column[]} columns @param {string} by */
export function sorted(rows, columns, by) {
  const falls = by.startsWith('-');
  const column = columns.find(({ id }) => id === (falls ? by.slice(1) : by));
  if (!column) return rows;
  const keyed = rows.map((row) => [column.value(row), row]);
  keyed.sort(([a], [b]) => {
    // What is not known comes last, whichever way the rest goes.
    if (a === null || a === undefined) return b === null || b === undefined ? 0 : 1;
    if (b === null || b === undefined) return -1;
    const order =
      typeof a === 'number' && typeof b === 'number'
        ? a - b
        : String(a) < String(b)
          ? -1
          : String(a) > String(b)
            ? 1
            : 0;
    return falls ? -order : order;
  });
  return keyed.map(([, row]) => row);
}

/**
 * @param {{label: string, rows: any[], columns: Column[], keyOf: (row: any) => string, open?: (row: any) => void,
 *   href?: (row: any) => string, expand?: (row: any) => any, selected?: Set<string>, select?: (key: string) => void,
 *   sortKey?: string, sort?: string, tall?: boolean, keys?: boolean}} props
 */
export function Table(props) {
  const { label, rows, columns, keyOf, open, selected, select, sortKey = 'sort', keys = true } = props;
  const by = query(sortKey) || props.sort || '';
  const ordered = useMemo(() => (by ? sorted(rows, columns, by) : rows), [rows, columns, by]);
  const shown = columns.filter((column) => !column.hidden);
  const box = useRef(/** @type {HTMLElement|null} */ (null));
  const [view, setView] = useState({ top: 0, height: 800 });
  const [active, setActive] = useState(-1);
  const at = Math.min(active, ordered.length - 1);

  useLayoutEffect(() => {
    const element = box.current;
    if (!element) return undefined;
    const measure = () => setView({ top: element.scrollTop, height: element.clientHeight });
    measure();
    const observer = new ResizeObserver(measure);
    observer.observe(element);
    element.addEventListener('scroll', measure, { passive: true });
    return () => {
      observer.disconnect();
      element.removeEventListener('scroll', measure);
    };
  }, []);

  const focusRow = (/** @type {number} */ index) => {
    const next = Math.max(0, Math.min(ordered.length - 1, index));
    setActive(next);
    const element = box.current;
    if (!element) return;
    const top = next * ROW;
    if (top < element.scrollTop) element.scrollTop = top;
    else if (top + 2 * ROW > element.scrollTop + element.clientHeight)
      element.scrollTop = top + 2 * ROW - element.clientHeight;
    requestAnimationFrame(() => element.querySelector(`[data-row="${next}"]`)?.focus({ preventScroll: true }));
  };
  const current = () => (at >= 0 ? ordered[at] : null);
  useKeys(
    keys
      ? {
          j: () => focusRow(at + 1),
          k: () => focusRow(at - 1),
          x: () => {
            const row = current();
            if (row && select) select(keyOf(row));
          },
        }
      : {},
  );

  const first = Math.max(0, Math.floor(view.top / ROW) - OVERSCAN);
  const last = Math.min(ordered.length, Math.ceil((view.top + view.height) / ROW) + OVERSCAN);
  const template = {
    minWidth: `${shown.reduce((sum, column) => sum + least(column) + GAP, select ? 28 : 0) + GAP}px`,
    gridTemplateColumns: `${select ? '28px ' : ''}${shown.map((column) => column.width ?? 'minmax(80px, 1fr)').join(' ')}`,
  };
  const onKey = (/** @type {KeyboardEvent} */ event) => {
    const page = Math.max(1, Math.floor(view.height / ROW) - 2);
    const moves = {
      ArrowDown: at + 1,
      ArrowUp: at - 1,
      PageDown: at + page,
      PageUp: at - page,
      Home: 0,
      End: ordered.length - 1,
    };
    if (event.key in moves) {
      event.preventDefault();
      focusRow(moves[event.key]);
    } else if (
      event.key === 'Enter' &&
      open &&
      event.target instanceof HTMLElement &&
      event.target.hasAttribute('data-row')
    ) {
      const row = current();
      if (row) open(row);
    }
  };
  return html`<div class="table ${props.tall ? 'tall' : ''}" role="grid" aria-label=${label}
    aria-rowcount=${ordered.length + 1}
      aria-colcount=${shown.length + (select ? 1 : 0)} aria-multiselectable=${select ? 'true' : undefined} ref=${box} onKeyDown=${onKey} tabindex=${ordered.length ? undefined : 0}>
    <div class="head row" role="row" aria-rowindex="1" style=${template}>
      ${select && html`<span role="columnheader"><span class="unseen">Selected</span></span>`}
      ${shown.map((column) => html`<${Head} key=${column.id} column=${column} by=${by} sortKey=${sortKey} />`)}
    </div>
    <div class="body" role="presentation" style=${{ height: `${ordered.length * ROW}px` }}>
      ${ordered.slice(first, last).map((row, offset) => {
        const index = first + offset;
        const key = keyOf(row);
        const isSelected = selected?.has(key);
        return html`<div key=${key} class="row ${index === at ? 'active' : ''} ${isSelected ? 'selected' : ''} ${open ? 'opens' : ''}" role="row" data-row=${index} data-key=${key}
            aria-rowindex=${index + 2} aria-selected=${select ? String(Boolean(isSelected)) : undefined}
            tabindex=${index === (at < 0 ? 0 : at) ? 0 : -1}
              style=${{ ...template, transform: `translateY(${index * ROW}px)` }}
            onFocus=${() => setActive(index)} onClick=${(/** @type {MouseEvent} */ event) => {
              if (open && event.target instanceof Element && !event.target.closest('a,button,input,label')) open(row);
            }}>
          ${
            select &&
            html`<span role="gridcell" class="pick">
              <input type="checkbox" tabindex="-1" checked=${isSelected} aria-label=${`select ${key}`}
              onChange=${() => select(key)} /></span>`
          }
          ${shown.map(
            (column) => html`<span key=${column.id} role="gridcell" class=${column.align ?? ''}
              title=${column.cell ? undefined : textOf(column, row)}>${column.cell ? column.cell(row) : textOf(column, row)}</span>`,
          )}
        </div>`;
      })}
    </div>
  </div>`;
}

/** The least width of a column, in pixels. @param {Column} column */
function least(column) {
  return Number(/\d+/.exec(column.width ?? '80')?.[0]);
}

/** @param {Column} column @param {any} row */
export function textOf(column, row) {
  const value = column.value(row);
  return value === null || value === undefined ? '?' : String(value);
}

/** @param {{column: Column, by: string, sortKey: string}} props */
function Head({ column, by, sortKey }) {
  const order = by === column.id ? 'ascending' : by === `-${column.id}` ? 'descending' : 'none';
  const next = order === 'ascending' ? `-${column.id}` : order === 'descending' ? '' : column.id;
  return html`<span role="columnheader" aria-sort=${order} class=${column.align ?? ''}>
    <button class="sort" title=${column.help ?? `sort by ${column.title}`}
      onClick=${() => setQuery({ [sortKey]: next })}>
      ${column.title}<span class="order"
        aria-hidden="true">${order === 'ascending' ? '▲' : order === 'descending' ? '▼' : ''}</span></button></span>`;
}

/** A short table that is all in the document. @param {{label: string, columns: Column[], rows: any[], keyOf?: (row: any, at: number) => any}} props */
export function PlainTable({ label, columns, rows, keyOf = (_, at) => at }) {
  return html`<div class="scrolls" tabindex="0" role="region" aria-label=${label}><table class="plain">
    <thead><tr>${columns.map((column) => html`<th key=${column.id} scope="col" class=${column.align ?? ''}
      title=${column.help}>${column.title}</th>`)}</tr></thead>
    <tbody>${rows.map(
      (row, at) => html`<tr key=${keyOf(row, at)}>
      ${columns.map((column) => html`<td key=${column.id}
        class=${column.align ?? ''}>${column.cell ? column.cell(row) : textOf(column, row)}</td>`)}
    </tr>`,
    )}</tbody></table></div>`;
}
