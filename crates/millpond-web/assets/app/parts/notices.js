// What stands where no data is: loading, nothing yet, filtered away, not allowed, not observed.

import { Component, html } from '../core/html.js';
import { Command } from './copy.js';
import { Icon } from './icons.js';

/** @param {{title: string, children?: any, command?: string|string[], kind?: string}} props */
export function Empty({ title, children, command, kind = 'info' }) {
  const commands = [command ?? []].flat();
  return html`<section class="empty">
    <${Icon} name=${kind} />
    <h2>${title}</h2>
    ${children && html`<p>${children}</p>`}
    ${commands.map((text) => html`<${Command} text=${text} key=${text} />`)}
  </section>`;
}

/** @param {{message?: string}} props */
export function Denied({ message }) {
  return html`<${Empty} title="Not allowed" kind="lock">
    ${message || 'Your account may not see this.'} What the server keeps is not zero: it is not shown to you.
  <//>`;
}

/** @param {{error: any, retry?: () => void}} props */
export function Failed({ error, retry }) {
  const isMissing = error?.code === 404;
  return html`<section class="empty" role=${isMissing ? undefined : 'alert'}>
    <${Icon} name=${isMissing ? 'info' : 'warning'} />
    <h2>${isMissing ? 'Not here' : error?.code === 503 ? 'Not ready yet' : 'This could not be read'}</h2>
    <p>${error?.message ?? 'Not known why.'}</p>
    ${retry && !isMissing && html`<button onClick=${retry}>Try again</button>`}
  </section>`;
}

/**
 * Shows what a resource has, or says why there is nothing.
 * @param {{of: any, title?: string, children: (data: any) => any}} props `title`: the heading, where it comes with the data
 */
export function Loaded({ of, title, children }) {
  if (of.state === 'ready') return children(of.data);
  return html`${title && html`<h1>${title}</h1>`}
    ${
      of.state === 'denied'
        ? html`<${Denied} message=${of.error?.message} />`
        : of.state === 'failed'
          ? html`<${Failed} error=${of.error} retry=${of.reload} />`
          : html`<p class="loading" role="status">Reading …</p>`
    }`;
}

/** Keeps a page that fails from taking the frame with it. */
export class Boundary extends /** @type {any} */ (Component) {
  /** @param {any} props */
  constructor(props) {
    super(props);
    this.state = /** @type {any} */ ({ problem: null });
  }

  /** @param {Error} problem */
  componentDidCatch(problem) {
    this.setState({ problem });
    console.error(problem);
  }

  render() {
    const { problem } = this.state;
    return problem
      ? html`<${Failed} error=${{ message: `The page could not show this answer: ${problem.message}` }}
        retry=${() => this.setState({ problem: null })} />`
      : this.props.children;
  }
}

/** A line of a finding or an outcome. @param {{kind: 'error'|'warning'|'info'|'check', children: any}} props */
export function Note({ kind, children }) {
  return html`<p class="note ${kind}" role=${kind === 'error' ? 'alert' : 'status'}><${Icon} name=${kind} />
    <span>${children}</span></p>`;
}
