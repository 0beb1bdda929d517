// Starts the page: session, stream, and the page that the address names.

import { effect, html, render, untracked, useEffect, useState } from './core/html.js';
import { bearer, get } from './core/api.js';
import { useResource } from './core/resource.js';
import { route } from './core/router.js';
import { hasCode, me, start, whyNot } from './core/session.js';
import { run, stop } from './core/stream.js';
import { Frame } from './frame.js';
import { Boundary, Denied, Empty, Failed } from './parts/notices.js';
import { CatalogPage } from './pages/catalog.js';
import { CiPage } from './pages/ci.js';
import { DecisionPage } from './pages/decision.js';
import { GpusPage, HostsPage } from './pages/lists.js';
import { HealthPage } from './pages/health.js';
import { Login } from './pages/login.js';
import { NodePage } from './pages/node.js';
import { NodesPage } from './pages/nodes.js';
import { OverviewPage } from './pages/overview.js';
import { PendingPage } from './pages/pending.js';
import { PlanPage } from './pages/plan.js';
import { PoolPage } from './pages/pool.js';
import { PoolsPage } from './pages/pools.js';
import { TimelinePage } from './pages/timeline.js';

/** The page of a route: its title and what it draws. @param {import('./core/router.js').Route} here */
function pageOf({ page, parts }) {
  switch (page) {
    case 'overview':
      return ['Overview', html`<${OverviewPage} />`];
    case 'pools':
      return parts.length >= 3
        ? [parts[2], html`<${PoolPage} key=${parts.join('/')} id=${parts} />`]
        : ['Pools', html`<${PoolsPage} />`];
    case 'nodes':
      return parts.length
        ? [parts[0], html`<${NodePage} key=${parts[0]} name=${parts[0]} />`]
        : ['Nodes', html`<${NodesPage} />`];
    case 'pending':
      return ['Pending', html`<${PendingPage} open=${parts[0] ?? ''} />`];
    case 'plan':
      return ['What if', html`<${PlanPage} />`];
    case 'timeline':
      return ['Timeline', html`<${TimelinePage} />`];
    case 'decisions':
      return parts.length
        ? [parts[0], html`<${DecisionPage} key=${parts[0]} id=${parts[0]} />`]
        : ['Timeline', html`<${TimelinePage} />`];
    case 'hosts':
      return ['Hosts', html`<${HostsPage} />`];
    case 'gpus':
      return ['GPUs', html`<${GpusPage} />`];
    case 'ci':
      return ['CI', html`<${CiPage} tab=${parts[0] ?? 'requests'} />`];
    case 'catalog':
      return ['Catalogue', html`<${CatalogPage} />`];
    case 'health':
      return ['Health', html`<${HealthPage} />`];
    default:
      return [
        'Not found',
        html`<${Empty} title="There is no such page"
          kind="warning">The address names no page: choose one on the left, or press Ctrl-K.<//>`,
      ];
  }
}

/** Pages begin anew for another object; groups of waiting pods open inside their page. @param {import('./core/router.js').Route} here */
function keyOf({ page, parts }) {
  return page === 'pending' ? page : [page, ...parts].join('/');
}

function Inside() {
  const pending = useResource('/pending', { pending: (_, event) => event });
  const [title, page] = pageOf(route.value);
  useEffect(() => {
    document.title = `${title} · Millpond`;
  }, [title]);
  const waiting = pending.data ? (pending.data.groups?.length ?? pending.data.groups) : null;
  const isBarred = me.value?.can.view === false && route.value.page !== 'health';
  return html`<${Frame} waiting=${waiting}>${isBarred ? html`<${Denied} message=${whyNot('view')} />`
    : html`<${Boundary} key=${keyOf(route.value)}>${page}<//>`}<//>`;
}

function App() {
  const [problem, setProblem] = useState(/** @type {any} */ (null));
  const [isStarted, setStarted] = useState(false);
  useEffect(() => {
    const begin = () =>
      start()
        .catch(setProblem)
        .finally(() => setStarted(true));
    begin();
    // An address with a code that is opened in a tab which has the page already.
    const again = () => {
      if (hasCode()) begin();
    };
    addEventListener('hashchange', again);
    return () => removeEventListener('hashchange', again);
  }, []);
  // A server that was away at the start is asked until it answers.
  useEffect(() => {
    if (!problem || me.value) return undefined;
    const timer = setTimeout(
      () =>
        get('/me').then(
          (answer) => {
            me.value = answer;
            setProblem(null);
          },
          (again) => setProblem(again),
        ),
      2000,
    );
    return () => clearTimeout(timer);
  }, [problem]);
  if (!isStarted) return html`<p class="boot" role="status">Millpond is loading.</p>`;
  if (me.value) return html`<${Inside} />`;
  if (problem && bearer.value) return html`<main class="login"><${Failed} error=${problem} /></main>`;
  return html`<${Login} />`;
}

// The stream lives as long as the session.
effect(() => {
  const isIn = me.value !== null;
  untracked(() => {
    if (isIn) run();
    else stop();
  });
});

const root = document.getElementById('app');
if (root) {
  root.textContent = '';
  render(html`<${App} />`, root);
}
