// Requests to the server that this page came from, and to no other.

import { signal } from './html.js';

const BASE = '/ui/api/v1';

/** The session's bearer, held in memory; `session.js` keeps a copy for reloads. */
export const bearer = signal(/** @type {string|null} */ (null));

/** Listeners for an answer that says the session is over. */
const onUnauthorized = new Set();

/**
 * A refusal or failure, with the fields of a Kubernetes `Status`.
 */
export class ApiError extends Error {
  /**
   * @param {number} code HTTP status; 0 when no answer came.
   * @param {string} message
   * @param {{reason?: string, details?: any}} [more]
   */
  constructor(code, message, more = {}) {
    super(message);
    this.code = code;
    this.reason = more.reason ?? '';
    this.details = more.details ?? null;
  }

  /** True if the user may not do or see this. */
  get denied() {
    return this.code === 403;
  }
}

/** @param {() => void} listener */
export function whenUnauthorized(listener) {
  onUnauthorized.add(listener);
}

/** Headers of every request. @returns {Record<string, string>} */
export function headers() {
  return bearer.value ? { Authorization: `Bearer ${bearer.value}` } : {};
}

/** @param {string} path @returns {string} */
export function address(path) {
  return BASE + path;
}

/**
 * @param {string} method
 * @param {string} path below the API's root
 * @param {any} [body] sent as JSON
 * @param {AbortSignal} [abort]
 * @returns {Promise<Response>}
 */
export async function send(method, path, body, abort) {
  const init = { method, headers: headers(), signal: abort, cache: /** @type {RequestCache} */ ('no-store') };
  if (body !== undefined) {
    init.headers['Content-Type'] = 'application/json';
    init.body = JSON.stringify(body);
  }
  let answer;
  try {
    answer = await fetch(address(path), init);
  } catch (problem) {
    if (abort?.aborted) throw problem;
    throw new ApiError(0, 'The server does not answer.');
  }
  if (answer.ok) return answer;
  if (answer.status === 401 && bearer.value) onUnauthorized.forEach((listener) => listener());
  throw await refusal(answer);
}

/** @param {Response} answer @returns {Promise<ApiError>} */
async function refusal(answer) {
  const text = await answer.text().catch(() => '');
  try {
    const status = JSON.parse(text);
    return new ApiError(answer.status, status.message || answer.statusText, status);
  } catch {
    return new ApiError(answer.status, text || answer.statusText || `HTTP ${answer.status}`);
  }
}

/** @param {string} path @param {AbortSignal} [abort] @returns {Promise<any>} */
export async function get(path, abort) {
  return (await send('GET', path, undefined, abort)).json();
}

/** @param {string} path @param {any} [body] @param {AbortSignal} [abort] @returns {Promise<any>} */
export async function post(path, body, abort) {
  const answer = await send('POST', path, body, abort);
  return answer.status === 204 ? null : answer.json();
}

/** @param {string} path */
export async function remove(path) {
  await send('DELETE', path);
}
