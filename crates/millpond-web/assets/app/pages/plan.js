// What if: a change on the left, the plan that follows on the right, and a button that does exactly this plan.

import { html, useEffect, useRef, useState } from '../core/html.js';
import { post } from '../core/api.js';
import { fromQuery, toQuery } from '../core/change.js';
import { query, setQuery } from '../core/router.js';
import { ChangeEditor } from '../parts/change.js';
import { Empty, Note } from '../parts/notices.js';
import { PlanResult } from '../parts/plan.js';

/** Typing stops for this long before a plan is asked for. */
const AFTER_TYPING = 300;
/** A plan of this session is under way: it is asked for again then. */
const WHEN_BUSY = 1000;

/** The change of the address: the body of `POST /what-if`. @returns {any} */
function changeOf() {
  const change = fromQuery(query('change'));
  return query('consolidate') ? { ...change, consolidate: true } : change;
}

/** @param {any} change */
function isNothing(change) {
  return (
    !['objects', 'patches', 'remove', 'add'].some((key) => change[key]?.length) &&
    !change.consolidate &&
    !change.now &&
    !change.policy
  );
}

export function PlanPage() {
  const text = query('change') + query('consolidate');
  const change = changeOf();
  const [answer, setAnswer] = useState(/** @type {any} */ (null));
  const [problem, setProblem] = useState(/** @type {any} */ (null));
  const [isBusy, setBusy] = useState(false);
  const [applied, setApplied] = useState(/** @type {any} */ (null));
  const [difference, setDifference] = useState(/** @type {any[]|null} */ (null));
  const isFirst = useRef(true);

  useEffect(() => {
    setApplied(null);
    setDifference(null);
    const asked = changeOf();
    if (isNothing(asked)) {
      setAnswer(null);
      setProblem(null);
      return undefined;
    }
    const abort = new AbortController();
    const ask = async () => {
      setBusy(true);
      try {
        setAnswer(await post('/what-if', asked, abort.signal));
        setProblem(null);
      } catch (refused) {
        if (abort.signal.aborted) return;
        if (refused.code === 429) {
          timer = setTimeout(ask, WHEN_BUSY);
          return;
        }
        setAnswer(null);
        setProblem(refused);
      }
      setBusy(false);
    };
    let timer = setTimeout(ask, isFirst.current ? 0 : AFTER_TYPING);
    isFirst.current = false;
    return () => {
      clearTimeout(timer);
      abort.abort();
    };
  }, [text]);

  const apply = async () => {
    setBusy(true);
    try {
      setApplied(await post(`/what-if/${encodeURIComponent(answer.id)}/apply`));
      setDifference(null);
      setProblem(null);
    } catch (refused) {
      if (refused.code === 409 && refused.details?.whatIf) {
        setDifference(refused.details.difference ?? []);
        setAnswer(refused.details.whatIf);
      } else setProblem(refused);
    }
    setBusy(false);
  };
  const set = (/** @type {any} */ next) => setQuery({ consolidate: '', change: isNothing(next) ? '' : toQuery(next) });
  return html`<header class="title"><h1>What if</h1>
    <p class="sentence">A change is planned on a copy of the cluster. Nothing is written until you apply it.</p></header>
    <div class="what-if">
      <${ChangeEditor} change=${change} set=${set} />
      <div class="outcome" aria-busy=${String(isBusy)} aria-live="polite">
        ${problem && html`<${Note} kind="error">${problem.message}<//>`}
        ${applied && html`<section class="card"><h2>Applied</h2><p class="lead">${applied.sentence}</p>
          <ol class="steps">${applied.applied.map((/** @type {any} */ step, /** @type {number} */ at) => html`<li
            key=${at}>${step.sentence}</li>`)}</ol></section>`}
        ${
          difference &&
          html`<section class="card conflict" role="alert"><h2>The cluster has moved on: nothing was written</h2>
          <p>The plan below is made anew. It differs from the one that you saw:</p>
          <ul class="plan-groups">${difference.map((line, at) => html`<li key=${at}>
            <span class="sign">${line.sign}</span><span>${line.sentence}</span></li>`)}</ul></section>`
        }
        ${
          answer && !applied
            ? html`<${PlanResult} answer=${answer} apply=${apply} isBusy=${isBusy} />`
            : !problem &&
              !applied &&
              html`<${Empty} title=${isBusy ? 'Planning …' : 'No change yet'}
                command=${isBusy ? [] : 'millpond plan --consolidate'}>
            ${isBusy ? 'The planner works on a copy of the cluster.' : 'Say on the left what changes: nodes that go, pods that come, a field of a pool. Or ask what would be taken away now.'}<//>`
        }
      </div>
    </div>`;
}
