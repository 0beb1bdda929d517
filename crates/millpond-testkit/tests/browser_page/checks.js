// What the modules of the dashboard compute. Each check has a name; the report is read by the test.

import { html, render } from '/assets/app/core/html.js';
import { age, ago, bytes, count, cpu, money, monthly, percent, plural, quoted, span } from '/assets/app/core/format.js';
import { apply, fromColumns } from '/assets/app/core/nodes.js';
import { difference } from '/assets/app/core/patch.js';
import { isCovered } from '/assets/app/core/resource.js';
import { link, parse } from '/assets/app/core/router.js';
import { parser } from '/assets/app/core/stream.js';
import { Delta } from '/assets/app/parts/decisions.js';
import { csvCell } from '/assets/app/parts/copy.js';
import { layout, neighbour } from '/assets/app/parts/layout.js';
import { matching } from '/assets/app/parts/listing.js';
import { sorted } from '/assets/app/parts/table.js';

const report = [];

function check(name, actual, expected) {
  const [a, b] = [JSON.stringify(actual), JSON.stringify(expected)];
  report.push(a === b ? { name } : { name, error: `${a} is not ${b}` });
}

// What is not known is never 0.
check('an unknown price', money(null), '?');
check('an unknown price of a month', monthly(undefined), '?');
check('a sum with unpriced parts', money(14_210_000_000, { unpriced: 2 }), '≥ $14.2100');
check('a price', money(96_000_000), '$0.0960');
check('a saving', money(-201_600_000, { sign: true }), '−$0.2016');
check('a month', monthly(612_000_000), '$446.76');
check('unknown counts, shares, cores, bytes and ages', [count(null), percent(null), cpu(null), bytes(null), age(null, 5), span(undefined)], ['?', '?', '?', '?', '?', '?']);
check('zero is zero', [count(0), percent(0), cpu(0), bytes(0)], ['0', '0 %', '0', '0 B']);
check('shares', [percent(961), percent(400)], ['96.1 %', '40 %']);
check('bytes', [bytes(2 ** 31), bytes(1.5 * 2 ** 30)], ['2 GiB', '1.5 GiB']);
check('spans', [span(4), span(130), span(3600 * 5 + 60), span(86_400 * 7)], ['4 s', '2 min 10 s', '5 h 1 min', '7 d']);
check('ages from afar', [ago(100, 104), ago(0, 700), ago(0, 7200), ago(null, 1)], ['4 s ago', '12 min ago', '2 h ago', '?']);
check('plurals', [plural(1, 'pod'), plural(1200, 'pod')], ['1 pod', '1,200 pods']);
check('words of a shell', [quoted('node/a-1'), quoted("it's; rm -rf ~")], ['node/a-1', "'it'\\''s; rm -rf ~'"]);

// Addresses.
check('a route', (({ page, parts, query }) => [page, parts, query.get('q')])(parse({ pathname: '/pools/karpenter/-/a%2Fb', search: '?q=x' })), ['pools', ['karpenter', '-', 'a/b'], 'x']);
check('the first page', parse({ pathname: '/', search: '' }).page, 'overview');
check('a broken escape', parse({ pathname: '/nodes/%E0%A4%A', search: '' }).parts, ['%E0%A4%A']);
check('a link', link('nodes', 'a/b c', { q: 'x y', empty: '' }), '/nodes/a%2Fb%20c?q=x+y');

// Server-sent events, in whatever pieces they arrive.
const events = [];
const feed = parser((event, data, id) => events.push([event, data, id]));
for (const piece of [': ping\n\n', 'event: no', 'des\nid: 5f3a-1\ndata: {"a"', ':1}\n', '\nevent: resync\ndata: {}\n\n']) feed(piece);
check('events', events, [['nodes', '{"a":1}', '5f3a-1'], ['resync', '{}', null]]);
check('revisions', [isCovered('a-5', 'a-5'), isCovered('a-6', 'a-5'), isCovered('b-1', 'a-5')], [true, false, false]);

// Nodes: columns, then deltas.
const first = fromColumns({
  revision: 'a-1', now: 1, strings: ['', 'general', 'm5.large'],
  columns: { name: ['x', 'y'], pool: [1, 0], type: [2, 2], zone: [0, 0], capacityType: [0, 0], why: [0, 0], state: 'rd', cpu: [500, null], cpuTotal: [2000, 2000] },
});
check('columns', first.rows.map((node) => [node.name, node.pool, node.type, node.state, node.cpu]), [['x', 'general', 'm5.large', 'r', 500], ['y', '', 'm5.large', 'd', null]]);
const second = apply(first, { put: { x: { cpu: 900, why: 3 } }, new: [{ name: 'z', pool: 1, type: 2, zone: 0, capacityType: 0, why: 0, state: 's' }], gone: ['y'], strings: { from: 3, '+': ['drained'] } });
check('a delta', second.rows.map((node) => [node.name, node.cpu, node.why]), [['x', 900, 'drained'], ['z', null, '']]);
check('load alone does not move boxes', apply(first, { put: { x: { cpu: 1 } } }).structure, first.structure);
check('a delta that does not follow', [apply(first, { put: { q: { cpu: 1 } } }), apply(first, { strings: { from: 9, '+': [] } })], [undefined, undefined]);

// Patches have what differs, and nothing else.
check('no difference', difference({ a: { b: [1] } }, { a: { b: [1] } }), undefined);
check('a difference', difference({ a: { b: 1, c: 2 }, d: [1] }, { a: { b: 1, c: 3 }, e: 5 }), { d: null, a: { c: 3 }, e: 5 });

// Lists.
const columns = [{ id: 'name', title: 'Name', value: (row) => row.name }, { id: 'pool', title: 'Pool', value: (row) => row.pool }];
const rows = [{ name: 'web-1', pool: 'general' }, { name: 'general-2', pool: 'gpu' }, { name: 'x', pool: null }];
const names = (filter) => matching(rows, columns, filter).map((row) => row.name);
check('a filter', names('GENERAL'), ['web-1', 'general-2']);
check('a filter that leaves out', names('-general'), ['x']);
check('a filter of one column', names('pool:general'), ['web-1']);
check('sorted, the unknown last', [sorted(rows, columns, 'pool'), sorted(rows, columns, '-pool')].map((order) => order.map((row) => row.name)), [['web-1', 'general-2', 'x'], ['general-2', 'web-1', 'x']]);
check('cells of a file', [csvCell('a,"b"'), csvCell('=cmd()'), csvCell(null), csvCell(-4)], ['"a,""b"""', "'=cmd()", '', '-4']);

// The map: every node has a box, none covers another, and all lie within the map.
const nodes = Array.from({ length: 900 }, (_, at) => ({ name: `n${at}`, pool: at % 3 ? 'a' : 'b', zone: `z${at % 5}`, cpuTotal: 1000 * (1 + (at % 16)) }));
const map = layout(nodes, [{ pool: 'a', zone: 'z1' }], ['pool', 'zone'], 1.6, 16);
const overlap = (a, b) => a.x < b.x + b.w && b.x < a.x + a.w && a.y < b.y + b.h && b.y < a.y + a.h;
let covered = 0;
for (let at = 0; at < map.boxes.length; at += 1) {
  for (let other = at + 1; other < map.boxes.length; other += 1) covered += overlap(map.boxes[at], map.boxes[other]) ? 1 : 0;
}
check('boxes', [map.boxes.length, covered, map.boxes.filter((box) => box.x < 0 || box.y < 0 || box.x + box.w > map.width || box.y + box.h > map.height).length], [901, 0, 0]);
check('the same nodes give the same map', JSON.stringify(layout([...nodes].reverse(), [], ['pool', 'zone'], 1.6, 16).areas) === JSON.stringify(layout(nodes, [], ['pool', 'zone'], 1.6, 16).areas), true);
const square = [[0, 0], [20, 0], [0, 20]].map(([x, y], at) => ({ x, y, w: 10, h: 10, node: { name: String(at) }, isPlanned: false }));
check('neighbours', ['ArrowRight', 'ArrowDown', 'ArrowLeft'].map((key) => neighbour(square, square[0], key).node.name), ['1', '2', '0']);

// Hostile names stay text.
const place = document.getElementById('place');
render(html`<p title=${'<b>'}>${'<img src=x onerror=alert(1)>'}</p><${Delta} nanos=${null} />`, place);
check('hostile names', [place.querySelectorAll('img').length, place.querySelector('p').textContent], [0, '<img src=x onerror=alert(1)>']);
check('an unknown difference', place.querySelector('.delta').textContent, '?');

globalThis.report = report;
