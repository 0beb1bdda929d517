// CI nodes: labels, requests, nodes and images of Zuul's Nodepool.

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
  [
    'labels',
    'Labels',
    'millpond ci info',
    'Labels that jobs ask for, and how many nodes of each are ready, in use and being built.',
  ],
  ['images', 'Images', 'millpond ci image-list', 'Images that are built and uploaded for CI nodes.'],
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
