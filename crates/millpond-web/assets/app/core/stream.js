// Server-sent events over `fetch`, since an EventSource cannot send the bearer. Resumes after a cut, and says how fresh the page is.

import { signal } from './html.js';
import { address, bearer, headers } from './api.js';

/** Comments come every 15 s: after two missing ones the connection is dead, whatever TCP says. */
const SILENCE = 35_000;
/** A server that restarts is back within seconds; more than 15 s between tries makes people reload. */
const LONGEST_WAIT = 15_000;

/**
 * @typedef {{phase: 'off'|'connecting'|'live'|'lost', since: number, retryAt: number|null, why: string}} Freshness
 */
export const freshness = signal(/** @type {Freshness} */ ({ phase: 'off', since: Date.now(), retryAt: null, why: '' }));
const TOPICS = 'nodes,pending,pools,overview,decision';
/** When the last event or comment came. */
export const lastHeard = signal(0);

/** @type {Map<string, Set<(data: any, id: string) => void>>} */
const listeners = new Map();
let lastId = '';
let abort = /** @type {AbortController|null} */ (null);
let attempts = 0;
let wake = () => {};
let seeded = () => {};
let hiding = /** @type {ReturnType<typeof setTimeout>|undefined} */ (undefined);
/** A tab that is not seen for longer gives its connection back: a browser has six for each server, over all tabs. */
const WHILE_HIDDEN = 60_000;
/** A page that reads nothing with a revision must not keep the stream waiting. */
const LONGEST_SEED_WAIT = 1500;

/**
 * Calls back for each event of a topic. Returns the function that ends it.
 * @param {string} topic
 * @param {(data: any, id: string) => void} listener
 */
export function listen(topic, listener) {
  if (!listeners.has(topic)) listeners.set(topic, new Set());
  listeners.get(topic)?.add(listener);
  return () => listeners.get(topic)?.delete(listener);
}

/** @param {string} topic @param {any} data @param {string} id */
function deliver(topic, data, id) {
  for (const listener of [...(listeners.get(topic) ?? [])]) listener(data, id);
}

/**
 * Splits a stream's text into events.
 * @param {(event: string, data: string, id: string|null) => void} emit
 * @returns {(text: string) => void}
 */
export function parser(emit) {
  let left = '';
  let event = '';
  let data = /** @type {string[]} */ ([]);
  let id = /** @type {string|null} */ (null);
  return (text) => {
    left += text;
    const lines = left.split(/\r\n|\n|\r(?!$)/);
    left = lines.pop() ?? '';
    for (const line of lines) {
      if (line === '') {
        if (data.length || event) emit(event || 'message', data.join('\n'), id);
        event = '';
        data = [];
        id = null;
        continue;
      }
      const at = line.indexOf(':');
      const field = at < 0 ? line : line.slice(0, at);
      const value = at < 0 ? '' : line.slice(at + 1).replace(/^ /, '');
      if (field === 'event') event = value;
      else if (field === 'data') data.push(value);
      else if (field === 'id') id = value;
    }
  };
}

/** @param {string} event @param {string} text @param {string|null} id */
function received(event, text, id) {
  if (id !== null) lastId = id;
  let data = null;
  try {
    data = text ? JSON.parse(text) : null;
  } catch {
    return;
  }
  deliver(event, data, lastId);
}

/** @param {Freshness['phase']} phase @param {string} [why] @param {number|null} [retryAt] */
function enter(phase, why = '', retryAt = null) {
  const since = freshness.value.phase === phase ? freshness.value.since : Date.now();
  freshness.value = { phase, since, retryAt, why };
}

/** The revision of the first answer that was read: the stream goes on from there. @param {string} revision */
export function seed(revision) {
  if (!lastId && revision) {
    lastId = revision;
    seeded();
  }
}

async function connectOnce() {
  abort = new AbortController();
  const controller = abort;
  const asked = { ...headers(), Accept: 'text/event-stream' };
  if (lastId) asked['Last-Event-ID'] = lastId;
  const watchdog = setInterval(() => {
    if (Date.now() - lastHeard.value > SILENCE) controller.abort();
  }, 1000);
  lastHeard.value = Date.now();
  try {
    const resumes = lastId !== '';
    const answer = await fetch(address(`/stream?topics=${TOPICS}`), {
      headers: asked,
      signal: controller.signal,
      cache: 'no-store',
    });
    if (!answer.ok || !answer.body) throw Object.assign(new Error(`HTTP ${answer.status}`), { code: answer.status });
    attempts = 0;
    enter('live');
    if (!resumes) deliver('resync', null, '');
    const reader = answer.body.pipeThrough(new TextDecoderStream()).getReader();
    const feed = parser(received);
    for (;;) {
      const { done, value } = await reader.read();
      if (done) return;
      lastHeard.value = Date.now();
      feed(value);
    }
  } finally {
    clearInterval(watchdog);
  }
}

/** Connects, and again after every cut, for as long as there is a session. */
export async function run() {
  enter('connecting');
  await new Promise((resolve) => {
    seeded = () => resolve(undefined);
    if (lastId) seeded();
    setTimeout(seeded, LONGEST_SEED_WAIT);
  });
  while (bearer.value) {
    let why = 'the server ended the connection';
    let code = 0;
    if (freshness.value.phase !== 'lost') enter('connecting');
    try {
      await connectOnce();
    } catch (problem) {
      code = problem.code ?? 0;
      why =
        code === 403 ? 'not allowed' : code ? `the server answers ${problem.message}` : 'no connection to the server';
    }
    if (!bearer.value) break;
    if (code === 401) {
      deliver('unauthorized', null, lastId);
      break;
    }
    await pause(why);
  }
  enter('off');
}

/** Waits longer after each failure; a visible tab or a network that is back ends the wait. @param {string} why */
async function pause(why) {
  const wait = Math.min(LONGEST_WAIT, 500 * 2 ** attempts) * (0.75 + Math.random() / 2);
  attempts = Math.min(attempts + 1, 8);
  enter('lost', why, Date.now() + wait);
  await new Promise((resolve) => {
    // A hidden tab waits until it is seen again.
    const timer = document.hidden ? undefined : setTimeout(resolve, wait);
    wake = () => {
      clearTimeout(timer);
      resolve(undefined);
    };
  });
}

/** Tries at once. */
export function retryNow() {
  wake();
}

/** Ends the stream. */
export function stop() {
  lastId = '';
  abort?.abort();
  wake();
}

addEventListener('online', retryNow);
addEventListener('offline', () => abort?.abort());
document.addEventListener('visibilitychange', () => {
  clearTimeout(hiding);
  if (document.hidden) hiding = setTimeout(() => abort?.abort(), WHILE_HIDDEN);
  else retryNow();
});
