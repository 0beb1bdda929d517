// Nodes as a map and as a table of the same rows.

import { html, signal, useMemo, useState } from '../core/html.js';
import { planFor } from '../core/change.js';
import { bytes, count, known, money, quoted, span } from '../core/format.js';
import { now } from '../core/clock.js';
import { useKeys } from '../core/keys.js';
import { apply, fromColumns, stateName } from '../core/nodes.js';
import { useResource } from '../core/resource.js';
import { go, link, open, query, setQuery } from '../core/router.js';
import { ActionDialog, mayDo } from '../parts/actions.js';
import { Bar, NodeState } from '../parts/bars.js';
import { Icon } from '../parts/icons.js';
import { FilteredAway, Tools, useListing } from '../parts/listing.js';
import { NodeMap } from '../parts/map.js';
import { Empty, Loaded } from '../parts/notices.js';
import { Table } from '../parts/table.js';

/** @type {import('../parts/table.js').Column[]} */
const COLUMNS = [
  {
    id: 'name',
    title: 'Node',
    width: 'minmax(140px, 1.4fr)',
    value: (node) => node.name,
    cell: (node) =>
      html`<a href=${link('nodes', node.name)}>${node.name}</a>${node.doNotDisrupt
        ? html` <${Icon} name="lock" label="do not disrupt" />` : ''}`,
  },
  {
    id: 'state',
    title: 'State',
    width: '88px',
    value: (node) => stateName(node.state),
    cell: (node) => html`<${NodeState} letter=${node.state} />`,
  },
  {
    id: 'pool',
    title: 'Pool',
    width: 'minmax(76px, 110px)',
    value: (node) => node.pool || null,
    cell: (node) => node.pool || html`<span class="dim">none</span>`,
  },
  { id: 'type', title: 'Type', width: 'minmax(96px, 120px)', value: (node) => node.type || null },
  { id: 'zone', title: 'Zone', width: '82px', value: (node) => node.zone || null },
  { id: 'capacity', title: 'Capacity', rare: true, width: '80px', value: (node) => node.capacityType || null },
  {
    id: 'cpu',
    title: 'CPU',
    width: '88px',
    help: 'requested of allocatable',
    value: (node) => node.cpu,
    cell: (node) =>
      html`<${Bar} permille=${node.cpu}
        title=${amount(node.cpu, node.cpuTotal, (/** @type {number} */ milli) => `${milli / 1000} cpu`)} />`,
  },
  {
    id: 'memory',
    title: 'Memory',
    width: '88px',
    help: 'requested of allocatable',
    value: (node) => node.mem,
    cell: (node) =>
      html`<${Bar} permille=${node.mem} tone="second"
        title=${amount(node.mem, node.memTotal, (/** @type {number} */ mebi) => bytes(mebi * 2 ** 20))} />`,
  },
  { id: 'pods', title: 'Pods', width: '40px', align: 'right', value: (node) => node.pods },
  {
    id: 'price',
    title: '$/h',
    width: '62px',
    align: 'right',
    value: (node) => node.priceNanos,
    cell: (node) => money(node.priceNanos),
  },
  {
    id: 'age',
    title: 'Age',
    width: '44px',
    align: 'right',
    value: (node) => (known(node.since) ? -node.since : null),
    cell: (node) => (known(node.since) ? span(now.peek() - node.since) : '?'),
  },
  {
    id: 'why',
    title: 'Why it stays',
    width: 'minmax(130px, 3fr)',
    value: (node) => node.why || null,
    cell: (node) => html`<span class="dim" title=${node.why}>${node.why}</span>`,
  },
];

/** @param {number|null} permille @param {number|null} total @param {(value: number) => string} text */
function amount(permille, total, text) {
  if (!known(permille) || !known(total)) return 'not known';
  return `${text(Math.round((Number(permille) * Number(total)) / 1000))} of ${text(Number(total))}`;
}

const FACETS = [
  { id: 'pool', title: 'Pool', of: (/** @type {any} */ node) => node.pool || 'none' },
  { id: 'state', title: 'State', of: (/** @type {any} */ node) => stateName(node.state) },
  { id: 'zone', title: 'Zone', of: (/** @type {any} */ node) => node.zone || 'none' },
  { id: 'type', title: 'Type', of: (/** @type {any} */ node) => node.type || 'none' },
  { id: 'capacity', title: 'Capacity', of: (/** @type {any} */ node) => node.capacityType || 'none' },
];
const GROUPS = [
  ['pool,zone', 'pool, zone'],
  ['zone,type', 'zone, type'],
  ['type,zone', 'type, zone'],
  ['capacityType,pool', 'capacity, pool'],
  ['state,pool', 'state, pool'],
];

/** Chosen nodes, kept while pages change. */
const selection = signal(/** @type {Set<string>} */ (new Set()));

/** @param {string} name */
function select(name) {
  const next = new Set(selection.value);
  if (!next.delete(name)) next.add(name);
  selection.value = next;
}

export function NodesPage() {
  const nodes = useResource('/nodes', { nodes: apply }, fromColumns);
  return html`<${Loaded} of=${nodes} title="Nodes">${(/** @type {any} */ data) => html`<${NodeList}
    nodes=${data} />`}<//>`;
}

/** @param {{nodes: import('../core/nodes.js').Nodes}} props */
function NodeList({ nodes }) {
  const { shown, columns, clear } = useListing(nodes.rows, COLUMNS, FACETS);
  const [action, setAction] = useState(/** @type {{verb: string, name: string}|null} */ (null));
  const view = query('view') || 'map';
  const chosen = useMemo(() => [...selection.value].filter((name) => nodes.byName.has(name)), [selection.value, nodes]);
  const whatIf = () => chosen.length && planFor({ remove: chosen });
  const onOne = (/** @type {string} */ verb) =>
    chosen.length === 1 && mayDo(verb) && setAction({ verb, name: chosen[0] });
  useKeys({
    m: () => setQuery({ view: view === 'map' ? 'table' : 'map' }),
    w: whatIf,
    c: () => onOne('cordon'),
    u: () => onOne('uncordon'),
    r: () => onOne('drain'),
  });
  if (!nodes.rows.length && !nodes.planned.length) {
    return html`<h1>Nodes</h1><${Empty} title="No node yet"
      command=${['kubectl apply -f examples/pool.yaml', 'kubectl create deployment web --image=nginx --replicas=3']}>
      Nodes come when pods need them and a pool may buy them. Each has a box on the map, with its load, its price and the reason why it stays.<//>`;
  }
  const pool = query('pool');
  return html`<header class="title"><h1>Nodes</h1><p class="sentence">${nodes.total?.sentence ?? ''}</p></header>
    <${Tools} name="nodes" rows=${nodes.rows} shown=${shown} columns=${columns} facets=${FACETS} clear=${clear}
      command=${`millpond node list${pool ? ` --pool ${quoted(pool)}` : ''}`}>
      ${
        view === 'map' &&
        html`<label class="facet"><span class="unseen">Group by</span>
          <select value=${query('by') || 'pool,zone'}
            onChange=${(/** @type {any} */ event) => setQuery({ by: event.target.value })}>
        ${GROUPS.map(([id, name]) => html`<option key=${id} value=${id}>by ${name}</option>`)}</select></label>`
      }
      <span class="switch" role="group" aria-label="view">
        <button aria-pressed=${String(view === 'map')} onClick=${() => setQuery({ view: 'map' })}>Map</button>
        <button aria-pressed=${String(view === 'table')}
          onClick=${() => setQuery({ view: 'table' })}>Table</button></span>
    <//>
    ${
      chosen.length > 0 &&
      html`<div class="selection" role="region" aria-label="selection"><b>${count(chosen.length)} selected</b>
      <button class="primary" onClick=${whatIf}>What if ${chosen.length === 1 ? 'it goes' : 'they go'}</button>
      <button class="quiet" onClick=${() => {
        selection.value = new Set();
      }}>Clear</button></div>`
    }
    ${
      !shown.length && !(view === 'map' && nodes.planned.length && !query('q'))
        ? html`<${FilteredAway} number=${nodes.rows.length} clear=${clear} />`
        : view === 'map'
          ? html`<${NodeMap} nodes=${shown} planned=${shown.length === nodes.rows.length ? nodes.planned : []}
            structure=${`${nodes.structure} ${shown.length}`} by=${(query('by') || 'pool,zone').split(',')}
            selected=${selection.value} select=${select} open=${(/** @type {string} */ name) => go('nodes', name)} />`
          : html`<${Table} label="nodes" tall rows=${shown} columns=${columns}
            keyOf=${(/** @type {any} */ node) => node.name}
            open=${(/** @type {any} */ node) => open(link('nodes', node.name))} selected=${selection.value}
            select=${select} sort="name" />`
    }
    ${action && html`<${ActionDialog} verb=${action.verb} object=${`node/${action.name}`}
      close=${() => setAction(null)} />`}`;
}
