// Groups of equal pods that wait: why, in a sentence, and what would help, tried.

import { html } from '../core/html.js';
import { planFor } from '../core/change.js';
import { now } from '../core/clock.js';
import { age, count, plural, quoted } from '../core/format.js';
import { reread, useResource } from '../core/resource.js';
import { useKeys } from '../core/keys.js';
import { link, open, poolLink, query } from '../core/router.js';
import { Funnel } from '../parts/funnel.js';
import { State } from '../parts/bars.js';
import { CopyButton } from '../parts/copy.js';
import { Icon } from '../parts/icons.js';
import { FilteredAway, Tools, useListing } from '../parts/listing.js';
import { Empty, Loaded } from '../parts/notices.js';

const STATES = {
  'being-bought': ['info', '◌'],
  'waits-for-room': ['good', '●'],
  'nobody-fits': ['bad', '◆'],
  gated: ['warn', '▮'],
  'not-looked-at': ['', '?'],
};

/** @type {import('../parts/table.js').Column[]} */
const COLUMNS = [
  { id: 'state', title: 'State', value: (group) => group.stateText },
  { id: 'pods', title: 'Pods', align: 'right', value: (group) => group.pods },
  { id: 'owner', title: 'Owner', value: (group) => group.owner ?? group.names[0] },
  { id: 'namespace', title: 'Namespace', value: (group) => group.namespace },
  { id: 'oldest', title: 'Oldest', align: 'right', value: (group) => group.oldestAt },
  { id: 'requests', title: 'Each asks for', value: (group) => group.requests },
  { id: 'why', title: 'Why', value: (group) => group.sentence },
];
const FACETS = [
  { id: 'state', title: 'State', of: (/** @type {any} */ group) => group.stateText },
  { id: 'namespace', title: 'Namespace', of: (/** @type {any} */ group) => group.namespace },
  { id: 'rule', title: 'Rule', of: (/** @type {any} */ group) => group.rule },
];

/** @param {any} data @param {any} event */
function merged(data, event) {
  const gone = new Set(event.gone ?? []);
  const put = event.put ?? {};
  const kept = data.groups
    .filter((/** @type {any} */ group) => !gone.has(group.id))
    .map((/** @type {any} */ group) => (put[group.id] ? { ...group, ...put[group.id] } : group));
  const known = new Set(data.groups.map((/** @type {any} */ group) => group.id));
  const added = Object.entries(put)
    .filter(([id]) => !known.has(id))
    .map(([id, group]) => ({ id, ...group }));
  return { ...data, pods: event.pods ?? data.pods, groups: [...kept, ...added] };
}

/** @param {{open: string}} props the id of the open group */
export function PendingPage({ open: opened }) {
  const pending = useResource('/pending', { pending: merged });
  return html`<${Loaded} of=${pending} title="Pending">${(/** @type {any} */ data) => html`<${Board} data=${data}
    opened=${opened} />`}<//>`;
}

/** @param {{data: any, opened: string}} props */
function Board({ data, opened }) {
  const { shown, columns, clear } = useListing(data.groups, COLUMNS, FACETS);
  const pool = query('pool');
  useKeys({ j: () => step(1), k: () => step(-1) });
  if (!data.groups.length) {
    return html`<h1>Pending</h1><${Empty} title="No pod waits" kind="check"
      command="kubectl create deployment large --image=nginx --replicas=3">
      Pods without a node stand here in groups of equal pods, each with the first rule that keeps every pool from giving it a node, and a fix that was tried by planning again.<//>`;
  }
  return html`<header class="title"><h1>Pending</h1>
    <p class="sentence">${plural(data.groups.length, 'group')}, ${plural(data.pods, 'pod')} ${data.pods === 1 ? 'waits' : 'wait'}</p></header>
    <${Tools} name="pending" rows=${data.groups} shown=${shown} columns=${columns} facets=${FACETS} clear=${clear}
      command=${opened && shown.length ? commandOf(data.groups, opened) : 'millpond plan'} />
    ${pool && html`<p class="hint">Groups that name pool ${pool}. <a href=${link('pending')}>All</a></p>`}
    ${
      !shown.length
        ? html`<${FilteredAway} number=${data.groups.length} clear=${clear} />`
        : html`
    <div class="groups">${shown.map((group) => html`<${Group} key=${group.id} group=${group}
      isOpen=${group.id === opened} />`)}</div>`
    }`;
}

/** Moves the focus from group to group. @param {number} by */
function step(by) {
  const all = [...document.querySelectorAll('.group .summary')];
  const at = all.indexOf(/** @type {Element} */ (document.activeElement));
  const next = all[at < 0 ? 0 : Math.max(0, Math.min(all.length - 1, at + by))];
  if (next instanceof HTMLElement) next.focus();
}

/** @param {any[]} groups @param {string} id */
function commandOf(groups, id) {
  const group = groups.find((candidate) => candidate.id === id);
  return group ? `millpond explain pod/${quoted(group.namespace)}/${quoted(group.names[0] ?? '')}` : 'millpond plan';
}

/** @param {{group: any, isOpen: boolean}} props */
function Group({ group, isOpen }) {
  const [tone, sign] = STATES[group.state] ?? ['', '•'];
  return html`<article class="group ${isOpen ? 'open' : ''}" data-group=${group.id}>
    <button class="summary" aria-expanded=${String(isOpen)}
      onClick=${() => open(isOpen ? link('pending') + location.search : link('pending', group.id) + location.search)}>
      <${Icon} name=${isOpen ? 'down' : 'right'} />
      <${State} tone=${tone} sign=${sign}>${group.stateText}<//>
      <span class="pods"><b>${count(group.pods)}</b> ${group.pods === 1 ? 'pod' : 'pods'}</span>
      <span class="owner">${group.namespace
        ? html`<span class="dim">${group.namespace}/</span>` : ''}${group.owner ?? group.names[0] ?? '?'}</span>
      <span class="requests">${group.requests}</span>
      <span class="oldest" title="the oldest waits since">${age(group.oldestAt, now.value)}</span>
      <span class="why">${group.sentence}</span>
    </button>
    ${isOpen && html`<${Detail} id=${group.id} />`}
  </article>`;
}

/** @param {{id: string}} props */
function Detail({ id }) {
  const detail = useResource(`/pending/${encodeURIComponent(id)}`, { pending: reread, pools: reread });
  return html`<div class="detail"><${Loaded} of=${detail}>${(/** @type {any} */ data) => html`
    <p class="lead">${data.explanation}</p>
    ${data.nearestMiss && html`<p class="nearest"><b>Nearest miss</b> ${data.nearestMiss}</p>`}
    ${
      data.fixes?.length
        ? html`<h2>What would help</h2>
          <ul class="fixes">${data.fixes.map((/** @type {any} */ fix, /** @type {number} */ at) => html`<${Fix}
            key=${at} fix=${fix} />`)}</ul>`
        : data.state === 'nobody-fits'
          ? html`<p class="hint">No single edit was found that helps.</p>`
          : ''
    }
    ${data.pools?.map((/** @type {any} */ pool) => html`<${PoolFunnel} key=${pool.id} pool=${pool} />`)}
    ${data.nodes?.length ? html`<p class="hint">Nodes that exist: ${data.nodes.map((/** @type {any} */ row) => `${count(row.nodes)} out by ${row.rule}`).join(', ')}.</p>` : ''}
    <p class="names">${(data.names ?? []).map((/** @type {string} */ name) => html`<span
      key=${name}>${name}</span>`)}${data.pods > (data.names?.length ?? 0)
      ? html`<span class="dim">and ${count(data.pods - (data.names?.length ?? 0))} more</span>` : ''}</p>
    ${data.command && html`<p class="line">
      <${CopyButton} text=${data.command} label="Copy as command" /></p>`}`}<//></div>`;
}

/** @param {{fix: any}} props */
function Fix({ fix }) {
  const body = fix.whatIf ?? (fix.patch ? { patches: [fix.patch] } : null);
  return html`<li><span class="tried ${fix.tried ? 'yes' : ''}">
    <${Icon} name=${fix.tried ? 'check' : 'info'} />${fix.tried ? 'tried' : 'not tried'}</span>
    <span class="what">${fix.sentence}</span>
    ${body && html`<button class="primary" onClick=${() => planFor(body)}>Preview</button>`}
    ${fix.yaml && html`<${CopyButton} text=${fix.yaml} label="Copy patch" />`}</li>`;
}

/** @param {{pool: any}} props */
function PoolFunnel({ pool }) {
  return html`<section class="pool-funnel"><h3>
    <a href=${poolLink(pool.id)}>pool ${pool.pool}</a> <span class="dim">${pool.verdict ?? ''}</span></h3>
    <${Funnel} all=${pool.types} steps=${pool.steps ?? []}
      label=${`instance types of pool ${pool.pool} by rule`} /></section>`;
}
