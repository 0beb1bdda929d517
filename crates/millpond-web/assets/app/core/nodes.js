// The nodes of the cluster as rows, kept true by deltas: columns with a dictionary on the wire, objects here.

const INDEXED = ['pool', 'type', 'zone', 'capacityType', 'why'];
const STATES = { r: 'ready', c: 'cordoned', s: 'starting', d: 'draining', n: 'not ready' };

/**
 * @typedef {{name: string, pool: string, type: string, zone: string, capacityType: string, why: string, state: string,
 *   cpu: number|null, mem: number|null, gpu: number|null, cpuTotal: number|null, memTotal: number|null, pods: number|null,
 *   priceNanos: number|null, disruptable: boolean, doNotDisrupt: boolean, since: number|null}} NodeRow
 */
/**
 * @typedef {{revision: string, now: number, strings: string[], byName: Map<string, NodeRow>, rows: NodeRow[],
 *   total: any, planned: any[], structure: number}} Nodes
 * `structure` changes when nodes come, go or change their group, not when only their load changes.
 */

/** In words. @param {string} letter */
export function stateName(letter) {
  return STATES[letter] ?? 'not known';
}

/** Rows from the answer of `GET /nodes`. @param {any} answer @returns {Nodes} */
export function fromColumns(answer) {
  const columns = answer.columns;
  const keys = Object.keys(columns);
  const rows = columns.name.map((/** @type {string} */ _, /** @type {number} */ at) => {
    const raw = {};
    for (const key of keys) raw[key] = columns[key][at];
    return resolved(raw, answer.strings);
  });
  const byName = new Map(rows.map((/** @type {NodeRow} */ row) => [row.name, row]));
  return {
    revision: answer.revision,
    now: answer.now,
    strings: answer.strings,
    byName,
    rows,
    total: answer.total,
    planned: answer.planned ?? [],
    structure: 0,
  };
}

/** Numbers of the dictionary as words. @param {any} raw @param {string[]} strings */
function resolved(raw, strings) {
  const row = { ...raw };
  for (const key of INDEXED) {
    if (key in raw) row[key] = strings[raw[key]] ?? '';
  }
  return row;
}

/**
 * The nodes after an event.
 * @param {Nodes} nodes
 * @param {any} event
 * @returns {Nodes|undefined} `undefined` if the event does not follow this state
 */
export function apply(nodes, event) {
  const added = event.strings;
  if (added && added.from > nodes.strings.length) return undefined;
  const strings = added ? [...nodes.strings.slice(0, added.from), ...added['+']] : nodes.strings;
  const byName = new Map(nodes.byName);
  let isRegrouped = Boolean(event.new?.length || event.gone?.length);
  for (const name of event.gone ?? []) byName.delete(name);
  for (const raw of event.new ?? []) byName.set(raw.name, resolved(raw, strings));
  for (const [name, changes] of Object.entries(event.put ?? {})) {
    const before = byName.get(name);
    if (!before) return undefined;
    const change = resolved(changes, strings);
    isRegrouped ||= ['pool', 'type', 'zone', 'capacityType', 'cpuTotal'].some(
      (key) => key in change && change[key] !== before[key],
    );
    byName.set(name, { ...before, ...change });
  }
  return {
    ...nodes,
    strings,
    byName,
    rows: [...byName.values()],
    total: event.total ?? nodes.total,
    planned: event.planned ?? nodes.planned,
    structure: nodes.structure + (isRegrouped ? 1 : 0),
  };
}
