// Keys of the whole page. Pages add theirs while they are open; what is typed into a field is never a command.

import { useEffect, useRef } from './html.js';
import { go } from './router.js';

/** Second keys after `g`. */
export const PAGE_KEYS = {
  o: 'overview',
  p: 'pools',
  n: 'nodes',
  w: 'pending',
  f: 'plan',
  t: 'timeline',
  h: 'hosts',
  u: 'gpus',
  c: 'ci',
  k: 'catalog',
  s: 'health',
};

/** @type {Array<() => Record<string, () => void>>} */
const layers = [];
let isAfterG = false;

/** @param {EventTarget|null} target */
function isTyping(target) {
  return (
    target instanceof HTMLElement &&
    (target.isContentEditable ||
      (/^(INPUT|TEXTAREA|SELECT)$/.test(target.tagName) &&
        !(target instanceof HTMLInputElement && target.type === 'checkbox')))
  );
}

/**
 * Commands by key while the component is there; the youngest layer is asked first.
 * @param {Record<string, () => void>} commands
 */
export function useKeys(commands) {
  const latest = useRef(commands);
  latest.current = commands;
  useEffect(() => {
    const layer = () => latest.current;
    layers.push(layer);
    return () => {
      layers.splice(layers.indexOf(layer), 1);
    };
  }, []);
}

/** @param {string} key */
function commandOf(key) {
  for (let at = layers.length - 1; at >= 0; at -= 1) {
    const command = layers[at]()[key];
    if (command) return command;
  }
  return null;
}

document.addEventListener('keydown', (event) => {
  const isModal = document.querySelector('dialog[open]') !== null;
  if ((event.ctrlKey || event.metaKey) && event.key.toLowerCase() === 'k') {
    event.preventDefault();
    if (!isModal) commandOf('Ctrl-K')?.();
    return;
  }
  if (event.ctrlKey || event.metaKey || event.altKey || isModal) return;
  if (isTyping(event.target)) {
    if (event.key === 'Escape') /** @type {HTMLElement} */ (event.target).blur();
    return;
  }
  if (isAfterG) {
    isAfterG = false;
    if (PAGE_KEYS[event.key]) {
      event.preventDefault();
      go(PAGE_KEYS[event.key]);
    }
    return;
  }
  if (event.key === 'g') {
    isAfterG = true;
    setTimeout(() => {
      isAfterG = false;
    }, 1200);
    return;
  }
  const command = commandOf(event.key);
  if (command) {
    event.preventDefault();
    command();
  }
});
