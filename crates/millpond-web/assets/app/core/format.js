// Numbers as text. What is not known is a word or a sign, never 0.

export const UNKNOWN = '?';
const HOURS_PER_MONTH = 730;

/** @param {any} value */
export function known(value) {
  return value !== null && value !== undefined;
}

/** @param {number|null|undefined} value @returns {string} */
export function count(value) {
  return known(value) ? Number(value).toLocaleString('en-US') : UNKNOWN;
}

/**
 * Dollars per hour from nano-dollars.
 * @param {number|null|undefined} nanos
 * @param {{unpriced?: number, sign?: boolean, digits?: number}} [how] `unpriced`: things without a price in this sum
 * @returns {string}
 */
export function money(nanos, how = {}) {
  if (!known(nanos)) return UNKNOWN;
  const dollars = Number(nanos) / 1e9;
  const size = Math.abs(dollars);
  const digits = how.digits ?? (size >= 100 ? 2 : 4);
  const sign = dollars < 0 ? '−' : how.sign ? '+' : '';
  const text = size.toLocaleString('en-US', { minimumFractionDigits: digits, maximumFractionDigits: digits });
  return `${how.unpriced ? '≥ ' : ''}${sign}$${text}`;
}

/**
 * Dollars per month from nano-dollars per hour.
 * @param {number|null|undefined} nanos
 * @param {{unpriced?: number, sign?: boolean}} [how]
 */
export function monthly(nanos, how = {}) {
  return known(nanos)
    ? money(Number(nanos) * HOURS_PER_MONTH, { ...how, digits: Math.abs(Number(nanos)) > 1.4e9 ? 0 : 2 })
    : UNKNOWN;
}

/** @param {number|null|undefined} permille thousandths */
export function percent(permille) {
  return known(permille) ? `${(Number(permille) / 10).toFixed(Number(permille) % 10 ? 1 : 0)} %` : UNKNOWN;
}

/** @param {number|null|undefined} permille whole percent, for narrow columns */
export function wholePercent(permille) {
  return known(permille) ? `${Math.round(Number(permille) / 10)} %` : UNKNOWN;
}

/** @param {number|null|undefined} milli millicores */
export function cpu(milli) {
  if (!known(milli)) return UNKNOWN;
  const cores = Number(milli) / 1000;
  return cores >= 100 || Number.isInteger(cores) ? count(Math.round(cores)) : String(Math.round(cores * 100) / 100);
}

const BINARY = ['B', 'KiB', 'MiB', 'GiB', 'TiB', 'PiB'];

/** @param {number|null|undefined} bytes */
export function bytes(bytes) {
  if (!known(bytes)) return UNKNOWN;
  let value = Number(bytes);
  let unit = 0;
  while (value >= 1024 && unit < BINARY.length - 1) {
    value /= 1024;
    unit += 1;
  }
  return `${value >= 100 || Number.isInteger(value) ? Math.round(value).toLocaleString('en-US') : value.toFixed(1)} ${BINARY[unit]}`;
}

/** A length of time in its two largest units. @param {number|null|undefined} length in seconds */
export function span(length) {
  if (!known(length)) return UNKNOWN;
  const seconds = Math.max(0, Math.round(Number(length)));
  if (seconds < 120) return `${seconds} s`;
  const minutes = Math.floor(seconds / 60);
  if (minutes < 120) return minutes < 10 && seconds % 60 ? `${minutes} min ${seconds % 60} s` : `${minutes} min`;
  const hours = Math.floor(minutes / 60);
  if (hours < 48) return minutes % 60 && hours < 10 ? `${hours} h ${minutes % 60} min` : `${hours} h`;
  return `${Math.floor(hours / 24)} d`;
}

/** How long ago, in one unit: for lists that are read from afar. @param {number|null|undefined} time @param {number} now */
export function ago(time, now) {
  if (!known(time)) return UNKNOWN;
  const seconds = Math.max(0, Math.round(now - Number(time)));
  if (seconds < 60) return `${seconds} s ago`;
  if (seconds < 5400) return `${Math.round(seconds / 60)} min ago`;
  return seconds < 172_800 ? `${Math.round(seconds / 3600)} h ago` : `${Math.round(seconds / 86_400)} d ago`;
}

/** How long ago. @param {number|null|undefined} time seconds since 1970 @param {number} now */
export function age(time, now) {
  return known(time) ? span(now - Number(time)) : UNKNOWN;
}

const two = (/** @type {number} */ value) => String(value).padStart(2, '0');

/** Time of day. @param {number|null|undefined} time */
export function clock(time) {
  if (!known(time)) return UNKNOWN;
  const date = new Date(Number(time) * 1000);
  return `${two(date.getHours())}:${two(date.getMinutes())}:${two(date.getSeconds())}`;
}

/** Day and time. @param {number|null|undefined} time */
export function moment(time) {
  if (!known(time)) return UNKNOWN;
  const date = new Date(Number(time) * 1000);
  return `${date.getFullYear()}-${two(date.getMonth() + 1)}-${two(date.getDate())} ${clock(time)}`;
}

/** @param {number} value @param {string} one @param {string} [many] */
export function plural(value, one, many = `${one}s`) {
  return `${count(value)} ${value === 1 ? one : many}`;
}

/** A word as a shell takes it. @param {string} word */
export function quoted(word) {
  return /^[\w@%+=:,./-]+$/.test(word) ? word : `'${word.replaceAll("'", "'\\''")}'`;
}
