// One sentence first, then figures, what needs a user, and what was decided.

import { html, useMemo } from '../core/html.js';
import { count, known, money, percent, plural } from '../core/format.js';
import { link, query, setQuery } from '../core/router.js';
import { now } from '../core/clock.js';
import { reread, useResource } from '../core/resource.js';
import { Bar } from '../parts/bars.js';
import { Chart } from '../parts/chart.js';
import { DecisionList, kindOf } from '../parts/decisions.js';
import { Icon } from '../parts/icons.js';
import { Empty, Loaded } from '../parts/notices.js';

export function OverviewPage() {
  const overview = useResource('/overview', {
    // The event has no decisions: they come by themselves.
    overview: (data, event) => ({ ...data, ...event }),
    decision: (data, decision) => ({
      ...data,
      decisions: [decision, ...data.decisions.filter((/** @type {any} */ one) => one.id !== decision.id)]
        .sort((a, b) => b.at - a.at)
        .slice(0, 10),
    }),
  });
  return html`<${Loaded} of=${overview} title="Overview">${(/** @type {any} */ data) => html`
    <h1 class="headline" id="headline">${data.sentence}</h1>
    <${Tiles} data=${data} />
    ${data.pools === 0 && html`<${FirstSteps} />`}
    ${data.pools > 0 && html`<${CostAndNodes} decisions=${data.decisions} />`}
    <div class="halves">
      <section class="card" aria-labelledby="needs-you"><h2 id="needs-you">Needs you</h2>
        <${Findings} findings=${data.findings} /></section>
      <section class="card" aria-labelledby="last-decisions">
        <h2 id="last-decisions">Last decisions<a class="more" href=${link('timeline')}>All</a></h2>
        ${
          data.decisions.length
            ? html`<${DecisionList} decisions=${data.decisions} label="last decisions" />`
            : html`<p class="hint">None yet. A decision is written here when nodes are bought, replaced or removed, and when that is refused.</p>`
        }</section>
    </div>`}<//>`;
}

/** @param {{data: any}} props */
function Tiles({ data }) {
  const { nodes, pods } = data;
  const states = [
    ['ready', nodes.ready, 'good'],
    ['starting', nodes.starting, 'info'],
    ['leaving', nodes.leaving, 'warn'],
    ['not ready', nodes.notReady, 'bad'],
  ].filter(([, number]) => number);
  return html`<div class="tiles">
    <${Tile} href=${link('pending')} title="Pods that wait" figure=${count(pods.waiting)}
      tone=${pods.waiting ? 'warn' : ''}
      about=${pods.waiting ? `in ${plural(pods.groups, 'group')}, of ${count(pods.all)} pods` : `all ${count(pods.all)} have a place`} />
    <${Tile} href=${link('nodes')} title="Nodes" figure=${count(nodes.all)}
      about=${html`<span class="states">${states.map(([word, number, tone]) => html`<span key=${word}
        class="state ${tone}">${count(number)} ${word}</span>`)}</span>`} />
    <${Tile} href=${link('timeline')} title="Cost" figure=${data.cost.text} about=${data.costPerMonth} />
    <${Tile} href=${link('plan', [], { consolidate: '1' })} title="Above the bound"
      figure=${known(data.gapPermille) ? percent(data.gapPermille) : '?'}
      about=${data.bound ? `no plan costs less than ${data.bound.text}` : 'no bound is proved yet'} />
    <${Tile} href=${link('nodes')} title="In use" figure=${html`<span class="pair">
      <${Bar} permille=${data.use.cpu.permille} title="cpu requested" />
      <${Bar} permille=${data.use.memory.permille} tone="second" title="memory requested" /></span>`}
      about="of cpu and memory is requested" />
    <${Tile} href=${link('pools')} title="Limit reached first" figure=${data.limit ? percent(data.limit.permille) : '–'}
      about=${data.limit ? `pool ${data.limit.pool}: ${data.limit.text}` : 'no pool has a limit'} />
  </div>`;
}

/** @param {{href: string, title: string, figure: any, about: any, tone?: string}} props */
function Tile({ href, title, figure, about, tone = '' }) {
  return html`<a class="tile ${tone}" href=${href}><span class="title">${title}</span><strong>${figure}</strong>
    <span class="about">${about}</span></a>`;
}

/** Only links into this page are followed. @param {string|null|undefined} target */
function inside(target) {
  return target && /^\/(?!\/)/.test(target) ? target : undefined;
}

const SEVERITIES = { error: 'error', warning: 'warning', info: 'info' };

/** @param {{findings: any[]}} props */
function Findings({ findings }) {
  if (!findings.length) return html`<p class="hint good-news"><${Icon} name="check" /> Nothing does.</p>`;
  return html`<ul class="findings">${findings.map(
    (finding) => html`<li key=${finding.sentence} class=${finding.severity}>
    <${Icon} name=${SEVERITIES[finding.severity] ?? 'info'} label=${finding.severity} />
    ${inside(finding.link) ? html`<a href=${inside(finding.link)}>${finding.sentence}</a>`
      : html`<span>${finding.sentence}</span>`}</li>`,
  )}</ul>`;
}

const WINDOWS = [
  ['1h', 3600, '1 hour'],
  ['24h', 86_400, '24 hours'],
  ['7d', 604_800, '7 days'],
];

/** @param {{decisions: any[]}} props */
function CostAndNodes({ decisions }) {
  const chosen = WINDOWS.find(([id]) => id === query('window')) ?? WINDOWS[0];
  const minute = Math.floor(now.value / 60) * 60;
  const from = useMemo(() => minute - Number(chosen[1]), [chosen]);
  const cost = useResource(`/cost?points=600&from=${from}`, { overview: reread });
  const marks = useMemo(
    () => decisions.map((decision) => ({ at: decision.at, color: kindOf(decision.kind)[2], title: decision.sentence })),
    [decisions],
  );
  const lines = useMemo(() => costLines(cost.data), [cost.data]);
  return html`<section class="card" aria-labelledby="cost-and-nodes"><h2 id="cost-and-nodes">Cost and nodes
      <span class="switch" role="group" aria-label="window">${WINDOWS.map(([id, , name]) => html`<button key=${id}
        aria-pressed=${String(id === chosen[0])}
        onClick=${() => setQuery({ window: id })}>${name}</button>`)}</span></h2>
    <${Loaded} of=${cost}>${(/** @type {any} */ data) =>
      data.at.length > 1
        ? html`<${Chart} label="cost per hour and nodes" at=${data.at} lines=${lines} marks=${marks} />`
        : html`<p class="hint">The graph begins when this server starts; it has seen one moment so far.</p>`}<//></section>`;
}

/** @param {any} data @returns {import('../parts/chart.js').Line[]} */
export function costLines(data) {
  if (!data) return [];
  const dollars = data.perHourNanos.map((/** @type {number|null} */ nanos) => (nanos === null ? null : nanos / 1e9));
  return [
    {
      label: 'cost per hour',
      values: dollars,
      color: 'first',
      scale: 'dollars',
      text: (value) => money(value === null ? null : value * 1e9, { digits: 2, unpriced: data.unpriced }),
      tick: (value) => `$${value}`,
      fill: true,
    },
    {
      label: 'nodes',
      values: data.nodes,
      color: 'second',
      scale: 'nodes',
      text: (value) => (value === null ? '?' : count(value)),
      tick: (value) => (Number.isInteger(value) ? count(value) : ''),
    },
  ];
}

function FirstSteps() {
  return html`<${Empty} title="No pool yet"
    command=${['kubectl apply -f examples/pool.yaml', 'kubectl create deployment web --image=nginx --replicas=3']}>
    A pool says which nodes may be bought, and what for. With a pool and a Deployment, nodes come within seconds; this page shows why.<//>`;
}
