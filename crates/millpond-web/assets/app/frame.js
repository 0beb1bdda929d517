// What is around every page: the rail with the pages, the bar with freshness, search and user.

import { html, useEffect, useState } from './core/html.js';
import { now } from './core/clock.js';
import { span } from './core/format.js';
import { useKeys } from './core/keys.js';
import { link, route } from './core/router.js';
import { logout, me } from './core/session.js';
import { freshness, retryNow } from './core/stream.js';
import { switchTheme, theme } from './core/theme.js';
import { spoken } from './parts/copy.js';
import { Help } from './parts/help.js';
import { Icon } from './parts/icons.js';
import { Palette } from './parts/palette.js';

/** Pages of the rail: path, name, key after `g`. */
export const PAGES = [
  ['overview', 'Overview', 'o'],
  ['pools', 'Pools', 'p'],
  ['nodes', 'Nodes', 'n'],
  ['pending', 'Pending', 'w'],
  ['plan', 'What if', 'f'],
  ['timeline', 'Timeline', 't'],
  ['hosts', 'Hosts', 'h'],
  ['gpus', 'GPUs', 'u'],
  ['ci', 'CI', 'c'],
  ['catalog', 'Catalogue', 'k'],
  ['health', 'Health', 's'],
];
/** Pages that are part of another one. */
const PART_OF = { decisions: 'timeline' };

const MODES = { acting: ['acting', 'good'], advice: ['advice only', 'warn'], 'read-only': ['read-only', 'warn'] };

/** @param {{waiting: number|null, children: any}} props */
export function Frame({ waiting, children }) {
  const [dialog, setDialog] = useState(/** @type {''|'search'|'help'} */ (''));
  const [isMenuOpen, setMenuOpen] = useState(false);
  const { page } = route.value;
  const current = PART_OF[page] ?? page;
  useKeys({ 'Ctrl-K': () => setDialog('search'), '?': () => setDialog('help') });
  useEffect(() => setMenuOpen(false), [route.value]);
  return html`<div class="frame ${isMenuOpen ? 'menu-open' : ''}">
    <a class="skip" href="#main" onClick=${(/** @type {Event} */ event) => {
      event.preventDefault();
      document.getElementById('main')?.focus();
    }}>Skip to the page</a>
    <nav class="rail" aria-label="pages">
      <a class="brand" href="/"><${Mark} />Millpond</a>
      <ul>${PAGES.map(
        ([path, name, key]) => html`<li key=${path}>
        <a href=${link(path)} aria-current=${path === current ? 'page' : undefined} title=${`${name} (g ${key})`}>
          <${Icon} name=${path} /><span>${name}</span>
          ${path === 'pending' && waiting
            ? html`<b class="count" aria-label=${`${waiting} groups wait`}>${waiting}</b>` : ''}</a></li>`,
      )}</ul>
      <p class="version">${me.value?.version ? `v${me.value.version}` : ''}</p>
    </nav>
    <header class="bar-top">
      <button class="quiet menu-button" aria-expanded=${String(isMenuOpen)} onClick=${() => setMenuOpen(!isMenuOpen)}
        aria-label="pages">
        <${Icon} name="menu" /></button>
      <span class="cluster" title="the API server that this page speaks of">${me.value?.cluster ?? ''}</span>
      <${Mode} mode=${me.value?.mode} />
      <${Fresh} />
      <span class="grow"></span>
      <button class="search" onClick=${() => setDialog('search')}><${Icon} name="search" /><span>Go to anything</span>
        <kbd>Ctrl K</kbd></button>
      <button class="quiet" onClick=${switchTheme} aria-label=${theme.value === 'dark' ? 'light theme' : 'dark theme'}
        title="theme">
        <${Icon} name=${theme.value === 'dark' ? 'sun' : 'moon'} /></button>
      <button class="quiet" onClick=${() => setDialog('help')} aria-label="keys" title="keys (?)">
        <${Icon} name="help" /></button>
      <details class="menu user"><summary title="who you are">${me.value?.user.name ?? ''}</summary>
        <div class="sheet"><p>${me.value?.user.groups.join(', ')}</p><button onClick=${logout}>
          <${Icon} name="exit" /> Log out</button></div></details>
    </header>
    <main id="main" tabindex="-1">${children}</main>
    <div class="unseen" role="status" aria-live="polite">${spoken.value}</div>
    ${dialog === 'search' && html`<${Palette} close=${() => setDialog('')} />`}
    ${dialog === 'help' && html`<${Help} close=${() => setDialog('')} />`}
  </div>`;
}

/** The sign of Millpond: three ripples. */
export function Mark() {
  return html`<svg class="mark" viewBox="0 0 32 32" aria-hidden="true"><rect width="32" height="32" rx="7" />
    <path d="M6 13h20" /><path d="M8.500 18h15" opacity=".75" /><path d="M11 23h10" opacity=".5" />
      <circle cx="16" cy="8" r="2.200" /></svg>`;
}

/** @param {{mode: string|undefined}} props */
function Mode({ mode }) {
  const [word, tone] = MODES[mode ?? ''] ?? [mode ?? '', ''];
  return word ? html`<span class="badge ${tone}" title="what this process does with its plans">${word}</span>` : null;
}

/** How old is what the page shows. */
function Fresh() {
  const { phase, since, retryAt, why } = freshness.value;
  const seconds = Math.max(0, Math.round(Date.now() / 1000 - since / 1000));
  void now.value;
  if (phase === 'live') return html`<span class="fresh good" role="status"><i></i>live</span>`;
  if (phase === 'lost') {
    const wait = retryAt ? Math.max(0, Math.ceil((retryAt - Date.now()) / 1000)) : 0;
    return html`<span class="fresh bad" role="status" title=${why}>
      <i></i>${span(seconds)} behind: ${why}${wait > 1 ? `; again in ${wait} s` : ''}
      <button class="quiet" onClick=${retryNow}>Now</button></span>`;
  }
  return html`<span class="fresh" role="status"><i></i>${phase === 'connecting' ? 'connecting' : 'not live'}</span>`;
}
