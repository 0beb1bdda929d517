// Pools of all dialects in one table.

import { html } from '../core/html.js';
import { count, known, percent } from '../core/format.js';
import { link, open, poolLink } from '../core/router.js';
import { replace, useResource } from '../core/resource.js';
import { Badge, ShareBar, Bar, State, dialectName } from '../parts/bars.js';
import { FilteredAway, Tools, useListing } from '../parts/listing.js';
import { Empty, Loaded } from '../parts/notices.js';
import { Table } from '../parts/table.js';

/** @type {import('../parts/table.js').Column[]} */
const COLUMNS = [
  {
    id: 'name',
    title: 'Pool',
    width: 'minmax(120px, 1.6fr)',
    value: (pool) => (pool.namespace ? `${pool.namespace}/${pool.name}` : pool.name),
    cell: (pool) =>
      html`<a href=${poolLink(pool.id)}>${pool.namespace
        ? html`<span class="dim">${pool.namespace}/</span>` : ''}${pool.name}</a>`,
  },
  {
    id: 'dialect',
    title: 'Kind',
    width: '88px',
    value: (pool) => dialectName(pool.dialect),
    cell: (pool) => html`<${Badge}>${dialectName(pool.dialect)}<//>`,
  },
  {
    id: 'ready',
    title: 'State',
    width: '86px',
    value: (pool) => (pool.ready === null ? null : pool.ready ? 'ready' : 'not ready'),
    cell: (pool) => html`<${PoolState} pool=${pool} />`,
  },
  {
    id: 'nodes',
    title: 'Nodes',
    width: '72px',
    align: 'right',
    value: (pool) => pool.nodes,
    cell: (pool) =>
      html`<span title=${nodesTitle(pool)}>${count(pool.nodes)}${pool.starting
        ? html` <span class="dim">+${pool.starting}</span>` : ''}${pool.leaving
        ? html` <span class="dim">−${pool.leaving}</span>` : ''}</span>`,
  },
  {
    id: 'size',
    title: 'Min–max',
    width: '60px',
    align: 'right',
    value: (pool) => pool.max ?? pool.min,
    cell: (pool) =>
      known(pool.min) || known(pool.max) ? `${pool.min ?? 0}–${pool.max ?? '∞'}` : html`<span class="dim">–</span>`,
  },
  {
    id: 'limit',
    title: 'Limit',
    width: 'minmax(84px, 120px)',
    help: 'the limit that is used most',
    value: (pool) => highest(pool)?.permille ?? null,
    cell: (pool) =>
      highest(pool)
        ? html`<${Bar} permille=${highest(pool).permille}
          title=${pool.limits.map((/** @type {any} */ limit) => limit.text).join('; ')} />`
        : html`<span class="dim">none</span>`,
  },
  {
    id: 'cpu',
    title: 'CPU',
    width: 'minmax(84px, 120px)',
    help: 'requested of allocatable',
    value: (pool) => pool.cpu?.permille,
    cell: (pool) => html`<${ShareBar} share=${pool.cpu} title="cpu" />`,
  },
  {
    id: 'memory',
    title: 'Memory',
    width: 'minmax(84px, 120px)',
    help: 'requested of allocatable',
    value: (pool) => pool.memory?.permille,
    cell: (pool) => html`<${ShareBar} share=${pool.memory} title="memory" />`,
  },
  { id: 'pods', title: 'Pods', width: '44px', align: 'right', value: (pool) => pool.pods },
  {
    id: 'cost',
    title: 'Cost',
    width: '92px',
    align: 'right',
    value: (pool) => pool.cost?.nanos,
    cell: (pool) => pool.cost?.text ?? '?',
  },
  {
    id: 'idle',
    title: 'Idle',
    width: '92px',
    align: 'right',
    help: 'what is paid for and requested by no pod',
    value: (pool) => pool.idle?.nanos,
    cell: (pool) => pool.idle?.text ?? '?',
  },
  {
    id: 'spot',
    title: 'Spot',
    width: '40px',
    align: 'right',
    value: (pool) => pool.spotPermille,
    cell: (pool) => (known(pool.spotPermille) ? percent(pool.spotPermille) : html`<span class="dim">–</span>`),
  },
  {
    id: 'weight',
    title: 'Weight',
    rare: true,
    width: '56px',
    align: 'right',
    value: (pool) => pool.weight,
    cell: (pool) => pool.weight ?? html`<span class="dim">–</span>`,
  },
  {
    id: 'pending',
    title: 'Waiting',
    width: '56px',
    align: 'right',
    help: 'groups of waiting pods that name this pool',
    value: (pool) => pool.pending?.length ?? 0,
    cell: (pool) =>
      pool.pending?.length
        ? html`<a href=${link('pending', [], { pool: pool.name })}>${pool.pending.length}</a>`
        : html`<span class="dim">0</span>`,
  },
];
const FACETS = [
  { id: 'dialect', title: 'Kind', of: (/** @type {any} */ pool) => dialectName(pool.dialect) },
  {
    id: 'state',
    title: 'State',
    of: (/** @type {any} */ pool) => (pool.ready === null ? 'not known' : pool.ready ? 'ready' : 'not ready'),
  },
];

/** @param {any} pool */
function highest(pool) {
  return pool.limits.reduce(
    (/** @type {any} */ most, /** @type {any} */ limit) =>
      (limit.permille ?? -1) > (most?.permille ?? -1) ? limit : most,
    null,
  );
}

/** @param {any} pool */
function nodesTitle(pool) {
  return [
    `${count(pool.nodes)} nodes`,
    pool.starting && `${pool.starting} starting`,
    pool.leaving && `${pool.leaving} leaving`,
  ]
    .filter(Boolean)
    .join(', ');
}

/** @param {{pool: any}} props */
export function PoolState({ pool }) {
  if (pool.ready === true) return html`<${State} tone="good">ready<//>`;
  if (pool.ready === false) return html`<${State} tone="bad" sign="◆" title=${pool.whyNotReady ?? ''}>not ready<//>`;
  return html`<${State} sign="?" title="no condition says so yet">not known<//>`;
}

export function PoolsPage() {
  const pools = useResource('/pools', {
    pools: (data, event) => ({ ...replace(data, event), revision: data.revision }),
  });
  return html`<h1>Pools</h1><${Loaded} of=${pools}>${(/** @type {any} */ data) => html`<${PoolList}
    rows=${data.pools} />`}<//>`;
}

/** @param {{rows: any[]}} props */
function PoolList({ rows }) {
  const { shown, columns, clear, isFiltered } = useListing(rows, COLUMNS, FACETS);
  if (!rows.length) {
    return html`<${Empty} title="No pool yet"
      command="kubectl apply -f examples/pool.yaml">A pool is a named source of nodes with requirements, limits and a policy: a NodePool of Karpenter, a node group of Cluster API, hosts of your own, CI labels. All of them appear here.<//>`;
  }
  return html`<${Tools} name="pools" rows=${rows} shown=${shown} columns=${columns} facets=${FACETS} clear=${clear}
    command="millpond pool list" />
    ${
      shown.length || !isFiltered
        ? html`<${Table} label="pools" rows=${shown} columns=${columns} keyOf=${(/** @type {any} */ pool) => pool.id}
          open=${(/** @type {any} */ pool) => open(poolLink(pool.id))} sort="name" />`
        : html`<${FilteredAway} number=${rows.length} clear=${clear} />`
    }`;
}
