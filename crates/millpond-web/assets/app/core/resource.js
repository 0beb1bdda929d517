// What pages read: a path of the API as a signal that stays true while the page is open.

import { signal, useEffect, useMemo } from './html.js';
import { get } from './api.js';
import { setServerTime } from './clock.js';
import { listen, seed } from './stream.js';

/** Events come up to four times a second; what is read again whole needs that less often. */
const AT_MOST_EVERY = 1000;

/** Answers whose revision is the server's newest; a decision has the one that it was made of. */
const STATE = /^\/(overview|nodes|pools|pending)/;

/**
 * @typedef {{state: 'loading'|'ready'|'denied'|'failed', data: any, error: any}} Loaded
 */
/**
 * For each topic: the data after an event, or `undefined` if it must be read again.
 * @typedef {Record<string, (data: any, event: any) => any>} Topics
 */

/** For topics whose event is the whole answer. @type {(data: any, event: any) => any} */
export const replace = (_, event) => event;
/** For topics after which the path is read again. */
export const reread = () => undefined;

/**
 * Reads a path and follows its topics while the component is there.
 * @param {string|null} path `null` reads nothing
 * @param {Topics} [topics]
 * @param {(answer: any) => any} [convert] from the answer to what the page keeps
 * @returns {Loaded & {reload: () => void}}
 */
export function useResource(path, topics = {}, convert = (answer) => answer) {
  const store = useMemo(() => createStore(path, topics, convert), [path]);
  useEffect(() => store.open(), [store]);
  return { ...store.loaded.value, reload: store.reload };
}

/** True if revision `a` is of the same server as `b` and not after it. @param {string} a @param {string} b */
export function isCovered(a, b) {
  const [serverA, numberA] = (a ?? '').split('-');
  const [serverB, numberB] = (b ?? '').split('-');
  return serverA === serverB && Number(numberA) <= Number(numberB);
}

/** @param {string|null} path @param {Topics} topics @param {(answer: any) => any} convert */
function createStore(path, topics, convert) {
  const loaded = signal(/** @type {Loaded} */ ({ state: 'loading', data: null, error: null }));
  let running = /** @type {AbortController|null} */ (null);
  let early = /** @type {Array<{topic: string, event: any, id: string}>} */ ([]);
  let readAt = 0;
  let timer = /** @type {ReturnType<typeof setTimeout>|null} */ (null);

  async function read() {
    if (path === null || running) return;
    const mine = new AbortController();
    running = mine;
    early = [];
    readAt = Date.now();
    try {
      const answer = await get(path, mine.signal);
      setServerTime(answer?.now);
      if (STATE.test(path)) seed(answer?.revision);
      loaded.value = { state: 'ready', data: convert(answer), error: null };
    } catch (error) {
      if (mine.signal.aborted) return;
      // A failed refresh keeps what was seen: the frame says how old it is.
      const kept = error.denied || error.code === 404 ? null : loaded.value.data;
      const state = error.denied ? 'denied' : kept ? 'ready' : 'failed';
      loaded.value = { state, data: kept, error };
      // No answer at all, or not yet: asked again, since no event will say that it may be.
      if (error.code === 503 || error.code === 0) later();
    } finally {
      if (running === mine) running = null;
    }
    for (const { topic, event, id } of early.splice(0)) take(topic, event, id);
  }

  /** @param {string} topic @param {any} event @param {string} id */
  function take(topic, event, id) {
    if (running) {
      early.push({ topic, event, id });
      return;
    }
    const { data } = loaded.value;
    if (data === null || topic === 'resync') {
      later();
      return;
    }
    if (isCovered(id, data.revision)) return;
    const next = topics[topic](data, event);
    if (next === undefined) later();
    else if (next !== data) loaded.value = { state: 'ready', data: next, error: null };
  }

  function later() {
    timer ??= setTimeout(
      () => {
        timer = null;
        read();
      },
      Math.max(0, AT_MOST_EVERY - (Date.now() - readAt)),
    );
  }

  function open() {
    read();
    const ends = ['resync', ...Object.keys(topics)].map((topic) =>
      listen(topic, (event, id) => take(topic, event, id)),
    );
    return () => {
      ends.forEach((end) => end());
      if (timer) clearTimeout(timer);
      timer = null;
      running?.abort();
      running = null;
    };
  }
  return { loaded, open, reload: read };
}
