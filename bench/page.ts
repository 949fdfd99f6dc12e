/**
 * The page of `fairlead ui` with 1,000 Services and 2,000 new connections a second: the frames that a real browser draws in
 * each view, and the processor time of the command that serves the page. A pod of a local cluster opens the connections, to
 * all Services in turn. Browser, cluster and load share the machine's processors. Needs root and Chromium, and a network
 * namespace of its own is sensible.
 *
 * node bench/page.ts [--seconds 15] [--rate 2000] [--typing 5]   runs of the search; 0: the other views only
 */
import { spawn } from 'node:child_process';
import { cpus } from 'node:os';
import { setTimeout as sleep } from 'node:timers/promises';
import { parseArgs } from 'node:util';
import { createClient } from '../src/kube/client.ts';
import { readKubeconfig } from '../src/kube/kubeconfig.ts';
import { httpTransport } from '../src/kube/transport.ts';
import { RESOURCES } from '../src/kube/types.ts';
import { findChromium } from '../tests/testing/browser.ts';
import { type Cluster, HELLO, LAUNCHER, startCluster } from '../tests/testing/cluster.ts';
import { openClusterPage } from '../tests/testing/cluster-page.ts';
import { type Frames, measureFrames } from './page-frames.ts';
import { printTable } from './print-table.ts';
import { processorTime } from './process-usage.ts';

const SERVICES = 1000;
const NAMESPACES = 20;
const CONCURRENCY = 8;
const WARM_MS = 5000;

const { values } = parseArgs({
  options: {
    seconds: { type: 'string', default: '15' },
    rate: { type: 'string', default: '2000' },
    typing: { type: 'string', default: '1' },
  },
});
const SECONDS = Math.min(120, Number(values.seconds));
const TYPING = Math.min(10, Number(values.typing));
const RATE = Math.min(5000, Number(values.rate));

/** Opens RATE connections a second to the addresses on standard input, in turn, and resets each once it is open. */
const LOAD = `
const { connect } = require('node:net');
const [rate] = process.argv.slice(1).map(Number);
let text = '';
process.stdin.on('data', (chunk) => { text += chunk; }).on('end', () => {
  const targets = JSON.parse(text);
  const begun = performance.now();
  let sent = 0, answered = 0, reported = begun;
  setInterval(() => {
    const due = Math.min(sent + rate / 10, Math.floor((performance.now() - begun) * rate / 1000));
    for (; sent < due; sent++) {
      const socket = connect(80, targets[sent % targets.length]);
      socket.on('connect', () => { answered++; socket.resetAndDestroy(); }).on('error', () => {});
    }
    if (performance.now() - reported > 1000) {
      console.log(Math.round(answered * 1000 / (performance.now() - reported)));
      answered = 0; reported = performance.now();
    }
  }, 20);
});
`;

/** Creates the Services, each with the pods of hello as its endpoints; returns their addresses. */
async function createServices(cluster: Cluster): Promise<string[]> {
  const pods = await cluster.pods('app=hello');
  const transport = httpTransport(readKubeconfig(cluster.kubeconfig));
  const client = createClient(transport, 'bench');
  const addresses: string[] = [];
  for (let i = 0; i < NAMESPACES; i++)
    await client.create(RESOURCES.namespaces, { metadata: { name: `team-${i}` } });
  let next = 0;
  const work = async () => {
    while (next < SERVICES) {
      const i = next++;
      const metadata = { name: `service-${i}`, namespace: `team-${i % NAMESPACES}` };
      const made = await client.create(RESOURCES.services, {
        metadata,
        spec: { ports: [{ name: 'http', port: 80, targetPort: 8080 }] },
      });
      addresses[i] = made.spec?.clusterIP ?? '';
      await client.create(RESOURCES.endpointSlices, {
        metadata: { ...metadata, labels: { 'kubernetes.io/service-name': metadata.name } },
        addressType: 'IPv4',
        ports: [{ name: 'http', port: 8080, protocol: 'TCP' }],
        endpoints: pods.map(({ name, node, ips }) => ({
          addresses: ips.slice(0, 1),
          nodeName: node,
          targetRef: { kind: 'Pod', namespace: 'default', name },
        })),
      });
    }
  };
  await Promise.all(Array.from({ length: CONCURRENCY }, work));
  transport.close();
  return addresses;
}

function startLoad(cluster: Cluster, targets: readonly string[]) {
  const words = [
    'exec',
    '--name',
    cluster.name,
    'client',
    '--',
    '/opt/fairlead/node',
    '-e',
    LOAD,
    String(RATE),
  ];
  const child = spawn(LAUNCHER, words, {
    stdio: ['pipe', 'pipe', 'inherit'],
    env: { ...process.env, FAIRLEAD_STATE: cluster.stateRoot },
  });
  let rates: number[] = [];
  child.stdout.on('data', (text: Buffer) => rates.push(...String(text).trim().split('\n').map(Number)));
  child.stdin.end(JSON.stringify(targets));
  return {
    /** Returns the connections per second since the last call. */
    takeRate() {
      const mean = rates.reduce((sum, rate) => sum + rate, 0) / rates.length;
      rates = [];
      return mean;
    },
    stop: () => child.kill('SIGKILL'),
  };
}

const cluster = await startCluster(['--nodes', '2', '-f', HELLO]);
const opened = await openClusterPage(cluster, findChromium() ?? '');
const { page, url, command } = opened;
const targets = await createServices(cluster);
const load = startLoad(cluster, targets);
const views: readonly { name: string; hash: string; act?: () => Promise<void> }[] = [
  { name: 'map, grouped by namespace', hash: '#map' },
  { name: 'map, one namespace', hash: '#map?ns=team-7' },
  { name: 'map, one Service', hash: '#map?service=team-7%2Fservice-7' },
  ...Array.from({ length: TYPING }, (_, i) => ({
    name: `map, while typing a search${TYPING > 1 ? `, run ${i + 1}` : ''}`,
    hash: '#map',
    async act() {
      await page.keyboard.press('/');
      for (let i = 0; i < SECONDS * 2; i++) {
        await page.keyboard.press(i % 8 < 4 ? '1' : 'Backspace');
        await sleep(500);
      }
    },
  })),
];
try {
  await page.goto(url);
  await page.getByText('1,003 Services').waitFor();
  const rows = [
    [
      '',
      'connections/s',
      'frames',
      'median ms',
      '99 % ms',
      'longest ms',
      'over 50 ms',
      'of them by own work',
      'most work in a frame, CPU ms',
      'busiest task, CPU ms',
      'server, of one processor',
    ],
  ];
  for (const { name, hash, act } of views) {
    await page.goto(`${url}${hash}`);
    await sleep(WARM_MS);
    load.takeRate();
    const before = processorTime(command.pid ?? 0);
    const begun = performance.now();
    const frames: Frames = await measureFrames(page, act ?? (() => sleep(SECONDS * 1000)));
    const seconds = (performance.now() - begun) / 1000;
    const share = (processorTime(command.pid ?? 0) - before) / seconds;
    const fixed = (value: number) => value.toFixed(1);
    const { count, median, p99, longest, slow, slowest, busiest, work, overworked } = frames;
    rows.push([
      name,
      load.takeRate().toFixed(0),
      String(count),
      ...[median, p99, longest].map(fixed),
      slow === 0 ? '0' : `${slow} (${fixed(slowest)} ms)`,
      String(overworked),
      fixed(work),
      fixed(busiest),
      `${fixed(share * 100)} %`,
    ]);
  }
  console.log(
    `node ${process.version}, ${cpus().length} x ${cpus()[0]?.model}; Chromium without a graphics processor`,
  );
  printTable(rows);
  for (const text of await page.locator('.notices p').allTextContents()) console.log(`notice: ${text}`);
} finally {
  load.stop();
  await opened.close();
  await cluster.down();
}
