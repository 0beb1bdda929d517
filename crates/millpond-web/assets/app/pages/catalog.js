// Instance types and their offerings: what they cost, and what is out of stock.

import { html, useMemo } from '../core/html.js';
import { count, known, money, quoted } from '../core/format.js';
import { useResource } from '../core/resource.js';
import { query, setQuery } from '../core/router.js';
import { Dialog } from '../parts/dialog.js';
import { State } from '../parts/bars.js';
import { FilteredAway, Tools, useListing } from '../parts/listing.js';
import { Empty, Loaded } from '../parts/notices.js';
import { PlainTable, Table } from '../parts/table.js';

/** @param {any} type @param {string} capacity */
function cheapest(type, capacity) {
  const prices = type.offerings
    .filter((/** @type {any} */ one) => one.capacityType === capacity && known(one.priceNanos))
    .map((/** @type {any} */ one) => one.priceNanos);
  return prices.length ? Math.min(...prices) : null;
}

/** @param {any} type */
function missing(type) {
  return type.offerings.filter((/** @type {any} */ one) => one.available === false).length;
}

/** @param {any} amount */
function number(amount) {
  const found = /^([\d.]+)(m|Ki|Mi|Gi|Ti)?$/.exec(String(amount));
  return found
    ? Number(found[1]) * ({ m: 1e-3, Ki: 2 ** 10, Mi: 2 ** 20, Gi: 2 ** 30, Ti: 2 ** 40 }[found[2]] ?? 1)
    : null;
}

/** @type {import('../parts/table.js').Column[]} */
const COLUMNS = [
  { id: 'name', title: 'Type', width: 'minmax(150px, 1.5fr)', value: (type) => type.name },
  {
    id: 'cpu',
    title: 'CPU',
    width: '80px',
    align: 'right',
    value: (type) => number(type.cpu),
    cell: (type) => type.cpu ?? '?',
  },
  {
    id: 'memory',
    title: 'Memory',
    width: '96px',
    align: 'right',
    value: (type) => number(type.memory),
    cell: (type) => type.memory ?? '?',
  },
  {
    id: 'on-demand',
    title: 'On-demand $/h',
    width: '128px',
    align: 'right',
    help: 'the cheapest zone',
    value: (type) => cheapest(type, 'on-demand'),
    cell: (type) => price(type, 'on-demand'),
  },
  {
    id: 'spot',
    title: 'Spot $/h',
    width: '112px',
    align: 'right',
    help: 'the cheapest zone',
    value: (type) => cheapest(type, 'spot'),
    cell: (type) => price(type, 'spot'),
  },
  {
    id: 'core',
    title: '$/core h',
    width: '104px',
    align: 'right',
    value: (type) => perCore(type),
    cell: (type) => money(perCore(type)),
  },
  { id: 'zones', title: 'Zones', width: 'minmax(120px, 2fr)', value: (type) => zones(type).join(' ') },
  {
    id: 'stock',
    title: 'Stock',
    width: '150px',
    value: (type) => missing(type),
    cell: (type) =>
      missing(type)
        ? html`<${State} tone="warn" sign="▨">${count(missing(type))} of ${count(type.offerings.length)} out<//>`
        : html`<${State} tone="good">all available<//>`,
  },
];

/** @param {any} type @param {string} capacity */
function price(type, capacity) {
  return type.offerings.some((/** @type {any} */ one) => one.capacityType === capacity)
    ? money(cheapest(type, capacity))
    : html`<span class="dim">–</span>`;
}

/** @param {any} type */
function perCore(type) {
  const prices = ['on-demand', 'spot', 'reserved'].map((capacity) => cheapest(type, capacity)).filter(known);
  const cores = number(type.cpu);
  return prices.length && cores ? Math.round(Math.min(.../** @type {number[]} */ (prices)) / cores) : null;
}

/** @param {any} type */
function zones(type) {
  return [...new Set(type.offerings.map((/** @type {any} */ one) => one.zone))].sort();
}

const FACETS = [
  { id: 'stock', title: 'Stock', of: (/** @type {any} */ type) => (missing(type) ? 'out somewhere' : 'all available') },
];

export function CatalogPage() {
  const pool = query('pool');
  const pools = useResource('/pools');
  const catalog = useResource(`/catalog${pool ? `?pool=${encodeURIComponent(pool)}` : ''}`);
  return html`<header class="title"><h1>Catalogue</h1><label class="facet"><span class="unseen">Pool</span>
    <select value=${pool} onChange=${(/** @type {any} */ event) => setQuery({ pool: event.target.value })}>
      <option value="">types of all pools</option>${(pools.data?.pools ?? []).map((/** @type {any} */ row) => html`<option key=${row.id} value=${row.name}>pool ${row.name}</option>`)}</select></label></header>
    <${Loaded} of=${catalog}>${(/** @type {any} */ data) => html`<${Types} data=${data} pool=${pool} />`}<//>`;
}

/** @param {{data: any, pool: string}} props */
function Types({ data, pool }) {
  const { shown, columns, clear } = useListing(data.types, COLUMNS, FACETS);
  const opened = query('type');
  const type = useMemo(() => data.types.find((/** @type {any} */ one) => one.name === opened), [data, opened]);
  if (!data.types.length)
    return html`<${Empty} title="No instance types"
      command="kubectl apply -f examples/pool.yaml">Types that pools may buy stand here, with prices and stock, once there is a pool whose NodeClass has a catalogue.<//>`;
  return html`<${Tools} name="catalogue" rows=${data.types} shown=${shown} columns=${columns} facets=${FACETS}
    clear=${clear} command=${`millpond catalog types${pool ? ` --pool ${quoted(pool)}` : ''}`} />
    ${shown.length ? html`<${Table} label="instance types" tall rows=${shown} columns=${columns}
      keyOf=${(/** @type {any} */ one) => one.name} open=${(/** @type {any} */ one) => setQuery({ type: one.name })}
      sort="core" />`
      : html`<${FilteredAway} number=${data.types.length} clear=${clear} />`}
    ${data.more ? html`<p class="hint">${count(data.more)} more types are not shown: choose a pool.</p>` : ''}
    ${type && html`<${Dialog} title=${type.name} close=${() => setQuery({ type: '' })}>
      <${PlainTable} label="offerings" rows=${type.offerings} columns=${OFFERINGS} /><//>`}`;
}

/** @type {import('../parts/table.js').Column[]} */
const OFFERINGS = [
  { id: 'zone', title: 'Zone', value: (one) => one.zone },
  { id: 'capacity', title: 'Capacity', value: (one) => one.capacityType },
  { id: 'price', title: '$/h', align: 'right', value: (one) => one.priceNanos, cell: (one) => money(one.priceNanos) },
  {
    id: 'stock',
    title: 'Stock',
    value: (one) => one.available,
    cell: (one) =>
      one.available === false
        ? html`<${State} tone="warn" sign="▨">out of stock<//>`
        : one.available
          ? html`<${State} tone="good">available<//>`
          : '?',
  },
];
