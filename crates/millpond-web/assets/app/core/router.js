// Where the page is: `/nodes/NAME?pool=general`. Filters are part of the address, so that a link shows what was seen.

import { signal } from './html.js';

/**
 * @typedef {{page: string, parts: string[], query: URLSearchParams}} Route
 */

/** @param {{pathname: string, search: string}} address @returns {Route} */
export function parse(address) {
  const parts = address.pathname.split('/').filter(Boolean).map(decode);
  return { page: parts[0] ?? 'overview', parts: parts.slice(1), query: new URLSearchParams(address.search) };
}

/** @param {string} part */
function decode(part) {
  try {
    return decodeURIComponent(part);
  } catch {
    return part;
  }
}

export const route = signal(parse(location));

addEventListener('popstate', () => {
  route.value = parse(location);
});

/**
 * The address of a page.
 * @param {string} page
 * @param {string|string[]} [parts]
 * @param {Record<string, any>} [query] empty values are left out
 */
export function link(page, parts = [], query = {}) {
  const path = page === 'overview' ? '/' : `/${[page, ...[parts].flat()].map(encodeURIComponent).join('/')}`;
  const search = new URLSearchParams();
  for (const [key, value] of Object.entries(query)) {
    if (value !== undefined && value !== null && value !== '') search.set(key, String(value));
  }
  const text = search.toString();
  return path + (text ? `?${text}` : '');
}

/** The address of a pool's page from its id, `dialect/namespace/name`. @param {string} id */
export function poolLink(id) {
  return link('pools', id.split('/'));
}

/** Goes to an address of this page. @param {string} target */
export function open(target) {
  if (target === location.pathname + location.search) return;
  history.pushState(null, '', target);
  const before = route.value.page;
  route.value = parse(location);
  scrollTo(0, 0);
  // Another page begins at its beginning, for readers of the screen too; inside a page the focus stays.
  if (route.value.page !== before) document.getElementById('main')?.focus({ preventScroll: true });
}

/** Goes to a page. @type {(page: string, parts?: string|string[], query?: Record<string, any>) => void} */
export function go(page, parts = [], query = {}) {
  open(link(page, parts, query));
}

/**
 * Changes filters of this page without a step in the browser's history.
 * @param {Record<string, any>} changes an empty value removes the filter
 */
export function setQuery(changes) {
  const here = route.value;
  history.replaceState(null, '', link(here.page, here.parts, { ...Object.fromEntries(here.query), ...changes }));
  route.value = parse(location);
}

/** @param {string} key @returns {string} */
export function query(key) {
  return route.value.query.get(key) ?? '';
}

// Links inside the page change the route; everything else (downloads, other buttons of the mouse) is the browser's.
document.addEventListener('click', (event) => {
  if (event.defaultPrevented || event.button !== 0 || event.ctrlKey || event.metaKey || event.shiftKey || event.altKey)
    return;
  const anchor = event.target instanceof Element ? event.target.closest('a[href]') : null;
  if (!(anchor instanceof HTMLAnchorElement) || anchor.target || anchor.hasAttribute('download')) return;
  if (anchor.origin !== location.origin || anchor.hash) return;
  event.preventDefault();
  open(anchor.pathname + anchor.search);
});
