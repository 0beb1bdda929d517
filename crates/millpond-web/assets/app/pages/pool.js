// One pool: what it may buy, what it has, and what it would be after a change.

import { html, useState } from '../core/html.js';
import { planFor } from '../core/change.js';
import { count, known, moment, percent, quoted } from '../core/format.js';
import { link } from '../core/router.js';
import { may, whyNot } from '../core/session.js';
import { reread, useResource } from '../core/resource.js';
import { Badge, Bar, Facts, ShareBar, State, dialectName } from '../parts/bars.js';
import { CopyButton } from '../parts/copy.js';
import { Funnel } from '../parts/funnel.js';
import { Loaded, Note } from '../parts/notices.js';
import { PlainTable } from '../parts/table.js';
import { PoolState } from './pools.js';
import { difference } from '../core/patch.js';

/** @param {{id: string[]}} props dialect, namespace or `-`, name */
export function PoolPage({ id }) {
  const path = `/pools/${id.map(encodeURIComponent).join('/')}`;
  const pool = useResource(path, { pools: reread, decision: reread });
  return html`<p class="crumbs"><a href="/pools">Pools</a></p>
    <${Loaded} of=${pool} title=${id[2]}>${(/** @type {any} */ data) => html`<${Pool} pool=${data} />`}<//>`;
}

/** @param {{pool: any}} props */
function Pool({ pool }) {
  return html`<header class="title"><h1>${pool.name}</h1><${Badge}>${dialectName(pool.dialect)}<//>
    <${PoolState} pool=${pool} />
      <span class="grow"></span><${CopyButton} text=${`millpond explain pool/${quoted(pool.name)}`}
        label="Copy as command" /></header>
    ${pool.whyNotReady && html`<${Note} kind="error">${pool.whyNotReady}<//>`}
    <${Facts} items=${[
      [
        'Nodes',
        html`<a href=${link('nodes', [], { pool: pool.name })}>${count(pool.nodes)}${pool.starting ? `, ${pool.starting} starting` : ''}${pool.leaving ? `, ${pool.leaving} leaving` : ''}</a>`,
      ],
      (known(pool.min) || known(pool.max)) && ['Size', `${pool.min ?? 0} to ${pool.max ?? 'any'}`],
      ['Pods', count(pool.pods)],
      ['Cost', pool.cost?.text ?? '?'],
      ['Idle', pool.idle?.text ?? '?'],
      ['CPU', html`<${ShareBar} share=${pool.cpu} />`],
      ['Memory', html`<${ShareBar} share=${pool.memory} />`],
      known(pool.spotPermille) && ['Spot', percent(pool.spotPermille)],
      known(pool.weight) && ['Weight', String(pool.weight)],
      pool.class && ['Class', pool.class],
      ['Since', moment(pool.createdAt)],
    ]} />
    <section class="card"><h2>What it may buy</h2>
      ${pool.requirements?.length ? html`<ul
        class="plain-list">${pool.requirements.map((/** @type {string} */ text) => html`<li key=${text}>
        <code>${text}</code></li>`)}</ul>` : html`<p class="hint">No requirement: every type of its class.</p>`}
      ${
        pool.types &&
        html`<p class="after">${count(pool.types.left)} of ${count(pool.types.all)} instance types are left. <a
          href=${link('catalog', [], { pool: pool.name })}>See them</a></p>
        <${Funnel} all=${pool.types.all} steps=${pool.types.steps ?? []} label="instance types by rule" />`
      }</section>
    <div class="halves">
      <section class="card"><h2>Limits and disruption</h2>
        ${pool.limits.length ? html`<ul class="limits">${pool.limits.map((/** @type {any} */ limit) => html`<li
          key=${limit.resource}>
          <span>${limit.resource}</span><${Bar} permille=${limit.permille} title=${limit.text} />
          <span class="dim">${limit.used ?? '?'} of ${limit.limit}</span></li>`)}</ul>`
          : html`<p class="hint">No limits.</p>`}
        ${pool.disruption && html`<p class="after">Policy <code>${pool.disruption.policy ?? '?'}</code></p>
          <ul class="plain-list">${(pool.disruption.budgets ?? []).map((/** @type {string} */ text) => html`<li
            key=${text}>${text}</li>`)}</ul>`}</section>
      <section class="card"><h2>Conditions</h2>
        ${pool.conditions?.length ? html`<${PlainTable} label="conditions" rows=${pool.conditions}
          columns=${CONDITIONS} />`
          : html`<p class="hint">Not observed yet.</p>`}</section>
    </div>
    ${
      pool.nodesOf?.length
        ? html`<section class="card"><h2>Nodes <a class="more"
          href=${link('nodes', [], { pool: pool.name })}>As a list</a></h2>
      <p class="names">${pool.nodesOf.slice(0, 120).map((/** @type {string} */ name) => html`<a key=${name}
        href=${link('nodes', name)}>${name}</a>`)}${pool.nodesOf.length > 120
        ? html`<span class="dim">and ${count(pool.nodesOf.length - 120)} more</span>` : ''}</p></section>`
        : ''
    }
    <${Editor} pool=${pool} />`;
}

/** @type {import('../parts/table.js').Column[]} */
const CONDITIONS = [
  { id: 'type', title: 'Type', value: (row) => row.type },
  {
    id: 'status',
    title: 'Status',
    value: (row) => row.status,
    cell: (row) =>
      html`<${State} tone=${row.status === 'True' ? 'good' : row.status === 'False' ? 'bad' : ''}
        sign=${row.status === 'True' ? '●' : row.status === 'False' ? '◆' : '?'}>${row.status}<//>`,
  },
  { id: 'reason', title: 'Reason', value: (row) => row.reason },
  {
    id: 'message',
    title: 'Message',
    value: (row) => row.message,
    cell: (row) => html`<span class="wrap">${row.message}</span>`,
  },
  { id: 'since', title: 'Since', value: (row) => row.since, cell: (row) => moment(row.since) },
];

/** The object as it is, and a copy of its spec to change: only what differs is sent, and first to a plan. @param {{pool: any}} props */
function Editor({ pool }) {
  const [text, setText] = useState(/** @type {string|null} */ (null));
  const [problem, setProblem] = useState('');
  const spec = pool.object?.spec;
  const preview = () => {
    let edited;
    try {
      edited = JSON.parse(text ?? '');
    } catch (mistake) {
      setProblem(mistake.message);
      return;
    }
    const patch = difference(spec, edited);
    if (patch === undefined) {
      setProblem('Nothing differs.');
      return;
    }
    const { apiVersion, kind } = pool.object;
    planFor({ patches: [{ apiVersion, kind, namespace: pool.namespace, name: pool.name, patch: { spec: patch } }] });
  };
  if (!pool.yaml && !spec) return null;
  return html`<section class="card"><h2>Object
      ${spec && text === null && html`<button class="more" disabled=${!may('editPools')}
        title=${may('editPools') ? 'change a copy and see what would happen' : whyNot('editPools')}
        onClick=${() => setText(JSON.stringify(spec, null, 2))}>Change …</button>`}
      <${CopyButton} text=${pool.yaml ?? ''} label="Copy YAML" title="YAML" /></h2>
    ${
      text === null
        ? html`<pre class="code" tabindex="0">${pool.yaml}</pre>`
        : html`
      <label class="unseen" for="spec">spec as JSON</label>
      <textarea id="spec" class="code" rows="18" spellcheck=${false} value=${text} onInput=${(
        /** @type {any} */ event,
      ) => {
        setText(event.target.value);
        setProblem('');
      }}></textarea>
      ${problem && html`<${Note} kind="error">${problem}<//>`}
      <p class="line"><button class="primary" onClick=${preview}>Preview</button>
        <button onClick=${() => setText(null)}>Discard</button>
        <span class="hint">Nothing is written: the preview shows what the change does, and only what you changed is sent.</span></p>`
    }</section>`;
}
