// The change of a what-if, piece by piece. Each piece is part of the address, so that it can be sent to a colleague.

import { html, useState } from '../core/html.js';
import { count } from '../core/format.js';
import { Icon } from './icons.js';
import { Note } from './notices.js';

const POLICIES = ['millpond', 'karpenter', 'cluster-autoscaler', 'scaling-advisor'];

/** @param {{change: any, set: (change: any) => void}} props */
export function ChangeEditor({ change, set }) {
  const without = (/** @type {string} */ key, /** @type {number} */ at) =>
    set({ ...change, [key]: change[key].filter((/** @type {any} */ _, /** @type {number} */ index) => index !== at) });
  const plus = (/** @type {string} */ key, /** @type {any} */ item) =>
    set({ ...change, [key]: [...(change[key] ?? []), item] });
  return html`<section class="card change" aria-labelledby="the-change"><h2 id="the-change">The change</h2>
    <ul class="pieces">
      ${(change.patches ?? []).map((/** @type {any} */ patch, /** @type {number} */ at) => html`<${Piece}
        key=${`p${at}`} sign="~" remove=${() => without('patches', at)}>
        <b>${patch.kind}/${patch.name}</b>
        <${PatchEditor} patch=${patch.patch}
          set=${(/** @type {any} */ next) => set({ ...change, patches: change.patches.map((/** @type {any} */ old, /** @type {number} */ index) => (index === at ? { ...old, patch: next } : old)) })} /><//>`)}
      ${(change.objects ?? []).map((/** @type {any} */ object, /** @type {number} */ at) => html`<${Piece}
        key=${`o${at}`} sign="+" remove=${() => without('objects', at)}>
        <b>${object.kind ?? '?'}/${object.metadata?.name ?? '?'}</b><//>`)}
      ${(change.remove ?? []).map((/** @type {string} */ name, /** @type {number} */ at) => html`<${Piece}
        key=${`r${at}`} sign="−" remove=${() => without('remove', at)}>node <b>${name}</b> goes<//>`)}
      ${(change.add ?? []).map((/** @type {any} */ add, /** @type {number} */ at) => html`<${Piece} key=${`a${at}`}
        sign="+" remove=${() => without('add', at)}>
        <b>${count(add.count)}</b> pods like <b>${add.like}</b><//>`)}
    </ul>
    <${AddOne} label="Remove a node" placeholder="node name" button="Remove"
      add=${(/** @type {string} */ name) => plus('remove', name)} />
    <${AddPods} add=${(/** @type {any} */ item) => plus('add', item)} />
    <${AddObject} add=${(/** @type {any} */ item) => plus('objects', item)} />
    <label class="field row"><input type="checkbox" checked=${Boolean(change.consolidate)}
      onChange=${(/** @type {any} */ event) => set({ ...change, consolidate: event.target.checked || undefined })} /> Take away what is not needed</label>
    <label class="field"><span>Planned by the rules of</span>
      <select value=${change.policy ?? 'millpond'}
        onChange=${(/** @type {any} */ event) => set({ ...change, policy: event.target.value === 'millpond' ? undefined : event.target.value })}>${POLICIES.map((policy) => html`<option key=${policy} value=${policy}>${policy}</option>`)}</select></label>
    <label class="field"><span>At another time</span>
      <input type="datetime-local" value=${localTime(change.now)}
        onChange=${(/** @type {any} */ event) => set({ ...change, now: event.target.value ? Math.floor(new Date(event.target.value).getTime() / 1000) : undefined })} /></label>
  </section>`;
}

/** @param {number|undefined} time */
function localTime(time) {
  if (!time) return '';
  const date = new Date(time * 1000);
  return new Date(date.getTime() - date.getTimezoneOffset() * 60_000).toISOString().slice(0, 16);
}

/** @param {{sign: string, remove: () => void, children: any}} props */
function Piece({ sign, remove, children }) {
  return html`<li><span class="sign" aria-hidden="true">${sign}</span><div>${children}</div>
    <button class="quiet" onClick=${remove} aria-label="take this out of the change">
    <${Icon} name="close" /></button></li>`;
}

/** A merge patch as text; a text that is no JSON is not planned. @param {{patch: any, set: (patch: any) => void}} props */
function PatchEditor({ patch, set }) {
  const [text, setText] = useState(JSON.stringify(patch, null, 2));
  const [problem, setProblem] = useState('');
  const edit = (/** @type {any} */ event) => {
    setText(event.target.value);
    try {
      const next = JSON.parse(event.target.value);
      setProblem('');
      set(next);
    } catch (mistake) {
      setProblem(mistake.message);
    }
  };
  return html`<textarea class="code" rows=${Math.min(14, text.split('\n').length)} aria-label="merge patch"
    aria-invalid=${String(Boolean(problem))} spellcheck=${false} value=${text} onInput=${edit}></textarea>
    ${problem && html`<${Note} kind="error">${problem}<//>`}`;
}

/** @param {{label: string, placeholder: string, button: string, add: (text: string) => void}} props */
function AddOne({ label, placeholder, button, add }) {
  const [text, setText] = useState('');
  return html`<form class="field" onSubmit=${(/** @type {Event} */ event) => {
    event.preventDefault();
    if (text.trim()) add(text.trim());
    setText('');
  }}>
    <label><span>${label}</span><span class="line">
      <input value=${text} placeholder=${placeholder} spellcheck=${false}
        onInput=${(/** @type {any} */ event) => setText(event.target.value)} />
      <button disabled=${!text.trim()}>${button}</button></span></label></form>`;
}

/** @param {{add: (item: {like: string, count: number}) => void}} props */
function AddPods({ add }) {
  const [like, setLike] = useState('');
  const [number, setNumber] = useState('10');
  const submit = (/** @type {Event} */ event) => {
    event.preventDefault();
    if (like.trim() && Number(number) > 0) add({ like: like.trim(), count: Number(number) });
    setLike('');
  };
  return html`<form class="field" onSubmit=${submit}><span id="add-pods">Add pods like</span>
    <span class="line"><input class="short" type="number" min="1" max="10000" aria-label="how many pods" value=${number}
      onInput=${(/** @type {any} */ event) => setNumber(event.target.value)} />
      <input value=${like} placeholder="namespace/pod" aria-labelledby="add-pods" spellcheck=${false}
        onInput=${(/** @type {any} */ event) => setLike(event.target.value)} />
        <button disabled=${!like.trim()}>Add</button></span></form>`;
}

/** @param {{add: (object: any) => void}} props */
function AddObject({ add }) {
  const [text, setText] = useState('');
  const [problem, setProblem] = useState('');
  const submit = (/** @type {Event} */ event) => {
    event.preventDefault();
    try {
      add(JSON.parse(text));
      setText('');
      setProblem('');
    } catch (mistake) {
      setProblem(mistake.message);
    }
  };
  return html`<details class="field"><summary>An object, as JSON</summary><form onSubmit=${submit}>
    <textarea class="code" rows="6" aria-label="object as JSON" spellcheck=${false} value=${text}
      onInput=${(/** @type {any} */ event) => setText(event.target.value)}></textarea>
    ${problem && html`<${Note} kind="error">${problem}<//>`}<button
      disabled=${!text.trim()}>Add</button></form></details>`;
}
