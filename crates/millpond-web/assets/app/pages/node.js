// One node: what runs there, why it stays, what would happen if it went.

import { html, useState } from '../core/html.js';
import { planFor } from '../core/change.js';
import { now } from '../core/clock.js';
import { age, count, known, moment, quoted } from '../core/format.js';
import { useKeys } from '../core/keys.js';
import { useResource } from '../core/resource.js';
import { link, poolLink } from '../core/router.js';
import { ActionButton, ActionDialog, mayDo } from '../parts/actions.js';
import { Bar, Facts, NodeState } from '../parts/bars.js';
import { CopyButton } from '../parts/copy.js';
import { DecisionList } from '../parts/decisions.js';
import { Loaded, Note } from '../parts/notices.js';
import { Table } from '../parts/table.js';

/** @param {{name: string}} props */
export function NodePage({ name }) {
  const isAbout = (/** @type {any} */ data, /** @type {any} */ event) => {
    const touches =
      event.put?.[name] || event.gone?.includes(name) || event.new?.some((/** @type {any} */ row) => row.name === name);
    return touches ? undefined : data;
  };
  const node = useResource(`/nodes/${encodeURIComponent(name)}`, { nodes: isAbout });
  return html`<p class="crumbs"><a href="/nodes">Nodes</a></p>
    <${Loaded} of=${node} title=${name}>${(/** @type {any} */ data) => (data.gone ? html`<${Gone} node=${data} />`
    : html`<${Node} node=${data} reload=${node.reload} />`)}<//>`;
}

/** @param {{node: any}} props */
function Gone({ node }) {
  return html`<header class="title"><h1>${node.name}</h1><span class="badge">gone</span><span class="grow"></span>
    <${CopyButton} text=${`millpond history node/${quoted(node.name)}`} label="Copy as command" /></header>
    <section class="card"><h2>What happened to it</h2>
      <${DecisionList} decisions=${node.decisions} label="decisions on this node" /></section>`;
}

/** @param {{node: any, reload: () => void}} props */
function Node({ node, reload }) {
  const [verb, setVerb] = useState('');
  const whatIf = () => planFor({ remove: [node.name] });
  const isCordoned = node.stateLetter === 'c';
  useKeys({
    c: () => mayDo('cordon') && setVerb('cordon'),
    u: () => mayDo('uncordon') && setVerb('uncordon'),
    r: () => mayDo('drain') && setVerb('drain'),
    w: whatIf,
  });
  const isHeld = node.doNotDisrupt ?? node.blocker === 'NodeDoNotDisrupt';
  return html`<header class="title"><h1>${node.name}</h1><${NodeState} letter=${node.stateLetter} />
    <span class="grow"></span>
      <${CopyButton} text=${`millpond explain node/${quoted(node.name)}`} label="Copy as command" />
      <button onClick=${whatIf} title="plan without this node (w)">What if it goes</button>
      <${ActionButton} verb=${isCordoned ? 'uncordon' : 'cordon'} choose=${setVerb}
        hint=${isCordoned ? 'take pods again (u)' : 'take no new pods (c)'} />
      <${ActionButton} verb="drain" choose=${setVerb} hint="move its pods (r)" />
      <${ActionButton} verb=${isHeld ? 'release' : 'hold'} choose=${setVerb} hint="do-not-disrupt" />
      <${ActionButton} verb="delete" choose=${setVerb} hint="remove this node, and no other" /></header>
    <${Note} kind=${node.disruptable ? 'info' : 'check'}>${node.why || 'Not known why it stays.'}${node.drifted ? ` ${node.drifted}` : ''}<//>
    <${Facts} items=${[
      ['Pool', node.pool ? html`<a href=${poolLink(node.pool.id)}>${node.pool.name}</a>` : 'none'],
      ['Type', node.instanceType || '?'],
      ['Zone', node.zone || '?'],
      ['Capacity', node.capacityType || '?'],
      ['Cost', node.cost?.text ?? '?'],
      ['Age', html`<span title=${moment(node.createdAt)}>${age(node.createdAt, now.value)}</span>`],
      known(node.expiresAt) && ['Expires', moment(node.expiresAt)],
      node.claim && ['Claim', node.claim],
    ]} />
    <div class="halves">
      <section class="card"><h2>Resources</h2><table class="plain" aria-label="resources"><thead><tr>
        <th scope="col">Resource</th><th scope="col">Requested</th><th scope="col" class="right">Amount</th>
        <th scope="col" class="right">Daemons</th><th scope="col" class="right">Allocatable</th>
        <th scope="col" class="right">Capacity</th></tr></thead>
        <tbody>${node.resources.map((/** @type {any} */ row) => html`<tr key=${row.name}><td>${row.name}</td><td>
          <${Bar} permille=${row.permille} /></td><td class="right">${row.requested ?? '?'}</td>
          <td class="right">${row.daemons ?? '?'}</td><td class="right">${row.allocatable ?? '?'}</td>
          <td class="right">${row.capacity ?? '?'}</td></tr>`)}</tbody></table></section>
      <section class="card"><h2>Decisions<a class="more"
        href=${link('timeline', [], { object: `node/${node.name}` })}>Timeline</a></h2>
        ${node.decisions.length ? html`<${DecisionList} decisions=${node.decisions} label="decisions on this node" />`
          : html`<p class="hint">None that is kept: it came before this server's history begins, or another tool made it.</p>`}</section>
    </div>
    <section class="card"><h2>Pods <span class="dim">${count(node.pods.length)}</span></h2>
      ${node.pods.length ? html`<${Table} label="pods of this node" rows=${node.pods} columns=${PODS}
        keyOf=${(/** @type {any} */ pod) => `${pod.namespace}/${pod.name}`} sort="namespace" />`
        : html`<p class="hint">No pod runs here.</p>`}</section>
    <div class="halves">
      <section class="card"><h2>Labels</h2>
        <dl class="labels">${Object.entries(node.labels ?? {}).map(([key, value]) => html`<div key=${key}>
        <dt>${key}</dt><dd>${value}</dd></div>`)}</dl></section>
      <section class="card"><h2>Taints</h2>${node.taints?.length
        ? html`<ul class="plain-list">${node.taints.map((/** @type {string} */ taint) => html`<li key=${taint}>
        <code>${taint}</code></li>`)}</ul>` : html`<p class="hint">None.</p>`}</section>
    </div>
    ${verb && html`<${ActionDialog} verb=${verb} object=${`node/${node.name}`} close=${() => setVerb('')}
      done=${reload} />`}`;
}

/** @type {import('../parts/table.js').Column[]} */
const PODS = [
  { id: 'namespace', title: 'Namespace', width: 'minmax(90px, 140px)', value: (pod) => pod.namespace },
  { id: 'name', title: 'Pod', width: 'minmax(160px, 2fr)', value: (pod) => pod.name },
  { id: 'state', title: 'State', width: '84px', value: (pod) => pod.state },
  { id: 'requests', title: 'Requests', width: 'minmax(140px, 1.5fr)', value: (pod) => pod.requests },
  { id: 'priority', title: 'Priority', width: '100px', align: 'right', value: (pod) => pod.priority },
  { id: 'daemon', title: 'Daemon', width: '80px', value: (pod) => (pod.daemon ? 'daemon' : '') },
  { id: 'blocks', title: 'In the way of removal', width: 'minmax(160px, 2fr)', value: (pod) => pod.blocks ?? '' },
];
