/**
 * Processor time that an API server takes to tell many watchers of many changes, beside kube-apiserver with etcd
 * where KUBEBUILDER_ASSETS names a folder with both.
 *
 *   node bench/watch-fan-out.ts [WATCHERS] [EVENTS] [ROUNDS]
 *
 * The first round of a server includes what a program that was just started does once, such as compiling its functions.
 */
import { once } from 'node:events';
import { setTimeout as sleep } from 'node:timers/promises';
import {
  type ApiServer,
  processorSeconds,
  request,
  startFairlead,
  startKubeApiserver,
} from './api-servers.ts';
import { printTable } from './print-table.ts';

const WATCHERS = Number(process.argv[2] ?? 100);
const EVENTS = Number(process.argv[3] ?? 500);
const ROUNDS = Number(process.argv[4] ?? 3);
const CREATORS = 4;
const WINDOW_BYTES = 512 * 1024 * 1024;
const CONFIG_MAPS = '/api/v1/namespaces/default/configmaps';

interface Result {
  readonly name: string;
  readonly seconds: number;
  readonly wall: number;
  readonly bytes: number;
}

async function measure(subject: ApiServer, accept: string, round: number): Promise<Result> {
  const watching = subject.open();
  // kube-apiserver ends the watches of clients that read slowly: no watch may wait for a window.
  await once(watching, 'connect');
  watching.setLocalWindowSize(WINDOW_BYTES);
  const writing = subject.open();
  const list = await request(watching, { ...subject.headers, ':path': `${CONFIG_MAPS}?limit=1` });
  const from = JSON.parse(list.body).metadata.resourceVersion;
  let bytes = 0;
  const seen: Promise<void>[] = [];
  for (let i = 0; i < WATCHERS; i++) {
    const stream = watching.request({
      ...subject.headers,
      accept,
      ':path': `${CONFIG_MAPS}?watch=true&resourceVersion=${from}&labelSelector=bench%3Dfan-out`,
    });
    let count = 0;
    seen.push(
      new Promise((resolve, reject) => {
        stream.on('close', () => reject(new Error(`a watch ended after ${count} events`)));
        let tail = Buffer.alloc(0);
        stream.on('data', (data: Buffer) => {
          bytes += data.length;
          // Every event contains its type once, in either format; the word may arrive in two pieces.
          const chunk = Buffer.concat([tail, data]);
          tail = chunk.subarray(-4);
          for (let at = chunk.indexOf('ADDED'); at >= 0; at = chunk.indexOf('ADDED', at + 1)) count++;
          if (count >= EVENTS) resolve();
        });
      }),
    );
    await once(stream, 'response');
  }
  console.error(`${subject.name}: ${WATCHERS} watches of ${accept} run`);
  const before = processorSeconds(subject.pids);
  const began = performance.now();
  let next = 0;
  const create = async () => {
    while (next < EVENTS) {
      const name = `fan-out-${accept.length}-${round}-${next++}`;
      const { status } = await request(
        writing,
        { ...subject.headers, ':method': 'POST', ':path': CONFIG_MAPS, 'content-type': 'application/json' },
        JSON.stringify({
          apiVersion: 'v1',
          kind: 'ConfigMap',
          metadata: { name, labels: { bench: 'fan-out' } },
          data: { text: 'x'.repeat(1000) },
        }),
      );
      if (status !== 201) throw new Error(`creation answered ${status}`);
    }
  };
  await Promise.all(Array.from({ length: CREATORS }, create));
  await Promise.all(seen);
  const wall = (performance.now() - began) / 1000;
  // Process times are counted in ticks; the remaining work is done by then.
  await sleep(300);
  const seconds = processorSeconds(subject.pids) - before;
  watching.destroy();
  writing.destroy();
  return { name: subject.name, seconds, wall, bytes };
}

const assets = process.env['KUBEBUILDER_ASSETS'];
const rows: string[][] = [['server', 'round', 'format', 'processor s', 'wall s', 'MB sent', 'ratio']];
const starts = [...(assets ? [() => startKubeApiserver(assets)] : []), startFairlead];
const reference = new Map<string, number>();
for (const start of starts) {
  const subject = await start();
  try {
    for (let round = 1; round <= ROUNDS; round++) {
      for (const accept of ['application/json', 'application/vnd.kubernetes.protobuf']) {
        const { name, seconds, wall, bytes } = await measure(subject, accept, round);
        const same = `${round} ${accept}`;
        const base = reference.get(same) ?? seconds;
        reference.set(same, base);
        rows.push([
          name,
          String(round),
          accept.replace(/^application\/(vnd\.kubernetes\.)?/, ''),
          seconds.toFixed(2),
          wall.toFixed(2),
          (bytes / 1e6).toFixed(1),
          (seconds / base).toFixed(2),
        ]);
      }
    }
  } finally {
    await subject.stop();
  }
}
console.log(`${WATCHERS} watchers, ${EVENTS} changes each`);
printTable(rows);
