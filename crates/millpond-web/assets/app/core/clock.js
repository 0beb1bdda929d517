// The time that ages are counted from: the server's, ticking once a second while the page is seen.

import { signal } from './html.js';

const local = () => Date.now() / 1000;

let offset = 0;

/** Seconds since 1970, by the server's clock. */
export const now = signal(local());

/** Takes the server's time from an answer. @param {number|null|undefined} time */
export function setServerTime(time) {
  if (typeof time !== 'number') return;
  offset = time - local();
  now.value = time;
}

setInterval(() => {
  if (!document.hidden) now.value = local() + offset;
}, 1000);
