// All keys, on one sheet.

import { html } from '../core/html.js';
import { Dialog } from './dialog.js';

/** Titles with their keys. @type {Array<[string, string[][]]>} */
const GROUPS = [
  [
    'Everywhere',
    [
      ['Ctrl K', 'go to a page, node, pool or group'],
      ['?', 'this sheet'],
      ['/', 'filter'],
      ['Esc', 'close, leave a field'],
    ],
  ],
  [
    'Pages',
    [
      ['g o', 'overview'],
      ['g p', 'pools'],
      ['g n', 'nodes'],
      ['g w', 'pending'],
      ['g f', 'what if'],
      ['g t', 'timeline'],
      ['g h', 'hosts'],
      ['g u', 'GPUs'],
      ['g c', 'CI'],
      ['g k', 'catalogue'],
      ['g s', 'health'],
    ],
  ],
  [
    'Lists',
    [
      ['j k ↓ ↑', 'next, previous row'],
      ['Enter', 'open'],
      ['x', 'select'],
      ['w', 'what if with the selection'],
      ['m', 'map or table'],
    ],
  ],
  [
    'A node',
    [
      ['c', 'cordon, with a preview'],
      ['u', 'uncordon'],
      ['r', 'drain, with a preview'],
    ],
  ],
  [
    'A decision',
    [
      ['[', 'the one before'],
      [']', 'the one after'],
    ],
  ],
  [
    'The map',
    [
      ['← ↑ → ↓', 'walk the nodes'],
      ['+ −', 'zoom'],
      ['0', 'all of it'],
      ['Enter', 'open the node'],
    ],
  ],
];

/** @param {{close: () => void}} props */
export function Help({ close }) {
  return html`<${Dialog} title="Keys" close=${close} wide>
    <div class="keys">${GROUPS.map(
      ([title, keys]) => html`<section key=${title}><h3>${title}</h3>
      <dl>${keys.map(([key, what]) => html`<div key=${key}>
        <dt>${key.split(' ').map((part) => html`<kbd>${part}</kbd>`)}</dt><dd>${what}</dd></div>`)}</dl></section>`,
    )}</div>
  <//>`;
}
