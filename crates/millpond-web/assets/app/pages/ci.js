// CI nodes: requests, nodes, images and builds of Zuul's Nodepool.

import { html } from '../core/html.js';
import { link } from '../core/router.js';
import { TextList } from './lists.js';

const TABS = [
  [
    'requests',
    'Requests',
    'millpond ci request-list',
    'Requests of CI jobs for nodes, with their place in the queue and, for those that wait, the reason.',
  ],
  ['nodes', 'Nodes', 'millpond ci list', 'CI nodes with their state, and which request holds them.'],
  ['images', 'Images', 'millpond ci image-list', 'Disk images that are built and uploaded for CI nodes.'],
  ['builds', 'Builds', 'millpond ci dib-image-list', 'Builds of disk images, and what came of them.'],
];

/** @param {{tab: string}} props */
export function CiPage({ tab }) {
  const [id, , command, text] = TABS.find(([name]) => name === tab) ?? TABS[0];
  return html`<header class="title"><h1>CI</h1>
    <nav class="tabs" aria-label="lists of CI">${TABS.map(([name, title]) => html`<a key=${name}
      href=${link('ci', name)} aria-current=${name === id ? 'page' : undefined}>${title}</a>`)}</nav></header>
    <${TextList} key=${id} path=${`/ci/${id}`} name=${`ci-${id}`} command=${command}
      empty=${{ title: 'No CI nodes here', command: 'millpond up --ci-config nodepool.yaml', text }} />`;
}
