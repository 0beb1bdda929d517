// What was decided, when, and for what: lanes of pools, a line of cost, and the list.

import { html, useEffect, useMemo, useState } from '../core/html.js';
import { get } from '../core/api.js';
import { now } from '../core/clock.js';
import { age, clock, count, known, moment, quoted } from '../core/format.js';
import { reread, useResource } from '../core/resource.js';
import { link, open, query, setQuery } from '../core/router.js';
import { Chart } from '../parts/chart.js';
import { Delta, Kind, KINDS, kindOf, outcome } from '../parts/decisions.js';
import { Tools, useListing, FilteredAway } from '../parts/listing.js';
import { Empty, Loaded } from '../parts/notices.js';
import { Table } from '../parts/table.js';
import { costLines } from './overview.js';

/** Rows read at a time. */
const PAGE = 200;

/** @type {import('../parts/table.js').Column[]} */
const COLUMNS = [
  {
    id: 'at',
    title: 'Time',
    width: '168px',
    value: (row) => row.at,
    cell: (row) => html`<time title=${`${age(row.at, now.peek())} ago`}>${moment(row.at)}</time>`,
  },
  {
    id: 'kind',
    title: 'Kind',
    width: '124px',
    value: (row) => row.kind,
    cell: (row) => html`<${Kind} kind=${row.kind} />`,
  },
  {
    id: 'pool',
    title: 'Pool',
    width: 'minmax(80px, 120px)',
    value: (row) => row.pool ?? '',
    cell: (row) => row.pool ?? html`<span class="dim">–</span>`,
  },
  { id: 'nodes', title: 'Nodes', width: '64px', align: 'right', value: (row) => row.nodes },
  { id: 'pods', title: 'Pods', width: '64px', align: 'right', value: (row) => row.pods },
  {
    id: 'cost',
    title: 'Δ cost',
    width: '112px',
    align: 'right',
    value: (row) => row.deltaPerHourNanos,
    cell: (row) => html`<${Delta} nanos=${row.deltaPerHourNanos} />`,
  },
  {
    id: 'outcome',
    title: 'Outcome',
    width: '88px',
    value: (row) => outcome(row),
    cell: (row) =>
      outcome(row) ? html`<span class="badge bad">${outcome(row)}</span>` : html`<span class="dim">done</span>`,
  },
  {
    id: 'sentence',
    title: 'What',
    width: 'minmax(260px, 4fr)',
    value: (row) => row.sentence,
    cell: (row) => html`<a href=${link('decisions', row.id)} title=${row.sentence}>${row.sentence}</a>`,
  },
];
const FACETS = [
  { id: 'kind', title: 'Kind', of: (/** @type {any} */ row) => row.kind },
  { id: 'pool', title: 'Pool', of: (/** @type {any} */ row) => row.pool },
  { id: 'outcome', title: 'Outcome', of: (/** @type {any} */ row) => outcome(row) || 'done' },
];

/** @param {any} data @param {any} decision */
function merged(data, decision) {
  const without = data.decisions.filter((/** @type {any} */ row) => row.id !== decision.id);
  const isNew = without.length === data.decisions.length;
  return {
    ...data,
    total: known(data.total) && isNew ? data.total + 1 : data.total,
    decisions: [decision, ...without].sort((a, b) => b.at - a.at),
  };
}

export function TimelinePage() {
  const object = query('object');
  const from = query('from');
  const to = query('to');
  const filter = new URLSearchParams(
    Object.entries({ object, from, to, limit: String(PAGE) }).filter(([, value]) => value),
  );
  // Which decisions touch an object is the server's to say.
  const decisions = useResource(`/decisions?${filter}`, { decision: object || from || to ? reread : merged });
  return html`<header class="title"><h1>Timeline</h1><${ObjectSearch} object=${object} /></header>
    <${Loaded} of=${decisions}>${(/** @type {any} */ data) => html`<${History} data=${data} filter=${filter}
      object=${object} />`}<//>`;
}

/** @param {{object: string}} props */
function ObjectSearch({ object }) {
  const [text, setText] = useState(object);
  useEffect(() => setText(object), [object]);
  return html`<form class="line" role="search" onSubmit=${(/** @type {Event} */ event) => {
    event.preventDefault();
    setQuery({ object: text.trim() });
  }}>
    <label><span class="unseen">What happened to</span>
      <input class="wide" placeholder="What happened to node/NAME, pod/NAMESPACE/NAME, pool/NAME …" value=${text}
        spellcheck=${false} onInput=${(/** @type {any} */ event) => setText(event.target.value)} /></label>
    <button>Show</button>${object && html`<button type="button" class="quiet"
      onClick=${() => setQuery({ object: '' })}>All</button>`}</form>`;
}

/** @param {{data: any, filter: URLSearchParams, object: string}} props */
function History({ data, filter, object }) {
  const [older, setOlder] = useState(/** @type {any[]} */ ([]));
  const [next, setNext] = useState(/** @type {string|null} */ (null));
  useEffect(() => {
    setOlder([]);
    setNext(data.next ?? null);
  }, [filter.toString()]);
  const rows = useMemo(() => {
    const known = new Set(data.decisions.map((/** @type {any} */ row) => row.id));
    return [...data.decisions, ...older.filter((row) => !known.has(row.id))];
  }, [data, older]);
  const { shown, columns, clear } = useListing(rows, COLUMNS, FACETS);
  const more = async () => {
    const page = await get(`/decisions?${filter}&cursor=${encodeURIComponent(next ?? '')}`);
    setOlder([...older, ...page.decisions]);
    setNext(page.next ?? null);
  };
  if (!rows.length) {
    return object
      ? html`<${Empty} title="Nothing is recorded about it"
        command=${`millpond history ${quoted(object)}`}>No kept decision touches ${object}. ${data.kept ?? ''}<//>`
      : html`<${Empty} title="No decision yet"
        command="kubectl create deployment web --image=nginx --replicas=3">Each decision is written here with its reason, its pods, its cost and what came of it: nodes bought, replaced, removed, and what was refused.<//>`;
  }
  return html`<${Lanes} rows=${shown} />
    <${Tools} name="decisions" rows=${rows} shown=${shown} columns=${columns} facets=${FACETS} clear=${clear}
      command=${`millpond history${object ? ` ${quoted(object)}` : ''}`} />
    ${shown.length ? html`<${Table} label="decisions" tall rows=${shown} columns=${columns}
      keyOf=${(/** @type {any} */ row) => row.id}
      open=${(/** @type {any} */ row) => open(link('decisions', row.id))} />`
      : html`<${FilteredAway} number=${rows.length} clear=${clear} />`}
    <p class="hint">${count(rows.length)} of ${count(data.total)} shown; ${data.kept ?? ''} ${next && html`<button
      onClick=${more}>Older</button>`}</p>`;
}

const LANE = 22;

/** Decisions as marks on a lane for each pool, under the line of cost. @param {{rows: any[]}} props */
function Lanes({ rows }) {
  const minute = Math.floor(now.value / 60) * 60;
  const newest = Number(query('to')) || minute + 60;
  const oldest = Number(query('from')) || Math.min(newest - 600, rows[rows.length - 1]?.at ?? newest - 3600);
  const cost = useResource(`/cost?points=600&from=${oldest}&to=${newest}`);
  const lines = useMemo(() => costLines(cost.data), [cost.data]);
  const lanes = useMemo(() => {
    const byPool = new Map();
    for (const row of rows.slice(0, 500)) {
      const pool = row.pool ?? 'no pool';
      if (!byPool.has(pool)) byPool.set(pool, []);
      byPool.get(pool).push(row);
    }
    return [...byPool].sort(([a], [b]) => (a < b ? -1 : 1));
  }, [rows]);
  const place = (/** @type {number} */ at) => `${(100 * (at - oldest)) / Math.max(1, newest - oldest)}%`;
  const isZoomed = Boolean(query('from') || query('to'));
  return html`<section class="card lanes" aria-label="decisions over time">
    <h2>${moment(oldest)} to ${clock(newest)} ${isZoomed && html`<button class="more"
      onClick=${() => setQuery({ from: '', to: '' })}>All</button>`}<span
      class="more dim">drag over the graph to select a time</span></h2>
    ${cost.data?.at?.length > 1 && html`<${Chart} label="cost per hour and nodes" at=${cost.data.at} lines=${lines}
      height=${120} onPick=${(/** @type {number} */ from, /** @type {number} */ to) => setQuery({ from: Math.floor(from), to: Math.ceil(to) })} />`}
    <div class="lane-list">${lanes.map(
      ([
        pool,
        marks,
      ]) => html`<div class="lane" key=${pool} style=${{ height: `${LANE}px` }}>
        <span class="name" title=${pool}>${pool}</span>
      <div class="track">${marks
        .filter((/** @type {any} */ row) => row.at >= oldest && row.at <= newest)
        .map(
          (
            /** @type {any} */ row,
          ) => html`<a key=${row.id} class="mark ${kindOf(row.kind)[2]} ${outcome(row)}"
            href=${link('decisions', row.id)} tabindex="-1" aria-hidden="true"
        style=${{ left: place(row.at) }} title=${`${moment(row.at)} ${row.sentence}`}>${kindOf(row.kind)[1]}</a>`,
        )}</div></div>`,
    )}</div>
    <ul class="legend" aria-label="signs">${Object.entries(KINDS)
      .filter(([kind]) => rows.some((row) => row.kind === kind))
      .map(([kind]) => html`<li key=${kind}><${Kind} kind=${kind} /></li>`)}</ul>
  </section>`;
}
