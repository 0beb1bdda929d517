// JSON merge patches (RFC 7396): what differs between two objects, and nothing else.

/** @param {any} value */
function isObject(value) {
  return value !== null && typeof value === 'object' && !Array.isArray(value);
}

/**
 * The patch that makes `after` of `before`; `undefined` if they are equal.
 * @param {any} before @param {any} after
 * @returns {any}
 */
export function difference(before, after) {
  if (!isObject(before) || !isObject(after)) {
    return JSON.stringify(before) === JSON.stringify(after) ? undefined : after;
  }
  const patch = {};
  for (const key of Object.keys(before)) {
    if (!(key in after)) patch[key] = null;
  }
  for (const [key, value] of Object.entries(after)) {
    const change = key in before ? difference(before[key], value) : value;
    if (change !== undefined) patch[key] = change;
  }
  return Object.keys(patch).length ? patch : undefined;
}
