// Copying: commands, patches, lists.

import { html, signal, useState } from '../core/html.js';
import { Icon } from './icons.js';

/** Spoken by the live region of the frame. */
export const spoken = signal('');

/** @param {string} text @param {string} [what] */
export async function copy(text, what = 'Copied') {
  try {
    await navigator.clipboard.writeText(text);
    spoken.value = what;
    return true;
  } catch {
    spoken.value = 'The browser does not allow copying: select the text.';
    return false;
  }
}

/** @param {{text: string, label?: string, title?: string, small?: boolean}} props */
export function CopyButton({ text, label = 'Copy', title }) {
  const [done, setDone] = useState(false);
  const click = async () => {
    setDone(await copy(text));
    setTimeout(() => setDone(false), 1500);
  };
  return html`<button class="quiet" onClick=${click} title=${title ?? text}>
    <${Icon} name=${done ? 'check' : 'copy'} />${done ? 'Copied' : label}</button>`;
}

/** A command to run in a terminal. @param {{text: string}} props */
export function Command({ text }) {
  return html`<div class="command"><code>${text}</code><${CopyButton} text=${text} label="Copy" /></div>`;
}

/** Saves text as a file. @param {string} name @param {string|Blob} content @param {string} [type] */
export function save(name, content, type = 'text/plain') {
  const address = URL.createObjectURL(new Blob([content], { type }));
  const anchor = document.createElement('a');
  anchor.href = address;
  anchor.download = name;
  anchor.click();
  setTimeout(() => URL.revokeObjectURL(address), 10_000);
}

/** One cell of a CSV file; what a spreadsheet would run as a formula gets a quote in front. @param {any} value */
export function csvCell(value) {
  const text = value === null || value === undefined ? '' : String(value);
  const safe = /^[=+\-@\t\r]/.test(text) && typeof value !== 'number' ? `'${text}` : text;
  return /[",\n\r]/.test(safe) ? `"${safe.replaceAll('"', '""')}"` : safe;
}
