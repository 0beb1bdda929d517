// Who is logged in. A session is a bearer in memory; sessionStorage carries it over a reload and ends with the tab.

import { batch, signal } from './html.js';
import { bearer, get, post, remove, whenUnauthorized } from './api.js';

const KEY = 'millpond.session';

/**
 * Answer of `GET /me`.
 * @typedef {{user: {name: string, groups: string[]}, mode: string, cluster: string, version: string,
 *   can: Record<string, boolean>, whyNot?: Record<string, string>}} Me
 */

export const me = signal(/** @type {Me|null} */ (null));
/** Why the login page is shown again. */
export const ended = signal('');

/** True if the session may do this. @param {string} action */
export function may(action) {
  return Boolean(me.value?.can?.[action]);
}

/** Why the session may not. @param {string} action */
export function whyNot(action) {
  return me.value?.whyNot?.[action] ?? (me.value?.mode === 'read-only' ? 'this server is read-only' : 'not allowed');
}

whenUnauthorized(() => forget('The session is over. Log in again.'));

/** @param {string} why */
function forget(why) {
  batch(() => {
    bearer.value = null;
    me.value = null;
    ended.value = why;
  });
  sessionStorage.removeItem(KEY);
}

/** @param {{code: string}|{token: string}} proof */
export async function login(proof) {
  const session = await post('/session', proof);
  bearer.value = session.session;
  sessionStorage.setItem(KEY, session.session);
  ended.value = '';
  me.value = await get('/me');
}

export async function logout() {
  await remove('/session').catch(() => {});
  forget('');
}

/**
 * A code in the fragment (`#code=…`) is used once; it leaves the address bar and the history at once.
 * @returns {string|null}
 */
function takeCode() {
  const found = /^#code=([\w-]+)$/.exec(location.hash);
  if (!found) return null;
  history.replaceState(null, '', location.pathname + location.search);
  return found[1];
}

/** True if the address has a code. */
export function hasCode() {
  return location.hash.startsWith('#code=');
}

/** Restores a session or uses the code of the address. */
export async function start() {
  const code = takeCode();
  if (code) {
    await login({ code }).catch((problem) => forget(`The code was refused: ${problem.message}`));
    return;
  }
  const kept = sessionStorage.getItem(KEY);
  if (!kept) return;
  bearer.value = kept;
  try {
    me.value = await get('/me');
  } catch (problem) {
    // A server that is away may come back; the session is judged then.
    if (problem.code === 401) return;
    ended.value = problem.message;
    throw problem;
  }
}
