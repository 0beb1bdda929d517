// The change of a what-if as part of the address: short ones whole, long ones by a number that lives as long as the tab.

import { link, open } from './router.js';

/** Servers refuse request lines that are much longer. */
const LONGEST = 4000;

/** @type {Map<string, any>} */
const kept = new Map();

/** @param {any} change @returns {string} */
export function toQuery(change) {
  const text = JSON.stringify(change);
  if (text.length <= LONGEST) return text;
  const name = `@${kept.size + 1}`;
  kept.set(name, change);
  return name;
}

/** @param {string} text @returns {any} an empty change, if the text is cut off or its tab is closed */
export function fromQuery(text) {
  if (text.startsWith('@')) return kept.get(text) ?? {};
  try {
    return text ? JSON.parse(text) : {};
  } catch {
    return {};
  }
}

/** Opens the page that plans a change. @param {any} change the body of `POST /what-if` */
export function planFor(change) {
  open(link('plan', [], { change: toQuery(change) }));
}
