// Decisions as rows: the same on the overview, on a node and on the timeline.

import { html } from '../core/html.js';
import { now } from '../core/clock.js';
import { ago, known, moment, money } from '../core/format.js';
import { link } from '../core/router.js';

/** Kinds with their words, signs and colours; the sign is what is seen without colours. */
export const KINDS = {
  provision: ['provision', '+', 'kind-add'],
  consolidate: ['consolidate', '−', 'kind-save'],
  drift: ['drift', '~', 'kind-change'],
  expire: ['expire', '◷', 'kind-change'],
  repair: ['repair', '✚', 'kind-bad'],
  interrupt: ['interrupt', '!', 'kind-bad'],
  'scale-group': ['scale group', '±', 'kind-add'],
  'match-host': ['match host', '=', 'kind-add'],
  'grant-request': ['grant request', '✓', 'kind-add'],
  refuse: ['refuse', '✕', 'kind-bad'],
  'back-off': ['back off', '…', 'kind-bad'],
  advice: ['advice', 'i', 'kind-change'],
  human: ['by a user', '☞', 'kind-change'],
};

/** @param {string} kind */
export function kindOf(kind) {
  return KINDS[kind] ?? [kind, '•', 'kind-change'];
}

/** @param {{kind: string}} props */
export function Kind({ kind }) {
  const [word, sign, tone] = kindOf(kind);
  return html`<span class="kind-mark ${tone}"><span class="sign" aria-hidden="true">${sign}</span>${word}</span>`;
}

/** Outcome of a decision in a word. @param {any} decision */
export function outcome(decision) {
  return decision.failed ? 'failed' : decision.refused ? 'refused' : '';
}

/** A difference of cost; less is green, more is only a number. @param {{nanos: number|null|undefined}} props */
export function Delta({ nanos }) {
  if (!known(nanos)) return html`<span class="delta">?</span>`;
  if (Number(nanos) === 0) return html`<span class="delta dim">±$0</span>`;
  return html`<span class="delta ${Number(nanos) < 0 ? 'saves' : ''}">${money(nanos, { sign: true })}/h</span>`;
}

/** @param {{decisions: any[], label: string}} props */
export function DecisionList({ decisions, label }) {
  return html`<ol class="decisions" aria-label=${label}>${decisions.map(
    (decision) => html`<li key=${decision.id}>
    <time title=${moment(decision.at)}>${ago(decision.at, now.value)}</time>
    <${Kind} kind=${decision.kind} />
    <a href=${link('decisions', decision.id)}>${decision.sentence}</a>
    ${outcome(decision) && html`<span class="badge bad">${outcome(decision)}</span>`}
    ${known(decision.deltaPerHourNanos) && decision.deltaPerHourNanos !== 0 && html`<${Delta}
      nanos=${decision.deltaPerHourNanos} />`}
  </li>`,
  )}</ol>`;
}
