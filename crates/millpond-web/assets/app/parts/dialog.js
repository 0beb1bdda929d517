// A modal dialog: the browser traps the focus, Escape closes it, and the focus goes back to where it was.

import { html, useEffect, useRef } from '../core/html.js';
import { Icon } from './icons.js';

/** @param {{title: string, close: () => void, children: any, wide?: boolean, plain?: boolean}} props */
export function Dialog({ title, close, children, wide = false, plain = false }) {
  const element = useRef(/** @type {HTMLDialogElement|null} */ (null));
  useEffect(() => {
    const before = document.activeElement;
    element.current?.showModal();
    return () => {
      if (before instanceof HTMLElement) before.focus();
    };
  }, []);
  return html`<dialog ref=${element} class=${`${wide ? 'wide' : ''} ${plain ? 'plain' : ''}`} aria-label=${title}
      onCancel=${(/** @type {Event} */ event) => {
        event.preventDefault();
        close();
      }}
      onClick=${(/** @type {MouseEvent} */ event) => {
        if (event.target === element.current) close();
      }}>
    <div class="sheet">
      ${!plain && html`<header><h2>${title}</h2><button class="quiet" onClick=${close} aria-label="close">
        <${Icon} name="close" /></button></header>`}
      ${children}
    </div>
  </dialog>`;
}
