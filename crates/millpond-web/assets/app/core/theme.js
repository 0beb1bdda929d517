// Light or dark: the system's wish until the user chooses.

import { signal } from './html.js';

const system = matchMedia('(prefers-color-scheme: dark)');

/** @returns {'light'|'dark'} */
function current() {
  const chosen = document.documentElement.dataset.theme;
  if (chosen === 'light' || chosen === 'dark') return chosen;
  return system.matches ? 'dark' : 'light';
}

export const theme = signal(current());

system.addEventListener('change', () => {
  theme.value = current();
});

/** The other one, kept for the next visit. */
export function switchTheme() {
  const next = theme.value === 'dark' ? 'light' : 'dark';
  document.documentElement.dataset.theme = next;
  try {
    localStorage.setItem('millpond.theme', next);
  } catch {
    // Storage is switched off: the choice lasts until the reload.
  }
  theme.value = next;
}
