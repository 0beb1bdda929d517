// Ctrl-K: go to a page, a pool, a node, a waiting group or a decision by its name.

import { html, useEffect, useMemo, useRef, useState } from '../core/html.js';
import { get } from '../core/api.js';
import { link, open, poolLink } from '../core/router.js';
import { Dialog } from './dialog.js';
import { PAGES } from '../frame.js';

/** More than a screen of answers is answered better by a longer word. */
const MOST = 12;

/** @typedef {{kind: string, name: string, about: string, href: string}} Target */

/** @returns {Promise<Target[]>} */
async function targets() {
  const lists = await Promise.allSettled([get('/pools'), get('/nodes'), get('/pending'), get('/decisions?limit=100')]);
  const [pools, nodes, pending, decisions] = lists.map((list) => (list.status === 'fulfilled' ? list.value : null));
  return [
    ...(pools?.pools ?? []).map((/** @type {any} */ pool) => ({
      kind: 'pool',
      name: pool.name,
      about: pool.namespace || pool.dialect,
      href: poolLink(pool.id),
    })),
    ...(pending?.groups ?? []).map((/** @type {any} */ group) => ({
      kind: 'waiting',
      name: group.owner ?? group.names[0] ?? group.id,
      about: `${group.pods} pods, ${group.stateText}`,
      href: link('pending', group.id),
    })),
    ...(nodes?.columns.name ?? []).map((/** @type {string} */ name, /** @type {number} */ at) => ({
      kind: 'node',
      name,
      about: nodes.strings[nodes.columns.type[at]] ?? '',
      href: link('nodes', name),
    })),
    ...(decisions?.decisions ?? []).map((/** @type {any} */ decision) => ({
      kind: 'decision',
      name: decision.id,
      about: decision.sentence,
      href: link('decisions', decision.id),
    })),
  ];
}

/** @param {Target[]} all @param {string} text */
function best(all, text) {
  const words = text.toLowerCase().split(/\s+/).filter(Boolean);
  const scored = [];
  for (const target of all) {
    const name = target.name.toLowerCase();
    const whole = `${target.kind} ${name} ${target.about.toLowerCase()}`;
    if (!words.every((word) => whole.includes(word))) continue;
    const score = words.reduce(
      (sum, word) => sum + (name === word ? 0 : name.startsWith(word) ? 1 : name.includes(word) ? 2 : 3),
      0,
    );
    scored.push([score, target]);
  }
  scored.sort(([a], [b]) => a - b);
  return scored.slice(0, MOST).map(([, target]) => target);
}

/** @param {{close: () => void}} props */
export function Palette({ close }) {
  const [text, setText] = useState('');
  const [found, setFound] = useState(/** @type {Target[]} */ ([]));
  const [at, setAt] = useState(0);
  const field = useRef(/** @type {HTMLInputElement|null} */ (null));
  useEffect(() => {
    field.current?.focus();
    targets().then(setFound);
  }, []);
  const pages = useMemo(() => PAGES.map(([path, name]) => ({ kind: 'page', name, about: '', href: link(path) })), []);
  const shown = useMemo(() => best([...pages, ...found], text), [text, found]);
  const choose = (/** @type {Target|undefined} */ target) => {
    if (!target) return;
    close();
    open(target.href);
  };
  const onKey = (/** @type {KeyboardEvent} */ event) => {
    if (event.key === 'ArrowDown') setAt(Math.min(shown.length - 1, at + 1));
    else if (event.key === 'ArrowUp') setAt(Math.max(0, at - 1));
    else if (event.key === 'Enter') choose(shown[at]);
    else return;
    event.preventDefault();
  };
  return html`<${Dialog} title="Go to anything" close=${close} plain>
    <input class="palette" ref=${field} type="text" placeholder="Page, pool, node, group or decision" value=${text}
      role="combobox" aria-expanded="true"
      aria-label="go to" aria-controls="palette-list" aria-activedescendant=${shown[at] ? `palette-${at}` : undefined} autocomplete="off" spellcheck=${false}
      onInput=${(/** @type {any} */ event) => {
        setText(event.target.value);
        setAt(0);
      }} onKeyDown=${onKey} />
    <ul class="palette-list" id="palette-list" role="listbox" aria-label="found">
      ${shown.map(
        (
          target,
          index,
        ) => html`<li key=${target.href} id=${`palette-${index}`} role="option" aria-selected=${String(index === at)}
        onClick=${() => choose(target)} onMouseMove=${() => setAt(index)}><span class="kind">${target.kind}</span>
          <b>${target.name}</b><span class="about">${target.about}</span></li>`,
      )}
    </ul>
    ${!shown.length && html`<p class="hint">Nothing has this name.</p>`}
  <//>`;
}
