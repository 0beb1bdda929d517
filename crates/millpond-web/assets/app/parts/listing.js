// The tools above every list: filter, facets, columns, the same as a command, and the rows as a file.

import { html, useMemo, useRef } from '../core/html.js';
import { count } from '../core/format.js';
import { query, setQuery } from '../core/router.js';
import { useKeys } from '../core/keys.js';
import { CopyButton, csvCell, save } from './copy.js';
import { Icon } from './icons.js';
import { textOf } from './table.js';

/**
 * @typedef {import('./table.js').Column} Column
 * @typedef {{id: string, title: string, of: (row: any) => string|null}} Facet
 */

/** Texts of rows in lower case: a row that changes is another object. @type {WeakMap<any, {columns: Column[], text: string}>} */
const haystacks = new WeakMap();

/** @param {any} row @param {Column[]} columns */
function haystack(row, columns) {
  const kept = haystacks.get(row);
  if (kept?.columns === columns) return kept.text;
  const text = columns
    .map((column) => column.value(row) ?? '')
    .join('\u0000')
    .toLowerCase();
  haystacks.set(row, { columns, text });
  return text;
}

/**
 * Rows that have every word of the filter; `-word` leaves rows out, `column:word` looks at one column.
 * @param {any[]} rows @param {Column[]} columns @param {string} filter
 */
export function matching(rows, columns, filter) {
  const words = filter
    .toLowerCase()
    .split(/\s+/)
    .filter(Boolean)
    .map((word) => {
      const isNot = word.length > 1 && word.startsWith('-');
      const text = isNot ? word.slice(1) : word;
      const cut = text.indexOf(':');
      const only =
        cut > 0
          ? columns.find(({ id, title }) => id === text.slice(0, cut) || title.toLowerCase() === text.slice(0, cut))
          : undefined;
      return { isNot, text: only ? text.slice(cut + 1) : text, columns: only ? [only] : columns };
    });
  if (!words.length) return rows;
  if (words.every((word) => word.columns === columns)) {
    return rows.filter((row) => {
      const text = haystack(row, columns);
      return words.every((word) => text.includes(word.text) !== word.isNot);
    });
  }
  const has = (/** @type {any} */ row, /** @type {any} */ word) =>
    word.columns.some((/** @type {Column} */ column) => {
      const value = column.value(row);
      return value !== null && value !== undefined && String(value).toLowerCase().includes(word.text);
    });
  return rows.filter((row) => words.every((word) => has(row, word) !== word.isNot));
}

/**
 * What of a list is shown, by the filters in the address.
 * @param {any[]} rows @param {Column[]} columns @param {Facet[]} [facets]
 */
export function useListing(rows, columns, facets = []) {
  const filter = query('q');
  const chosen = facets.map(({ id }) => query(id));
  const hidden = query('hide');
  const shown = useMemo(() => {
    const active = facets.map((facet, at) => ({ facet, value: chosen[at] })).filter(({ value }) => value);
    const kept = active.length
      ? rows.filter((row) => active.every(({ facet, value }) => (facet.of(row) ?? 'none') === value))
      : rows;
    return matching(kept, columns, filter);
  }, [rows, columns, filter, chosen.join('\n')]);
  const visible = useMemo(() => {
    const off = new Set(hidden.split(','));
    return columns.map((column) => ({ ...column, hidden: hidden ? off.has(column.id) : column.rare === true }));
  }, [columns, hidden]);
  const clear = () => setQuery(Object.fromEntries([['q', ''], ...facets.map(({ id }) => [id, ''])]));
  return { shown, columns: visible, clear, isFiltered: Boolean(filter || chosen.some(Boolean)) };
}

/**
 * @param {{name: string, rows: any[], shown: any[], columns: Column[], facets?: Facet[], command?: string, clear: () => void, children?: any}} props
 */
export function Tools({ name, rows, shown, columns, facets = [], command, clear, children }) {
  const field = useRef(/** @type {HTMLInputElement|null} */ (null));
  useKeys({ '/': () => field.current?.focus() });
  const exported = () => columns.filter(({ hidden }) => !hidden);
  const asCsv = () =>
    save(
      `${name}.csv`,
      [
        exported()
          .map(({ title }) => csvCell(title))
          .join(','),
        ...shown.map((row) =>
          exported()
            .map((column) => csvCell(column.value(row)))
            .join(','),
        ),
      ].join('\n'),
      'text/csv',
    );
  const asJson = () =>
    save(
      `${name}.json`,
      JSON.stringify(
        shown.map((row) => Object.fromEntries(exported().map((column) => [column.id, column.value(row)]))),
        null,
        2,
      ),
      'application/json',
    );
  const missing = rows.length - shown.length;
  return html`<div class="tools" role="search" aria-label=${`filter ${name}`}>
    <label class="filter"><${Icon} name="search" /><span class="unseen">Filter</span>
      <input type="search" ref=${field} value=${query('q')} placeholder="Filter" spellcheck=${false} autocomplete="off"
        onInput=${(/** @type {any} */ event) => setQuery({ q: event.target.value })} title="words that must be in a row; -word leaves rows out; pool:general looks at one column" />
      <kbd aria-hidden="true">/</kbd></label>
    ${facets.map((facet) => html`<${FacetPicker} key=${facet.id} facet=${facet} rows=${rows} />`)}
    ${missing > 0 && html`<span class="hint">${count(missing)} hidden <button class="quiet"
      onClick=${clear}>Clear</button></span>`}
    <span class="grow"></span>
    ${children}
    <details class="menu"><summary title="columns"><${Icon} name="columns" />
      <span class="unseen">Columns</span></summary>
      <div class="sheet">${columns.map((column) => html`<label key=${column.id}>
        <input type="checkbox" checked=${!column.hidden}
          onChange=${() => toggle(columns, column.id)} /> ${column.title}</label>`)}</div></details>
    <details class="menu"><summary title="download"><${Icon} name="download" />
      <span class="unseen">Download</span></summary>
      <div class="sheet"><button class="quiet" onClick=${asCsv}>CSV</button>
        <button class="quiet" onClick=${asJson}>JSON</button></div></details>
    ${command && html`<${CopyButton} text=${command} label="Copy as command" />`}
  </div>`;
}

/** @param {Column[]} columns @param {string} id */
function toggle(columns, id) {
  const hidden = columns
    .filter((column) => (column.id === id ? !column.hidden : column.hidden))
    .map((column) => column.id);
  setQuery({ hide: hidden.join(',') || 'none' });
}

/** @param {{facet: Facet, rows: any[]}} props */
function FacetPicker({ facet, rows }) {
  const values = useMemo(() => {
    const counts = new Map();
    for (const row of rows) {
      const value = facet.of(row) ?? 'none';
      counts.set(value, (counts.get(value) ?? 0) + 1);
    }
    return [...counts].sort(([a], [b]) => (a < b ? -1 : 1));
  }, [rows, facet]);
  const chosen = query(facet.id);
  if (values.length < 2 && !chosen) return null;
  return html`<label class="facet ${chosen ? 'on' : ''}"><span class="unseen">${facet.title}</span>
    <select value=${chosen} onChange=${(/** @type {any} */ event) => setQuery({ [facet.id]: event.target.value })}>
      <option value="">${facet.title}</option>
      ${values.map(([value, number]) => html`<option key=${value} value=${value}>${value} (${count(number)})</option>`)}
    </select></label>`;
}

/** What stands in place of a list whose rows are all filtered away. @param {{number: number, clear: () => void}} props */
export function FilteredAway({ number, clear }) {
  return html`<section class="empty"><${Icon} name="search" /><h2>Filtered away</h2>
    <p>${count(number)} hidden by the filter.</p><button onClick=${clear}>Clear the filter</button></section>`;
}

export { textOf };
