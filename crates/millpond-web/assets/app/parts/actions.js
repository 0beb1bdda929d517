// Actions on one object: what would happen first, and then exactly that.

import { html, useEffect, useState } from '../core/html.js';
import { post } from '../core/api.js';
import { may, whyNot } from '../core/session.js';
import { Dialog } from './dialog.js';
import { Note } from './notices.js';

/** Verbs with their buttons and the right that they need. */
const VERBS = {
  cordon: ['Cordon', 'cordon'],
  uncordon: ['Uncordon', 'cordon'],
  drain: ['Drain', 'drain'],
  hold: ['Hold', 'hold'],
  release: ['Release the hold', 'hold'],
  delete: ['Remove', 'deleteNode'],
};

/** @param {string} verb */
export function mayDo(verb) {
  return may(VERBS[verb][1]);
}

/** A button that opens the preview of an action. @param {{verb: string, choose: (verb: string) => void, hint?: string}} props */
export function ActionButton({ verb, choose, hint }) {
  const [name, right] = VERBS[verb];
  const isAllowed = may(right);
  return html`<button disabled=${!isAllowed} title=${isAllowed ? hint : whyNot(right)}
    onClick=${() => choose(verb)}>${name} …</button>`;
}

/**
 * The preview of an action, and the button that does it.
 * @param {{verb: string, object: string, close: () => void, done?: () => void}} props
 */
export function ActionDialog({ verb, object, close, done }) {
  const [preview, setPreview] = useState(/** @type {any} */ (null));
  const [result, setResult] = useState(/** @type {any} */ (null));
  const [problem, setProblem] = useState('');
  const [isBusy, setBusy] = useState(false);
  useEffect(() => {
    post('/actions', { verb, object, dryRun: true }).then(setPreview, (refused) => setProblem(refused.message));
  }, [verb, object]);
  const act = async () => {
    setBusy(true);
    try {
      setResult(await post('/actions', { verb, object, dryRun: false, uid: preview.uid }));
      done?.();
    } catch (refused) {
      setProblem(refused.message);
    } finally {
      setBusy(false);
    }
  };
  const shown = result ?? preview;
  const name = object.slice(object.indexOf('/') + 1);
  return html`<${Dialog} title=${`${VERBS[verb][0]}: ${name}`} close=${close}>
    ${!shown && !problem && html`<p class="loading" role="status">Looking at what would happen …</p>`}
    ${problem && html`<${Note} kind="error">${problem}<//>`}
    ${
      shown &&
      html`<p class="lead">${shown.sentence}</p>
      <ol class="steps">${shown.steps.map((/** @type {any} */ step, /** @type {number} */ at) => html`<li
        key=${at}>${step.sentence}</li>`)}</ol>
      <${MovedPods} pods=${shown.pods ?? []} />`
    }
    ${result && html`<${Note} kind="check">Done.<//>`}
    <p class="line end">
      <button onClick=${close}>${result ? 'Close' : 'Cancel'}</button>
      ${!result && html`<button class="primary ${verb === 'delete' || verb === 'drain' ? 'danger' : ''}"
        disabled=${!preview || isBusy || !mayDo(verb) || Boolean(problem)} onClick=${act}>${VERBS[verb][0]}</button>`}
    </p><//>`;
}

/** More rows than are read before a button is pressed only slow the dialog. */
const MOST_PODS = 50;

/** Where each pod goes. @param {{pods: any[]}} props */
export function MovedPods({ pods }) {
  if (!pods.length) return null;
  const stuck = pods.filter((pod) => !pod.to);
  const ordered = [...stuck, ...pods.filter((pod) => pod.to)];
  return html`<table class="plain moved" aria-label="pods that move"><thead><tr><th scope="col">Pod</th>
    <th scope="col">Goes to</th></tr></thead>
    <tbody>${ordered.slice(0, MOST_PODS).map(
      (pod) => html`<tr key=${pod.pod}><td>${pod.pod}</td>
      <td class=${pod.to ? '' : 'bad'}>${pod.to ?? html`<span
        class="wrap">no place: ${pod.why ?? 'not known why'}</span>`}</td></tr>`,
    )}</tbody></table>
    ${ordered.length > MOST_PODS && html`<p class="hint">and ${ordered.length - MOST_PODS} more</p>`}`;
}
