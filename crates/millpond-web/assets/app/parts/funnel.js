// Which instance types are left, and which rule took the others.

import { html } from '../core/html.js';
import { count, known } from '../core/format.js';

/** @param {{all: number|null, steps: any[], label: string}} props */
export function Funnel({ all, steps, label }) {
  const most = Math.max(1, all ?? 0, ...steps.map((step) => (step.typesLeft ?? 0) + (step.typesRemoved ?? 0)));
  const hasOffers = steps.some((step) => known(step.offersLeft));
  return html`<table class="funnel" aria-label=${label}>
    <thead><tr><th scope="col">Rule</th><th scope="col">About</th><th scope="col" class="right">Types out</th>
      <th scope="col" class="right">Left</th><th scope="col">
      <span class="unseen">Share</span></th>${hasOffers && html`<th scope="col"
        class="right">Offers left</th>`}</tr></thead>
    <tbody>
      ${all !== null && all !== undefined && html`<tr class="dim"><td>all types</td><td></td><td></td>
        <td class="right">${count(all)}</td><td>
        <${Width} part=${all} of=${most} /></td>${hasOffers && html`<td></td>`}</tr>`}
      ${steps.map(
        (step, at) => html`<tr key=${at} class=${step.typesLeft === 0 ? 'last' : ''}>
        <td>${step.rule}</td><td class="wrap"><code>${step.about}</code></td>
          <td class="right">${step.typesRemoved ? `−${count(step.typesRemoved)}`
          : html`<span class="dim">0</span>`}</td>
        <td class="right"><b>${count(step.typesLeft)}</b></td><td>
          <${Width} part=${step.typesLeft ?? 0} of=${most} /></td>${hasOffers && html`<td
            class="right">${count(step.offersLeft)}</td>`}</tr>`,
      )}
    </tbody></table>`;
}

/** @param {{part: number, of: number}} props */
function Width({ part, of }) {
  return html`<span class="share" aria-hidden="true"><span style=${{ width: `${(100 * part) / of}%` }}></span></span>`;
}
