/**
 * Processor time and memory of an API server for creations, lists and the deletion of a collection, beside
 * kube-apiserver with etcd where KUBEBUILDER_ASSETS names a folder with both.
 *
 *   node bench/api-verbs.ts [OBJECTS] [LISTS]
 */
import type { ClientHttp2Session } from 'node:http2';
import { setTimeout as sleep } from 'node:timers/promises';
import {
  type ApiServer,
  processorSeconds,
  request,
  residentMegabytes,
  startFairlead,
  startKubeApiserver,
} from './api-servers.ts';
import { printTable } from './print-table.ts';

const OBJECTS = Number(process.argv[2] ?? 2000);
const LISTS = Number(process.argv[3] ?? 50);
const WRITERS = 4;
const CONFIG_MAPS = '/api/v1/namespaces/default/configmaps';

interface Cost {
  readonly work: string;
  readonly seconds: number;
  readonly wall: number;
}

/** Measures a piece of work of a server; the server's remaining work is done after a pause. */
async function costOf(server: ApiServer, work: string, run: () => Promise<void>): Promise<Cost> {
  const before = processorSeconds(server.pids);
  const began = performance.now();
  await run();
  const wall = (performance.now() - began) / 1000;
  await sleep(300);
  return { work, seconds: processorSeconds(server.pids) - before, wall };
}

async function measure(server: ApiServer): Promise<{ costs: Cost[]; idle: number; full: number }> {
  const session = server.open();
  const send = async (method: string, path: string, body?: string, accept = 'application/json') => {
    const headers = { ...server.headers, ':method': method, ':path': path, accept };
    const type = body === undefined ? {} : { 'content-type': 'application/json' };
    const { status } = await request(session as ClientHttp2Session, { ...headers, ...type }, body);
    if (status >= 300) throw new Error(`${server.name}: ${method} ${path} answered ${status}`);
  };
  const times = (count: number, one: (i: number) => Promise<void>) => async () => {
    let next = 0;
    const work = async () => {
      while (next < count) await one(next++);
    };
    await Promise.all(Array.from({ length: WRITERS }, work));
  };
  const object = (i: number) =>
    JSON.stringify({
      apiVersion: 'v1',
      kind: 'ConfigMap',
      metadata: { name: `verbs-${i}`, labels: { bench: 'verbs' } },
      data: { text: 'x'.repeat(1000) },
    });
  const idle = residentMegabytes(server.pids);
  const costs = [
    await costOf(
      server,
      `${OBJECTS} creations`,
      times(OBJECTS, (i) => send('POST', CONFIG_MAPS, object(i))),
    ),
    await costOf(
      server,
      `${LISTS} lists, JSON`,
      times(LISTS, () => send('GET', CONFIG_MAPS)),
    ),
    await costOf(
      server,
      `${LISTS} lists, Protobuf`,
      times(LISTS, () => send('GET', CONFIG_MAPS, undefined, 'application/vnd.kubernetes.protobuf')),
    ),
  ];
  const full = residentMegabytes(server.pids);
  costs.push(
    await costOf(server, 'deletecollection', () =>
      send('DELETE', `${CONFIG_MAPS}?labelSelector=bench%3Dverbs`),
    ),
  );
  session.destroy();
  return { costs, idle, full };
}

const assets = process.env['KUBEBUILDER_ASSETS'];
const rows: string[][] = [['server', 'work', 'processor s', 'wall s', 'ratio']];
const reference = new Map<string, number>();
for (const start of [...(assets ? [() => startKubeApiserver(assets)] : []), startFairlead]) {
  const server = await start();
  try {
    const { costs, idle, full } = await measure(server);
    const ratio = (what: string, value: number) => {
      const base = reference.get(what) ?? value;
      reference.set(what, base);
      return (value / base).toFixed(2);
    };
    for (const { work, seconds, wall } of costs) {
      rows.push([server.name, work, seconds.toFixed(2), wall.toFixed(2), ratio(work, seconds)]);
    }
    rows.push([server.name, 'MB resident, idle', idle.toFixed(0), '', ratio('idle', idle)]);
    rows.push([server.name, `MB resident, ${OBJECTS} objects`, full.toFixed(0), '', ratio('full', full)]);
  } finally {
    await server.stop();
  }
}
printTable(rows);
