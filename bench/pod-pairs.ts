import { once } from 'node:events';
import { mkdtempSync, rmSync } from 'node:fs';
import { createServer, Socket } from 'node:net';
import { cpus, loadavg, tmpdir } from 'node:os';
import { join } from 'node:path';
import { listenTcpIn, openTcpIn } from '../src/kernel/netns.ts';
import { NodeNetwork } from '../src/network/node-network.ts';
import { openPodNetwork } from '../src/network/pod-network.ts';
import { sandbox, testNode, type Undo } from '../src/network/testing/packets.ts';

/** Two pods of one node; the server echoes at port 80. */
export interface Pair {
  readonly server: string;
  readonly client: string;
  readonly clientNetns: string;
}

const PORT = 80;
/** Measurements that are not counted: the first ones are slower. */
const WARM_UP = 300;

/** Connects pods to a node's network; the result attaches pairs of them, which stay attached after `closePods`. */
export function startNode(
  undo: Undo,
  number: number,
  netns: string,
  masquerade: boolean,
): (() => Promise<Pair>) & { closePods(): void } {
  const podCidrs = [`10.100.${number}.0/24`];
  const network = new NodeNetwork({
    ...testNode(number),
    node: `node-${number}`,
    podCidrs,
    overlay: 'routes',
    masquerade,
    netns,
  });
  undo.add(() => network.close());
  network.syncRoutes([]);
  const stateDir = mkdtempSync(join(tmpdir(), 'flb-'));
  undo.add(() => rmSync(stateDir, { recursive: true }));
  const pods = openPodNetwork({ network, stateDir });
  let isOpen = true;
  const closePods = () => {
    if (isOpen) pods.close();
    isOpen = false;
  };
  undo.add(closePods);
  let count = 0;
  const attach = async (inside: string) => {
    const name = `pod-${number}-${count++}`;
    return (await pods.attach({ uid: name, namespace: 'bench', name }, inside)).ips[0] ?? '';
  };
  const pair = async () => {
    const [serverNetns, clientNetns] = [sandbox(undo), sandbox(undo)];
    const [server, client] = [await attach(serverNetns), await attach(clientNetns)];
    const listener = createServer((socket) => {
      socket.setNoDelay();
      socket.on('error', () => socket.destroy());
      socket.pipe(socket);
    }).listen({ fd: listenTcpIn(serverNetns, server, PORT) });
    await once(listener, 'listening');
    undo.add(() => listener.close());
    return { server, client, clientNetns };
  };
  return Object.assign(pair, { closePods });
}

/** Measures milliseconds from connect to connected, of each pair. */
export function measureConnections<K extends string>(
  count: number,
  pairs: Readonly<Record<K, Pair>>,
): Promise<Record<K, number[]>> {
  return inTurns(count, pairs, async (pair) => {
    const { socket, took } = await connect(pair);
    socket.destroy();
    return took;
  });
}

/** Measures milliseconds of one byte and its echo over an open connection, of each pair; `inRow` of them at each turn. */
export async function measureRoundTrips<K extends string>(
  count: number,
  pairs: Readonly<Record<K, Pair>>,
  inRow = 1,
): Promise<Record<K, number[]>> {
  const names = Object.keys(pairs) as K[];
  const sockets = await Promise.all(names.map(async (name) => (await connect(pairs[name])).socket));
  const open = Object.fromEntries(names.map((name, i) => [name, sockets[i]])) as Record<K, Socket>;
  try {
    return await inTurns(count, open, async (socket) => {
      const started = performance.now();
      for (let i = 0; i < inRow; i++) {
        const echoed = once(socket, 'data');
        socket.write('x');
        await echoed;
      }
      return (performance.now() - started) / inRow;
    });
  } finally {
    for (const socket of sockets) socket.destroy();
  }
}

/**
 * Measures each subject `count` times, in turns, so that other work on the machine affects all alike; in random order,
 * because each one finds the processor's caches as the previous one left them.
 */
async function inTurns<K extends string, T>(
  count: number,
  subjects: Readonly<Record<K, T>>,
  measure: (subject: T) => Promise<number>,
): Promise<Record<K, number[]>> {
  const names = Object.keys(subjects) as K[];
  const times = Object.fromEntries(names.map((name) => [name, [] as number[]])) as Record<K, number[]>;
  for (let round = 0; round < WARM_UP + count; round++) {
    for (const name of shuffled(names)) {
      const took = await measure(subjects[name]);
      if (round >= WARM_UP) times[name].push(took);
    }
  }
  return times;
}

async function connect({ clientNetns, server }: Pair): Promise<{ socket: Socket; took: number }> {
  const socket = new Socket({ fd: openTcpIn(clientNetns, 'ipv4') });
  socket.setNoDelay();
  const started = performance.now();
  socket.connect(PORT, server);
  await once(socket, 'connect');
  return { socket, took: performance.now() - started };
}

function shuffled<T>(list: readonly T[]): T[] {
  return list
    .map((value) => ({ value, at: Math.random() }))
    .sort((a, b) => a.at - b.at)
    .map(({ value }) => value);
}

export const percentile = (list: readonly number[], share: number): number =>
  list.toSorted((a, b) => a - b)[Math.min(list.length - 1, Math.floor(list.length * share))] ?? 0;

/** Returns median, 99th percentile and maximum as text. */
export const figures = (list: readonly number[], digits: number): string[] => [
  percentile(list, 0.5).toFixed(digits),
  percentile(list, 0.99).toFixed(digits),
  Math.max(...list).toFixed(digits),
];

/** Returns the ratio of the medians as text. */
export const ratio = (a: readonly number[], b: readonly number[]): string =>
  (percentile(a, 0.5) / percentile(b, 0.5)).toFixed(3);

export const machineText = (): string =>
  `${cpus()[0]?.model}, ${cpus().length} processors, load average ${loadavg()
    .map((one) => one.toFixed(1))
    .join(', ')}`;
