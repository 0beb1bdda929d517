// Lists that the server has as rows of text: own hosts, GPUs, CI. The same as the commands print.

import { html, useMemo } from '../core/html.js';
import { reread, useResource } from '../core/resource.js';
import { FilteredAway, Tools, useListing } from '../parts/listing.js';
import { Empty, Failed, Loaded } from '../parts/notices.js';
import { Table } from '../parts/table.js';

/** Words of a state, and how they look. */
const TONES = {
  ready: 'good',
  free: 'good',
  joined: 'good',
  fulfilled: 'good',
  'in-use': 'info',
  used: 'info',
  building: 'info',
  pending: 'info',
  promised: 'info',
  requested: 'info',
  resetting: 'warn',
  hold: 'warn',
  paused: 'warn',
  silent: 'warn',
  quarantined: 'bad',
  failed: 'bad',
  deleting: 'warn',
  aborted: 'bad',
};
const SIGNS = { good: '●', info: '◌', warn: '▨', bad: '◆' };

/** Titles that are not words. */
const ABBREVIATIONS = { CPU: 'CPU', GPUS: 'GPUs', GPU: 'GPU', ID: 'Id', IP: 'IP' };

/** @param {string} title @param {number} at @returns {import('../parts/table.js').Column} */
function column(title, at) {
  const isState = /^(state|status)$/i.test(title);
  return {
    id: title.toLowerCase().replace(/\W+/g, '-'),
    title: ABBREVIATIONS[title] ?? title.charAt(0) + title.slice(1).toLowerCase(),
    width: /why|message|comment|serves|reason/i.test(title)
      ? 'minmax(180px, 3fr)'
      : at === 0
        ? 'minmax(140px, 1.6fr)'
        : isState
          ? '116px'
          : 'minmax(84px, 1fr)',
    value: (row) => row[at] ?? null,
    cell: isState
      ? (row) => {
          const tone = TONES[String(row[at]).toLowerCase()] ?? '';
          return html`<span class="state ${tone}">
            <span class="sign" aria-hidden="true">${SIGNS[tone] ?? '•'}</span>${row[at] ?? '?'}</span>`;
        }
      : undefined,
  };
}

/**
 * A list with its tools, or what it is for when it is not there.
 * @param {{path: string, name: string, command: string, topics?: any, empty: any}} props
 */
export function TextList({ path, name, command, topics = { overview: reread }, empty }) {
  const list = useResource(path, topics);
  if (list.state === 'failed' && list.error?.code === 404)
    return html`<${Empty} title=${list.error.message || empty.title}
      command=${[command, ...[empty.command].flat()]}>${empty.text}<//>`;
  if (list.state === 'failed') return html`<${Failed} error=${list.error} retry=${list.reload} />`;
  return html`<${Loaded} of=${list}>${(/** @type {any} */ data) => html`<${Rows} data=${data} name=${name}
    command=${command} empty=${empty} />`}<//>`;
}

/** @param {{data: any, name: string, command: string, empty: any}} props */
function Rows({ data, name, command, empty }) {
  const all = useMemo(() => data.columns.map(column), [data.columns.join()]);
  const facets = useMemo(
    () =>
      all
        .filter((/** @type {any} */ one) => /^(state|pool|label|provider|model)$/.test(one.id))
        .map((/** @type {any} */ one) => ({ id: one.id, title: one.title, of: one.value })),
    [all],
  );
  const { shown, columns, clear } = useListing(data.rows, all, facets);
  if (!data.rows.length)
    return html`<${Empty} ...${empty}>${empty.text}${data.message
      ? html` <span class="dim">The server says: ${data.message}.</span>` : ''}<//>`;
  return html`<${Tools} name=${name} rows=${data.rows} shown=${shown} columns=${columns} facets=${facets} clear=${clear}
    command=${command} />
    ${shown.length ? html`<${Table} label=${name} tall rows=${shown} columns=${columns}
      keyOf=${(/** @type {any} */ row) => row.join('\u0000')} />`
      : html`<${FilteredAway} number=${data.rows.length} clear=${clear} />`}`;
}

export function HostsPage() {
  return html`<h1>Hosts</h1><${TextList} path="/hosts" name="hosts" command="millpond host list" empty=${{
    title: 'No own hosts here',
    command: ['millpond host token create --ttl 1h'],
    text: 'Machines of your own join a cluster when a pod needs them. The command prints one line to paste on a host; its agent registers it, and it appears here with its state, its facts and what it could serve.',
  }} />`;
}

export function GpusPage() {
  return html`<h1>GPUs</h1><${TextList} path="/gpus" name="gpus" command="millpond gpu list" empty=${{
    title: 'No GPUs here',
    command: ['millpond up --memory --fake-vcenter', 'kubectl create -f examples/gpuinfo/topology_v1_gpuinfo.yaml'],
    text: 'GPUs of all nodes, and cards of hosts that no node holds: model, memory, which are free, and how long until the node is disturbed.',
  }} />`;
}
