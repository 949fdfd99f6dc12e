import { NftConnection } from '../src/kernel/nftables/connection.ts';
import { DATA_TYPE, NFPROTO } from '../src/kernel/nftables/constants.ts';
import { clusterIP, podAddress } from './large-cluster.ts';
import {
  alternate,
  kernelMemory,
  type Measurement,
  PER_SERVICE,
  processorSince,
  type Step,
} from './programming-measurement.ts';

/** Number of cold starts; the fastest counts. */
const REPEATS = 6;

/** Measures the same elements in two maps, from arrays of numbers: the load of the prototype. */
export async function measureElements(netns: string, n: number): Promise<Measurement> {
  const { ipv4Address, protocol, port, mark } = DATA_TYPE;
  const room = (count: number) => 2 ** Math.ceil(Math.log2(count * 1.5));
  const before = kernelMemory();
  const heads = Array.from({ length: n }, (_, i) => Uint32Array.of(wordOf(clusterIP(i)), 6, 80 << 8));
  const data = new Uint32Array(n * PER_SERVICE * 2);
  for (let i = 0; i < n * PER_SERVICE; i++) {
    data[2 * i] = wordOf(podAddress(i));
    data[2 * i + 1] = 0x901f;
  }
  const connection = new NftConnection(netns);
  const load = async (): Promise<Step> => {
    const started = performance.now();
    const before = process.cpuUsage();
    const batch = connection.batch(NFPROTO.ipv4, { capacity: 1 << 20 });
    batch.reserve(n * PER_SERVICE * 64);
    batch.addTable('t');
    batch.addChain('t', 'pick');
    batch.addSet('t', { name: 's', key: [ipv4Address, protocol, port], data: 'verdict', size: room(n) });
    batch.addSet('t', {
      name: 'e',
      key: [ipv4Address, protocol, port, mark],
      data: [ipv4Address, port],
      size: room(n * PER_SERVICE),
    });
    for (const [i, head] of heads.entries()) {
      batch.addMapElements('t', 'e', head, 0, PER_SERVICE, data, i * PER_SERVICE * 2, 2);
    }
    for (const key of heads) batch.addElement('t', 's', { key, verdict: { goto: 'pick' } });
    const encoded = performance.now();
    await connection.commit(batch);
    const done = performance.now();
    const processor = processorSince(before);
    return { total: done - started, encode: encoded - started, kernel: done - encoded, processor };
  };
  const first = await load();
  const kept = kernelMemory() - before;
  let cold = first;
  for (let i = 0; i < REPEATS; i++) {
    const removal = connection.batch(NFPROTO.ipv4);
    removal.deleteTable('t');
    await connection.commit(removal);
    const step = await load();
    if (step.total < cold.total) cold = step;
  }
  const [endpointAdded, endpointRemoved] = await alternate(
    (k) => one(k, true),
    (k) => one(k, false),
  );
  async function one(k: number, on: boolean): Promise<Step> {
    const start = performance.now();
    const change = connection.batch(NFPROTO.ipv4);
    const key = [...(heads[(k * 7919) % n] ?? []), PER_SERVICE];
    if (on) change.addElement('t', 'e', { key, data: data.subarray(0, 2) });
    else change.deleteElement('t', 'e', { key });
    const ready = performance.now();
    connection.commitSync(change);
    const end = performance.now();
    return { total: end - start, encode: ready - start, kernel: end - ready, processor: null };
  }
  connection.close();
  return {
    compile: null,
    first,
    cold,
    again: null,
    endpointAdded,
    endpointRemoved,
    serviceAdded: null,
    serviceRemoved: null,
    verify: null,
    rss: null,
    heap: null,
    kernelMemory: kept,
  };
}

function wordOf(address: string): number {
  const [a = 0, b = 0, c = 0, d = 0] = address.split('.').map(Number);
  return (a | (b << 8) | (c << 16) | (d << 24)) >>> 0;
}
