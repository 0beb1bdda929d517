// Small marks: bars, badges, states. Colour is never alone: a letter, a pattern or a word is beside it.

import { html } from '../core/html.js';
import { known, percent, wholePercent } from '../core/format.js';

/**
 * A share as a bar with its number.
 * @param {{permille: number|null|undefined, title?: string, text?: string, tone?: string}} props
 */
export function Bar({ permille, title, text, tone = '' }) {
  const width = known(permille) ? `${Math.min(100, Math.max(0, Number(permille) / 10))}%` : '0%';
  return html`<span class="bar ${tone} ${known(permille) ? '' : 'unknown'}" title=${title ?? percent(permille)}>
    <span class="track" aria-hidden="true"><span class="fill" style=${{ width }}></span></span>
    <span class="number">${text ?? wholePercent(permille)}</span></span>`;
}

/** A share of the API. @param {{share: any, title?: string}} props */
export function ShareBar({ share, title }) {
  const words = share && known(share.permille) ? `${share.used} of ${share.total}` : 'not known';
  return html`<${Bar} permille=${share?.permille} title=${`${title ? `${title}: ` : ''}${words}`} />`;
}

const STATES = {
  r: ['ready', 'good', '●'],
  c: ['cordoned', 'warn', '◧'],
  s: ['starting', 'info', '◌'],
  d: ['draining', 'warn', '▨'],
  n: ['not ready', 'bad', '◆'],
};

/** @param {{letter: string}} props */
export function NodeState({ letter }) {
  const [word, tone, sign] = STATES[letter] ?? ['not known', '', '?'];
  return html`<span class="state ${tone}"><span class="sign" aria-hidden="true">${sign}</span>${word}</span>`;
}

/** @param {{tone?: string, sign?: string, title?: string, children: any}} props */
export function State({ tone = '', sign = '●', title, children }) {
  return html`<span class="state ${tone}" title=${title}>
    <span class="sign" aria-hidden="true">${sign}</span>${children}</span>`;
}

const DIALECTS = { karpenter: 'Karpenter', 'cluster-api': 'Cluster API', hosts: 'own hosts', ci: 'CI', gpu: 'GPU' };

/** @param {string} dialect */
export function dialectName(dialect) {
  return DIALECTS[dialect] ?? dialect;
}

/** @param {{children: any, title?: string, tone?: string}} props */
export function Badge({ children, title, tone = '' }) {
  return html`<span class="badge ${tone}" title=${title}>${children}</span>`;
}

/** Name and value pairs. @param {{items: Array<[string, any]|null|false>}} props */
export function Facts({ items }) {
  return html`<dl class="facts">${items.filter(Boolean).map((item) => {
    const [name, value] = /** @type {[string, any]} */ (item);
    return html`<div key=${name}><dt>${name}</dt><dd>${value}</dd></div>`;
  })}</dl>`;
}
