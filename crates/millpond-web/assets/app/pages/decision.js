// One decision: what was chosen and why, what it cost, and what came of it.

import { html, useState } from '../core/html.js';
import { send } from '../core/api.js';
import { count, known, moment, money, plural, quoted, span } from '../core/format.js';
import { useResource } from '../core/resource.js';
import { useKeys } from '../core/keys.js';
import { go, link } from '../core/router.js';
import { Facts } from '../parts/bars.js';
import { CopyButton, save } from '../parts/copy.js';
import { Delta, Kind, outcome } from '../parts/decisions.js';
import { Loaded, Note } from '../parts/notices.js';

/** The decision so many before or after another: they are numbered in the order in which they were made. @param {string} id @param {number} by */
function beside(id, by) {
  const found = /^(.*?)(\d+)$/.exec(id);
  return found && Number(found[2]) + by > 0 ? `${found[1]}${Number(found[2]) + by}` : null;
}

/** @param {{id: string}} props */
export function DecisionPage({ id }) {
  const decision = useResource(`/decisions/${encodeURIComponent(id)}`, {
    decision: (data, event) => (event.id === id ? undefined : data),
  });
  const [older, newer] = [beside(id, -1), beside(id, 1)];
  useKeys({ '[': () => older && go('decisions', older), ']': () => newer && go('decisions', newer) });
  return html`<p class="crumbs"><a href="/timeline">Timeline</a>
      ${older && html`<a href=${link('decisions', older)} title="the decision before this one ([)">Older</a>`}
      ${newer && html`<a href=${link('decisions', newer)} title="the decision after this one (])">Newer</a>`}</p>
    <${Loaded} of=${decision} title=${id}>${(/** @type {any} */ data) => html`<${Decision} decision=${data} />`}<//>`;
}

/** @param {{decision: any}} props */
function Decision({ decision }) {
  const [problem, setProblem] = useState('');
  const download = async () => {
    try {
      const answer = await send('GET', `/decisions/${encodeURIComponent(decision.id)}/snapshot`);
      save(`${decision.id}.json`, await answer.blob(), 'application/json');
    } catch (refused) {
      setProblem(refused.message);
    }
  };
  const above =
    known(decision.boundNanos) && known(decision.costAfterNanos) && decision.boundNanos > 0
      ? decision.costAfterNanos / decision.boundNanos - 1
      : null;
  return html`<header class="title"><h1>${decision.sentence}</h1></header>
    <p class="line"><${Kind} kind=${decision.kind} />${outcome(decision) && html`<span
      class="badge bad">${outcome(decision)}</span>`}<span class="dim">${decision.id}</span>
      <span class="grow"></span>
      <button disabled=${!decision.hasSnapshot}
        title=${decision.hasSnapshot ? 'the same plan again: millpond plan -f FILE' : 'snapshots of the last 64 decisions are kept, and of those that failed'} onClick=${download}>Download the snapshot</button>
      <${CopyButton} text=${decision.command ?? `millpond history ${quoted(decision.id)}`}
        label="Copy as command" /></p>
    ${problem && html`<${Note} kind="error">${problem}<//>`}
    <${Facts} items=${[
      ['Time', moment(decision.at)],
      ['By', decision.by ?? '?'],
      ['Revision', html`<code>${decision.revision ?? '?'}</code>`],
      ['Cost before', `${money(decision.costBeforeNanos)}/h`],
      ['Cost after', `${money(decision.costAfterNanos)}/h`],
      ['Difference', html`<${Delta} nanos=${decision.deltaPerHourNanos} />`],
      ['Cheapest possible', known(decision.boundNanos) ? `${money(decision.boundNanos)}/h` : 'not proved'],
      above !== null && ['Above it', `${(above * 100).toFixed(2)} %`],
    ]} />
    <section class="card"><h2>Actions <span
      class="dim">${count(decision.actions.length + (decision.moreActions ?? 0))}</span></h2>
      ${decision.actions.length ? html`<ol
        class="actions">${decision.actions.map((/** @type {any} */ action, /** @type {number} */ at) => html`<${Action}
        key=${at} action=${action} />`)}</ol>`
        : html`<p class="hint">Nothing was done.</p>`}</section>
    ${decision.unplaced?.length ? html`<section class="card"><h2>Left without a place</h2>
      <ul class="plain-list">${decision.unplaced.map((/** @type {any} */ row, /** @type {number} */ at) => html`<li
        key=${at}>
      <b>${plural(row.pods, 'pod')}</b> ${row.sentence}</li>`)}</ul></section>` : ''}
    ${decision.podsOf?.length ? html`<section class="card"><h2>Pods</h2>
      <p class="names">${decision.podsOf.map((/** @type {string} */ pod) => html`<a key=${pod}
        href=${link('timeline', [], { object: `pod/${pod}` })}>${pod}</a>`)}${decision.morePods
      ? html`<span class="dim">and ${count(decision.morePods)} more</span>` : ''}</p></section>` : ''}`;
}

/** Names of pods beside an action. */
const SHOWN = 12;
const STEPS = [
  ['created', 'created'],
  ['launched', 'launched'],
  ['registered', 'registered'],
  ['ready', 'ready'],
  ['leaving', 'drain began'],
  ['drained', 'drained'],
  ['gone', 'gone'],
];

/** @param {{action: any}} props */
function Action({ action }) {
  const facts = [
    action.instanceType,
    action.zone,
    action.capacityType,
    known(action.priceNanos) && `${money(action.priceNanos)}/h`,
  ]
    .filter(Boolean)
    .join(' · ');
  const node = action.node ?? (/^Node(Claim)?$/.test(action.object.kind) ? action.object.name : null);
  return html`<li><p><span class="verb">${action.verb}</span> ${action.object.kind} ${node
    ? html`<a href=${link('nodes', node)}>${action.object.name}</a>` : html`<b>${action.object.name}</b>`}
      ${' '}${action.pool && html`<span class="dim">pool ${action.pool}</span>`} <span class="dim">${facts}</span></p>
    ${action.reason && html`<p class="reason">${action.reason}</p>`}
    <${Life} outcome=${action.outcome ?? {}} />
    ${action.pods?.length ? html`<p
      class="names">${action.pods.slice(0, SHOWN).map((/** @type {string} */ pod) => html`<span
      key=${pod}>${pod}</span>`)}${action.pods.length > SHOWN || action.morePods
      ? html`<span class="dim">and ${count(Math.max(0, action.pods.length - SHOWN) + (action.morePods ?? 0))} more</span>` : ''}</p>` : ''}</li>`;
}

/** Steps with the time since the one before. @param {{outcome: any}} props */
function Life({ outcome }) {
  const seen = STEPS.filter(([key]) => known(outcome[key]));
  if (!seen.length && !outcome.failed) return html`<p class="hint">No outcome yet.</p>`;
  return html`<ol class="life">${seen.map(([key, word], at) => html`<li key=${key} title=${moment(outcome[key])}>
    <i></i>${word}<span class="dim">${at ? `+${span(outcome[key] - outcome[seen[at - 1][0]])}` : moment(outcome[key]).slice(11)}</span></li>`)}
    ${outcome.failed && html`<li class="bad"><i></i>failed<span>${outcome.failed}</span></li>`}</ol>`;
}
