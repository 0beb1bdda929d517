// A plan: the headline, what is done and why, and everything that it touches.

import { html, useState } from '../core/html.js';
import { count, plural } from '../core/format.js';
import { may, whyNot } from '../core/session.js';
import { MovedPods } from './actions.js';
import { Bar } from './bars.js';
import { CopyButton, save } from './copy.js';
import { Note } from './notices.js';

const SIGNS = { '+': ['+', 'added'], '-': ['−', 'removed'], '~': ['~', 'replaced'] };

/** @param {{answer: any, apply: () => void, isBusy: boolean}} props */
export function PlanResult({ answer, apply, isBusy }) {
  const [tab, setTab] = useState('actions');
  const changed = answer.diff ?? [];
  const moved = answer.removes ?? [];
  const tabs = [
    ['actions', 'Actions', answer.groups.length],
    ['pods', 'Pods', moved.reduce((/** @type {number} */ sum, /** @type {any} */ row) => sum + row.pods.length, 0)],
    ['objects', 'Objects', changed.length],
    ['limits', 'Limits', (answer.limits ?? []).length],
    ['json', 'JSON', null],
  ];
  const isAllowed = answer.canApply && (may('editPools') || may('deleteNode'));
  const why = answer.canApply
    ? isAllowed
      ? undefined
      : whyNot('editPools')
    : (answer.whyNot ?? 'this plan cannot be applied');
  return html`<section class="card plan" aria-labelledby="headline">
    <h2 id="headline" class="headline">${answer.headline}</h2>
    <p class="dim">plan <code>${answer.id}</code> of revision <code>${answer.revision}</code></p>
    <div class="tabs" role="tablist" aria-label="parts of the plan" onKeyDown=${(/** @type {any} */ event) =>
      walkTabs(
        event,
        tabs.map(([id]) => id),
        tab,
        setTab,
      )}>
      ${tabs.map(([id, name, number]) => html`<button key=${id} role="tab" id=${`tab-${id}`}
        aria-selected=${String(tab === id)} aria-controls="tab-panel" tabindex=${tab === id ? 0 : -1}
        onClick=${() => setTab(id)}>${name}${number !== null
        ? html` <span class="dim">${count(number)}</span>` : ''}</button>`)}</div>
    <div role="tabpanel" id="tab-panel" aria-labelledby=${`tab-${tab}`} tabindex="0">
      ${tab === 'actions' && html`<${Groups} groups=${answer.groups} plan=${answer.plan} />`}
      ${tab === 'pods' && html`<${Removed} rows=${moved} />`}
      ${tab === 'objects' && html`<${Objects} changes=${changed} />`}
      ${tab === 'limits' && html`<${Limits} limits=${answer.limits ?? []} />`}
      ${tab === 'json' && html`<pre class="code">${JSON.stringify(answer.plan, null, 2)}</pre>`}
    </div>
    ${why && html`<${Note} kind="info">${why}<//>`}
    <p class="line"><button class="primary" disabled=${!isAllowed || isBusy} title=${why}
      onClick=${apply}>Apply this plan</button>
      ${answer.command && html`<${CopyButton} text=${answer.command} label="Copy as command" />`}
      <button class="quiet" onClick=${() => save(`${answer.id}.json`, JSON.stringify(answer.plan, null, 2), 'application/json')}>Save as JSON</button></p>
  </section>`;
}

/** Arrow keys change the tab, as the pattern of WAI-ARIA has it. @param {KeyboardEvent} event @param {string[]} ids @param {string} tab @param {(id: string) => void} set */
function walkTabs(event, ids, tab, set) {
  const step = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
  if (!step) return;
  const next = ids[(ids.indexOf(tab) + step + ids.length) % ids.length];
  set(next);
  requestAnimationFrame(() => document.getElementById(`tab-${next}`)?.focus());
}

/** @param {{groups: any[], plan: any}} props */
function Groups({ groups }) {
  if (!groups.length)
    return html`<p class="hint">The plan does nothing: everything has its place, and nothing cheaper was found.</p>`;
  return html`<ul class="plan-groups">${groups.map((group, at) => {
    const [sign, word] = SIGNS[group.sign] ?? [group.sign, ''];
    return html`<li key=${at} class=${word}><span class="sign" aria-label=${word}>${sign}</span><div>
      <b>${group.sentence}</b>
      ${group.pods ? html` <span class="dim">${plural(group.pods, 'pod')}</span>` : ''}${group.reason && html`<p>${group.reason}</p>`}</div></li>`;
  })}</ul>`;
}

/** @param {{rows: any[]}} props */
function Removed({ rows }) {
  if (!rows.length) return html`<p class="hint">No pod is moved.</p>`;
  return rows.map(
    (row) => html`<section key=${row.node} class="removed"><h3>${row.node}</h3>
    ${row.refused && html`<${Note} kind="error">${row.refused}<//>`}<${MovedPods} pods=${row.pods} /></section>`,
  );
}

/** @param {{changes: any[]}} props */
function Objects({ changes }) {
  if (!changes.length) return html`<p class="hint">No object is changed: nodes come and go by themselves.</p>`;
  return changes.map(
    (
      change,
    ) => html`<section key=${`${change.object.kind}/${change.object.name}`}>
      <h3>${change.object.kind}/${change.object.name}</h3>
    <table class="plain diff" aria-label="changed fields"><thead><tr><th scope="col">Field</th>
      <th scope="col">Before</th><th scope="col">After</th></tr></thead>
    <tbody>${change.fields.map((/** @type {any} */ field) => html`<tr key=${field.path}><td>
      <code>${field.path}</code></td><td><del>${field.before ?? 'not set'}</del></td><td>
      <ins>${field.after ?? 'not set'}</ins></td></tr>`)}</tbody></table></section>`,
  );
}

/** @param {{limits: any[]}} props */
function Limits({ limits }) {
  if (!limits.length) return html`<p class="hint">No pool that the plan touches has a limit.</p>`;
  return html`<ul class="limits">${limits.map(
    (
      limit,
    ) => html`<li key=${`${limit.pool}/${limit.resource}`}><span>${limit.pool}: ${limit.resource}</span>
      <${Bar} permille=${limit.permille} title=${`${limit.after} of ${limit.limit}`} />
    <span class="dim">${limit.before} → <b>${limit.after}</b> of ${limit.limit}</span></li>`,
  )}</ul>`;
}
