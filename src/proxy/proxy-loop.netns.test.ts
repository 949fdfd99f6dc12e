import assert from 'node:assert/strict';
import { execFileSync } from 'node:child_process';
import { randomBytes } from 'node:crypto';
import { afterEach, beforeEach, test } from 'node:test';
import type { Dataplane } from '../dataplane/dataplane.ts';
import { createNftables } from '../dataplane/nftables/nftables.ts';
import { createNetns, removeNetns } from '../kernel/netns.ts';
import { type ManualClock, manualClock } from '../lib/clock.ts';
import { errorCode } from '../lib/error-codes.ts';
import { FairleadError } from '../lib/errors.ts';
import { type Logger, silentLogger } from '../lib/log.ts';
import type { EndpointSliceObject, ServiceObject } from '../service/objects.ts';
import { createServiceTable, type ServiceTable } from '../service/service-table.ts';
import { testNode } from '../service/testing/test-node.ts';
import { type ServiceProxy, startProxy } from './proxy-loop.ts';
import { type Applied, createProxyStream } from './proxy-stream.ts';

/**
 * Tests the proxy of a node when its kernel refuses, stalls and recovers: the real proxy, with injected
 * faults.
 */

let netns: string;
let clock: ManualClock;
let table: ServiceTable;
let real: Dataplane;
let proxy: ServiceProxy;
let log: string[];
let applied: Applied[];
let failures: number;
let refusals: string[];
/** Calls of the dataplane so far, and the faults for the next ones. */
let calls: ('sync' | 'apply')[];
let faults: Error[];
/** Frontends that the simulated kernel refuses, by key. */
let refuse: Map<string, Error>;
let gate: Promise<void> | null;
let atWork = 0;

const kernelError = (code: string, object = 'elements of endpoints-3') =>
  new FairleadError(`the kernel refused ${object}: ${code}`, {
    op: 'program nf_tables',
    code: errorCode(code),
    object,
  });

/** The nftables mode with the injected faults. */
function disturbed(dataplane: Dataplane): Dataplane {
  const call = async (how: 'sync' | 'apply', work: () => ReturnType<Dataplane['sync']>) => {
    calls.push(how);
    assert.equal(atWork++, 0, 'calls overlap');
    try {
      await gate;
      const fault = faults.shift();
      if (fault) throw fault;
      const report = await work();
      const refused = [...refuse].map(([key, error]) => ({ key, error }));
      return { ...report, failed: [...report.failed, ...refused] };
    } finally {
      atWork--;
    }
  };
  return {
    ...dataplane,
    sync: (map) => call('sync', () => dataplane.sync(map)),
    apply: (change, map) => call('apply', () => dataplane.apply(change, map)),
  };
}

beforeEach(() => {
  netns = `flt-${randomBytes(3).toString('hex')}-proxy`;
  createNetns(netns);
  clock = manualClock(1_000_000);
  table = createServiceTable(testNode());
  [log, applied, refusals, calls, faults] = [[], [], [], [], []];
  [failures, refuse, gate, atWork] = [0, new Map(), null, 0];
  const note = (fields: object, message: string) => void log.push(`${message} ${JSON.stringify(fields)}`);
  const logger: Logger = { ...silentLogger, warn: note, error: note, child: () => logger };
  real = createNftables({ families: ['ipv4'], netns });
  const stream = createProxyStream();
  stream.on('applied', (one) => applied.push(one));
  stream.on('failed', () => void failures++);
  stream.on('refused', ({ refused }) => refusals.push(...refused.map(({ key }) => key)));
  proxy = startProxy({
    table,
    dataplane: disturbed(real),
    clock,
    logger,
    minSyncPeriodMs: 0,
    syncPeriodMs: 3_600_000,
    stream,
  });
});
afterEach(async () => {
  gate = null;
  await proxy.close();
  removeNetns(netns);
});

function service(n: number): ServiceObject {
  return {
    metadata: { namespace: 'shop', name: `web-${n}`, creationTimestamp: '2025-01-01T00:00:00Z' },
    spec: {
      type: 'ClusterIP',
      clusterIP: `10.96.0.${n}`,
      clusterIPs: [`10.96.0.${n}`],
      ports: [{ name: 'http', protocol: 'TCP', port: 80 }],
    },
  };
}

function slice(n: number, count: number): EndpointSliceObject {
  return {
    metadata: {
      namespace: 'shop',
      name: `web-${n}-a`,
      labels: { 'kubernetes.io/service-name': `web-${n}` },
    },
    addressType: 'IPv4',
    ports: [{ name: 'http', protocol: 'TCP', port: 8080 }],
    endpoints: Array.from({ length: count }, (_, i) => ({
      addresses: [`10.244.${n}.${i + 1}`],
      conditions: { ready: true },
    })),
  };
}

function set(n: number, endpoints: number): void {
  table.setService(service(n));
  table.setSlice(slice(n, endpoints));
  proxy.notify();
}

const keyOf = (n: number) => `ipv4/10.96.0.${n}/TCP/80`;
/** Runs everything that is due; `ms`: after advancing the clock. */
async function pass(ms = 0): Promise<void> {
  clock.advance(ms);
  // Large transactions wait for another thread, for which turns of the event loop are not enough.
  for (let i = 0; i < 4000; i++) {
    await new Promise((resolve) => setImmediate(resolve));
    clock.advance(0);
    if (i > 5 && atWork === 0) break;
    if (atWork > 0 && gate === null) await new Promise((resolve) => setTimeout(resolve, 5));
  }
}
const nft = (...args: string[]) => execFileSync('ip', ['netns', 'exec', netns, 'nft', ...args]).toString();
const inKernel = () =>
  [...nft('list', 'map', 'ip', 'fairlead', 'services').matchAll(/10\.96\.0\.(\d+)/g)].length;

for (const code of ['ENOSPC', 'EEXIST', 'EBUSY', 'ENOMEM']) {
  test(`${code} during a full sync: logged, retried with increasing delays, and healthy when it succeeds`, async () => {
    faults = [kernelError(code), kernelError(code), kernelError(code)];
    set(1, 3);
    await pass();
    assert.deepEqual([calls.length, failures, applied.length], [1, 1, 0]);
    assert.match(log.join('\n'), new RegExp(`elements of endpoints-3: ${code}`));
    const since = proxy.pendingSince;
    assert.equal(since, 1_000_000);
    // Changes in the meantime do not trigger an earlier retry.
    set(2, 2);
    await pass(99);
    assert.equal(calls.length, 1);
    await pass(1);
    assert.equal(calls.length, 2);
    await pass(199);
    assert.equal(calls.length, 2);
    await pass(1);
    assert.equal(calls.length, 3);
    assert.equal(proxy.pendingSince, since);
    await pass(400);
    assert.deepEqual(calls, ['sync', 'sync', 'sync', 'sync']);
    assert.deepEqual([proxy.pendingSince, proxy.lastAppliedAt, inKernel()], [null, clock.now(), 2]);
    assert.deepEqual(await real.verify(), []);
    await proxy.programmed;
    // Afterwards changes work normally.
    set(3, 1);
    await pass();
    assert.deepEqual([calls.at(-1), inKernel()], ['apply', 3]);
  });
}

test('an error in a change: everything is programmed again, including later changes', async () => {
  set(1, 3);
  await pass();
  faults = [kernelError('EBUSY')];
  set(2, 2);
  await pass();
  table.deleteService('shop', 'web-1');
  table.deleteSlice('shop', 'web-1-a');
  set(3, 5);
  await pass(100);
  assert.deepEqual(calls, ['sync', 'apply', 'sync']);
  assert.equal(applied.at(-1)?.whole, true);
  assert.equal(inKernel(), 2);
  assert.deepEqual(await real.verify(), []);
});

test('a refused frontend: its Service is reported once, all others work at once, and it is retried', async () => {
  refuse.set(keyOf(2), kernelError('EEXIST', `the frontend ${keyOf(2)}`));
  set(1, 3);
  set(2, 2);
  await pass();
  await proxy.programmed;
  assert.deepEqual(refusals, [keyOf(2)]);
  assert.equal(log.filter((line) => line.includes('"service":"shop/web-2"')).length, 1);
  assert.deepEqual([applied.length, failures, proxy.pendingSince], [1, 1, null]);
  // Other Services change at once, at the usual cost of a change.
  set(3, 1);
  await pass();
  assert.deepEqual(calls, ['sync', 'apply']);
  assert.equal(inKernel(), 3);
  await pass(100);
  assert.deepEqual(calls, ['sync', 'apply', 'sync']);
  await pass(199);
  assert.equal(calls.length, 3);
  await pass(1);
  assert.equal(calls.length, 4);
  refuse.clear();
  await pass(400);
  assert.equal(calls.length, 5);
  assert.equal(failures, 3);
  assert.deepEqual(refusals, [keyOf(2)]);
  await pass(60_000);
  assert.equal(calls.length, 5);
});

test('an unsupported frontend is reported once and not retried', async () => {
  refuse.set(keyOf(2), new FairleadError('SCTP', { op: 'open listener', code: 'unsupported' }));
  set(1, 3);
  set(2, 2);
  await pass();
  set(1, 4);
  await pass(60_000);
  assert.deepEqual([calls, failures, refusals], [['sync', 'apply'], 0, [keyOf(2)]]);
});

test('a Service is deleted, and recreated, while it is being programmed', async () => {
  set(1, 3);
  await pass();
  const opened = Promise.withResolvers<void>();
  gate = opened.promise;
  set(2, 3);
  await pass();
  assert.deepEqual(calls, ['sync', 'apply']);
  table.deleteService('shop', 'web-2');
  proxy.notify();
  await pass();
  table.deleteSlice('shop', 'web-2-a');
  set(3, 2);
  await pass();
  table.deleteService('shop', 'web-1');
  set(1, 1);
  await pass();
  assert.equal(calls.length, 2);
  gate = null;
  opened.resolve();
  await pass();
  assert.equal(inKernel(), 2);
  assert.equal(proxy.pendingSince, null);
  assert.deepEqual(await real.verify(), []);
});

test('a failed mode switch: the previous mode continues, including later changes', async () => {
  set(1, 3);
  await pass();
  const next: Dataplane = {
    ...real,
    mode: 'iptables',
    sync: () => Promise.reject(kernelError('ENOSPC', 'a rule')),
  };
  table.setService(service(2));
  table.setSlice(slice(2, 2));
  await assert.rejects(proxy.switchTo(next), /ENOSPC/);
  proxy.notify();
  await pass();
  assert.equal(proxy.dataplane.mode, 'nftables');
  assert.equal(inKernel(), 2);
  assert.deepEqual(await real.verify(), []);
});

test('bad objects among good ones, and 5,000 endpoints in one Service', async () => {
  set(1, 3);
  table.setSlice({
    ...slice(2, 0),
    endpoints: [{ addresses: ['no address'] }, { addresses: [] }, { addresses: ['10.244.2.1'] }],
    ports: [
      { name: 'http', protocol: 'TCP', port: 8080 },
      { name: 'http', protocol: 'TCP', port: 8080 },
      { name: 'http', protocol: 'QUIC', port: 443 },
    ],
  });
  table.setService(service(2));
  table.setSlice({ ...slice(3, 2), metadata: { namespace: 'shop', name: '' } });
  table.setService(service(3));
  for (let part = 0; part < 50; part++) {
    const hundred = slice(4, 100);
    table.setSlice({
      ...hundred,
      metadata: { ...hundred.metadata, name: `web-4-${part}` },
      endpoints: hundred.endpoints?.map((_, i) => ({ addresses: [`10.245.${part}.${i + 1}`] })) ?? [],
    });
  }
  table.setService(service(4));
  proxy.notify();
  await pass();
  assert.equal(inKernel(), 4);
  assert.deepEqual(await real.verify(), []);
  const route = proxy.map?.frontends.get(keyOf(4))?.routes.pod;
  assert.equal(route?.action === 'forward' && route.pool.endpoints.length, 5000);
});
