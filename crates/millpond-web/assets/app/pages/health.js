// Is Millpond itself well: who leads, what is synced, who looks, what may you do.

import { html } from '../core/html.js';
import { now } from '../core/clock.js';
import { age, count, moment } from '../core/format.js';
import { reread, useResource } from '../core/resource.js';
import { me, whyNot } from '../core/session.js';
import { Facts, State } from '../parts/bars.js';
import { Loaded } from '../parts/notices.js';

const RIGHTS = [
  ['view', 'see nodes, pods and pools'],
  ['cordon', 'cordon nodes'],
  ['drain', 'drain nodes'],
  ['hold', 'hold nodes'],
  ['deleteNode', 'remove nodes'],
  ['editPools', 'change pools'],
  ['decisions', 'read decisions'],
];

export function HealthPage() {
  const health = useResource('/health', { overview: reread });
  return html`<h1>Health</h1><${Loaded} of=${health}>${(/** @type {any} */ data) => html`
    <${Facts} items=${[
      ['Version', data.version],
      ['Kubernetes', me.value?.kubernetes ?? '?'],
      ['Mode', data.mode],
      ['Leads', data.leads === null ? '?' : data.leads ? 'yes' : 'no'],
      ['Synced', data.synced === null ? '?' : data.synced ? 'yes' : 'no'],
      ['Runs for', html`<span title=${moment(data.startedAt)}>${age(data.startedAt, now.value)}</span>`],
      ['Pages that watch', count(data.streams)],
      ['Sessions', count(data.sessions)],
      ['Decisions kept', count(data.decisions)],
    ]} />
    <div class="halves">
      <section class="card"><h2>Checks</h2>
        <ul class="checks">${data.checks.map((/** @type {any} */ check) => html`<li key=${check.name}>
        <${State} tone=${check.ok === null ? '' : check.ok ? 'good' : 'bad'}
          sign=${check.ok === null ? '?' : check.ok ? '●' : '◆'}>${check.name}<//>
        <span>${check.sentence}</span></li>`)}</ul></section>
      <section class="card"><h2>What you may do</h2><ul class="checks">${RIGHTS.map(([right, name]) => {
        const can = me.value?.can[right];
        return html`<li key=${right}><${State} tone=${can ? 'good' : ''} sign=${can ? '●' : '–'}>${name}<//>
          <span class="dim">${can ? 'yes' : whyNot(right)}</span></li>`;
      })}</ul></section>
    </div>`}<//>`;
}
