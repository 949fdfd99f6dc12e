/**
 * The page of `fairlead ui` with 1,000 Services and 2,000 new connections a second, without a cluster: a stub sends the events
 * that `fairlead ui` would send. So the browser has the processors for itself, and what remains is the page's own work.
 * Needs Chromium and a built dist/ (node tools/build.mjs).
 *
 * node bench/page-alone.ts [--seconds 15]
 */
import { once } from 'node:events';
import { createServer, type Server } from 'node:http';
import type { AddressInfo } from 'node:net';
import { setTimeout as sleep } from 'node:timers/promises';
import { parseArgs } from 'node:util';
import { readPageFiles } from '../src/ui/page-files.ts';
import type { EdgeView, PageEvent, PodView, ServiceView } from '../src/ui/view.ts';
import { findChromium, startBrowser } from '../tests/testing/browser.ts';
import { measureFrames } from './page-frames.ts';
import { printTable } from './print-table.ts';

const SERVICES = 1000;
const NAMESPACES = 20;
const RATE = 2000;
/** As many as a tick has (src/ui/edge-counter.ts). */
const EDGES = 600;
const WARM_MS = 4000;
const ENDPOINTS = [1, 2, 3];

const { values } = parseArgs({ options: { seconds: { type: 'string', default: '15' } } });
const SECONDS = Math.min(120, Number(values.seconds));

const nameOf = (i: number) => `team-${i % NAMESPACES}/service-${i}`;
const podOf = (i: number) => `default/hello-${i}`;
const addressOf = (i: number) => `10.244.${i % 2}.${i + 2}`;
const byName = <T extends { readonly name: string }>(list: readonly T[]) =>
  Object.fromEntries(list.map((one) => [one.name, one]));
const whole = (below: number) => Math.floor(Math.random() * below);

const pods = [...ENDPOINTS.map(podOf), 'default/client'].map(
  (name, i): PodView => ({
    ...{ name, node: `node-${(i % 2) + 1}`, addresses: [addressOf(i + 1)], phase: 'Running' },
    ...{ isReady: true, isHostNetwork: false, containers: ['main'] },
  }),
);
const services = Array.from(
  { length: SERVICES },
  (_, i): ServiceView => ({
    ...{ name: nameOf(i), type: 'ClusterIP', addresses: [`10.96.${i >> 8}.${i & 255}`] },
    ...{ externalAddresses: [], ports: ['80/TCP'], httpPorts: [80], hasSelector: false, isOnNodes: false },
    endpoints: ENDPOINTS.map((k) => ({
      ...{ addresses: [addressOf(k)], pod: podOf(k), node: `node-${(k % 2) + 1}`, state: 'ready' },
    })),
  }),
);

/** The events of a cluster before the first tick. */
const FIRST: readonly PageEvent[] = [
  { type: 'cluster', cluster: { name: 'bench', mode: 'nftables', ipFamily: 'ipv4', command: './fairlead' } },
  {
    type: 'objects',
    full: true,
    changes: {
      namespaces: Object.fromEntries(Array.from({ length: NAMESPACES }, (_, i) => [`team-${i}`, true])),
      nodes: byName(
        ['node-1', 'node-2'].map((name) => {
          return { name, isReady: true, isDrained: false, addresses: [], mode: null };
        }),
      ),
      services: byName(services),
      pods: byName(pods),
    },
  },
];

/** The flows of a second; its edges are other ones each time. */
function tick(): PageEvent {
  const edges = Array.from({ length: EDGES }, (): EdgeView => {
    const endpoint = podOf(ENDPOINTS[whole(ENDPOINTS.length)] ?? 1);
    const ends = { client: 'default/client', service: nameOf(whole(SERVICES)), endpoint };
    return { ...ends, verdict: 'delivered', count: 1 + whole(2), latencyMs: Math.random(), reason: null };
  });
  const each = RATE / SERVICES;
  const counts = Object.fromEntries(services.map(({ name }) => [name, [each, 0] as const]));
  return { type: 'tick', tick: { seconds: 1, edges, total: RATE, omittedEdges: EDGES, services: counts } };
}

function servePage(): Server {
  const files = readPageFiles();
  return createServer((request, response) => {
    const path = request.url ?? '/';
    const file = files.get(path);
    if (file) {
      response.writeHead(200, { 'content-type': file.type }).end(file.content);
      return;
    }
    if (path !== '/api/events') {
      response.writeHead(404).end();
      return;
    }
    response.writeHead(200, { 'content-type': 'text/event-stream' });
    const send = (event: PageEvent) => response.write(`data: ${JSON.stringify(event)}\n\n`);
    for (const event of FIRST) send(event);
    send(tick());
    const timer = setInterval(() => send(tick()), 1000);
    request.on('close', () => clearInterval(timer));
  });
}

const server = servePage().listen(0, '127.0.0.1');
await once(server, 'listening');
const url = `http://127.0.0.1:${(server.address() as AddressInfo).port}/`;
const browser = await startBrowser(findChromium() ?? '');
const page = await browser.newPage({ viewport: { width: 1280, height: 800 } });
async function type(): Promise<void> {
  await page.keyboard.press('/');
  for (let i = 0; i < SECONDS * 2; i++) {
    await page.keyboard.press(i % 8 < 4 ? '1' : 'Backspace');
    await sleep(500);
  }
}
const views: readonly { name: string; hash: string; act?: () => Promise<void> }[] = [
  { name: 'map, grouped by namespace', hash: '#map' },
  { name: 'map, one namespace', hash: '#map?ns=team-7' },
  { name: 'map, one Service', hash: '#map?service=team-7%2Fservice-7' },
  { name: 'map, while typing a search', hash: '#map', act: type },
];
try {
  await page.goto(url);
  await page.getByText('1,000 Services').waitFor();
  const rows = [
    ['', 'frames', 'median ms', '99 % ms', 'longest ms', 'over 50 ms', 'most work in a frame, CPU ms'],
  ];
  for (const { name, hash, act } of views) {
    await page.goto(`${url}${hash}`);
    await sleep(WARM_MS);
    const frames = await measureFrames(page, act ?? (() => sleep(SECONDS * 1000)));
    const { count, median, p99, longest, slow, work } = frames;
    rows.push([
      name,
      String(count),
      ...[median, p99, longest].map((ms) => ms.toFixed(1)),
      String(slow),
      work.toFixed(1),
    ]);
  }
  printTable(rows);
} finally {
  await browser.close();
  server.closeAllConnections();
  server.close();
}
