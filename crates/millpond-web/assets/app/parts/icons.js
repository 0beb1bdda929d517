// Icons: strokes on a 16 × 16 grid, drawn by us, in the colour of the text.

import { html } from '../core/html.js';

const PATHS = {
  overview: 'M2 13.5h12M3.5 11V7M8 11V3M12.5 11V5.5',
  pools: 'M2 4.5h12M2 8h12M2 11.5h12M4 2.5v4M8 6v4M12 9.5v4',
  nodes: 'M2.5 2.5h4.5v4.5h-4.5zM9 2.5h4.5v4.5h-4.5zM2.5 9h4.5v4.5h-4.5zM9 9h4.5v4.5h-4.5z',
  pending: 'M4 2h8M4 14h8M5 2c0 4 6 4.5 6 6s-6 2-6 6M11 2c0 4-6 4.5-6 6s6 2 6 6',
  plan: 'M8 2v4M8 6L3.5 9.5V14M8 6l4.500 3.500V14M6.500 2h3',
  timeline: 'M2 8h12M4.500 5.500v5M8 5.500v5M11.500 5.500v5M2 3h6M8 13h6',
  hosts: 'M2.500 3h11v4h-11zM2.500 9h11v4h-11zM5 5h.01M5 11h.01',
  gpus: 'M4 4h8v8h-8zM6.500 6.500h3v3h-3zM6 1.500v2.500M10 1.500v2.500M6 12v2.500M10 12v2.500M1.500 6h2.500M1.500 10h2.500M12 6h2.500M12 10h2.500',
  ci: 'M5 4L1.500 8 5 12M11 4l3.500 4L11 12M9 3L7 13',
  catalog: 'M3 2.500h7l3 3v8h-10zM10 2.500v3h3M5.500 8h5M5.500 10.500h5',
  health: 'M1.500 8h3l2-5 3 10 2-5h3',
  search: 'M7 2.500a4.500 4.500 0 1 0 0 9a4.500 4.500 0 1 0 0-9M10.500 10.500l3.500 3.500',
  sun: 'M8 5.500a2.500 2.500 0 1 0 0 5a2.500 2.500 0 1 0 0-5M8 1.500v1.500M8 13v1.500M1.500 8h1.500M13 8h1.500M3.500 3.500l1 1M11.500 11.500l1 1M3.500 12.500l1-1M11.500 4.500l1-1',
  moon: 'M13 9.500A5.500 5.500 0 0 1 6.500 3a5.500 5.500 0 1 0 6.500 6.500z',
  help: 'M6 6a2 2 0 1 1 2.700 1.900c-.5.2-.7.600-.7 1.100v.500M8 12h.01',
  copy: 'M5.500 5.500h8v8h-8zM10.500 5.500v-3h-8v8h3',
  check: 'M3 8.500l3.500 3.500L13 4.500',
  warning: 'M8 2L14.500 13.500h-13zM8 6.500v3.500M8 12h.01',
  error: 'M8 2a6 6 0 1 0 0 12a6 6 0 1 0 0-12M5.800 5.800l4.400 4.400M10.200 5.800l-4.400 4.400',
  info: 'M8 2a6 6 0 1 0 0 12a6 6 0 1 0 0-12M8 7.500v3.500M8 5h.01',
  lock: 'M4 7.500h8v6h-8zM5.500 7.500v-2a2.500 2.500 0 0 1 5 0v2',
  coin: 'M8 2.500a5.500 5.500 0 1 0 0 11a5.500 5.500 0 1 0 0-11M6.500 6.500a1.500 1.500 0 1 1 2 1.400c-.4.200-.5.400-.5.900M8 11h.01',
  download: 'M8 2.500v7.500M5 7l3 3 3-3M3 13h10',
  columns: 'M2.500 3h11v10h-11zM6.200 3v10M9.800 3v10',
  menu: 'M2.500 4.500h11M2.500 8h11M2.500 11.500h11',
  close: 'M4 4l8 8M12 4l-8 8',
  right: 'M6 3.500L10.500 8 6 12.500',
  down: 'M3.500 6L8 10.500 12.500 6',
  exit: 'M6.500 2.500h-4v11h4M6.500 8h7.500M11 5l3 3-3 3',
};

/** @param {{name: string, label?: string}} props `label` only where no text stands beside it */
export function Icon({ name, label }) {
  return html`<svg class="icon" viewBox="0 0 16 16" role=${label ? 'img' : undefined} aria-label=${label}
    aria-hidden=${label ? undefined : 'true'}><path d=${PATHS[name] ?? ''} /></svg>`;
}
