import assert from 'node:assert/strict';
import { afterEach, beforeEach, describe, test } from 'node:test';
import { type ManualClock, manualClock } from '../lib/clock.ts';
import { FairleadError } from '../lib/errors.ts';
import { silentLogger } from '../lib/log.ts';
import { createServiceTable, type ServiceTable } from '../service/service-table.ts';
import { testNode } from '../service/testing/test-node.ts';
import { type ServiceProxy, startProxy } from './proxy-loop.ts';
import { type Applied, createProxyStream } from './proxy-stream.ts';
import { type FakeDataplane, fakeDataplane } from './testing/fake-dataplane.ts';

const SYNC_PERIOD_MS = 30_000;
const KEY = 'ipv4/10.96.0.1/TCP/80';

let clock: ManualClock;
let table: ServiceTable;
let dataplane: FakeDataplane;
let proxy: ServiceProxy;
let applied: Pick<Applied, 'whole'>[];
let events: string[];

beforeEach(() => {
  clock = manualClock(1_000_000);
  table = createServiceTable(testNode());
  dataplane = fakeDataplane();
  applied = [];
  events = [];
  const stream = createProxyStream();
  stream.on('applied', ({ whole }) => applied.push({ whole }));
  stream.on('failed', () => events.push('failed'));
  stream.on('refused', ({ refused }) => events.push(...refused.map(({ key }) => `refused ${key}`)));
  stream.on('drift', () => events.push('drift'));
  stream.on('drained', () => events.push('drained'));
  proxy = startProxy({
    table,
    dataplane,
    clock,
    logger: silentLogger,
    minSyncPeriodMs: 100,
    syncPeriodMs: SYNC_PERIOD_MS,
    stream,
  });
});
afterEach(async () => {
  dataplane.gate = null;
  await proxy.close();
});

/** Announces a change of the table. */
function change(ip = '10.96.0.1'): void {
  table.setService({
    metadata: { namespace: 'shop', name: `web-${ip}`, creationTimestamp: '2025-01-01T00:00:00Z' },
    spec: {
      type: 'ClusterIP',
      clusterIP: ip,
      clusterIPs: [ip],
      ports: [{ name: 'http', protocol: 'TCP', port: 80 }],
    },
  });
  proxy.notify();
}

/** Advances the clock, and runs everything that is then due. */
async function pass(ms = 0): Promise<void> {
  clock.advance(ms);
  for (let i = 0; i < 20; i++) {
    await new Promise((resolve) => setImmediate(resolve));
    clock.advance(0);
  }
}

describe('programming', () => {
  test('nothing is programmed before the first change is announced', async () => {
    await pass(1000);
    assert.deepEqual(dataplane.calls, []);
  });

  test('many changes in one turn are programmed together; the first time is a full sync', async () => {
    for (let i = 1; i < 50; i++) change(`10.96.0.${i}`);
    await pass();
    await proxy.programmed;
    assert.deepEqual([dataplane.calls, applied], [['sync'], [{ whole: true }]]);
    assert.equal(proxy.map?.frontends.size, 49);
  });

  test('changes after a programming wait together for the minimum time', async () => {
    change();
    await pass();
    change('10.96.0.2');
    await pass(40);
    change('10.96.0.3');
    await pass(59);
    assert.deepEqual(dataplane.calls, ['sync']);
    await pass(1);
    assert.deepEqual(dataplane.calls, ['sync', 'apply']);
  });

  test('an urgent change is programmed at once', async () => {
    change();
    await pass();
    change('10.96.0.2');
    proxy.notify({ urgent: true });
    await pass();
    assert.deepEqual(dataplane.calls, ['sync', 'apply']);
  });

  test('a change during a programming is programmed after it', async () => {
    const { promise, resolve } = Promise.withResolvers<void>();
    dataplane.gate = promise;
    change();
    await pass();
    change('10.96.0.2');
    await pass(200);
    assert.deepEqual(dataplane.calls, ['sync']);
    dataplane.gate = null;
    resolve();
    await pass(100);
    assert.deepEqual(dataplane.calls, ['sync', 'apply']);
    assert.equal(proxy.pendingSince, null);
  });
});

describe('failures', () => {
  test('full syncs are retried with increasing delays, regardless of changes', async () => {
    change();
    await pass();
    dataplane.faults.push(new Error('no memory'), new Error('no memory'));
    change('10.96.0.2');
    await pass(100);
    change('10.96.0.3');
    proxy.notify({ urgent: true });
    await pass(99);
    assert.equal(proxy.failure, 'no memory');
    assert.deepEqual(dataplane.calls, ['sync', 'apply']);
    await pass(1);
    assert.deepEqual(dataplane.calls, ['sync', 'apply', 'sync']);
    await pass(199);
    assert.equal(dataplane.calls.length, 3);
    await pass(1);
    assert.deepEqual(dataplane.calls, ['sync', 'apply', 'sync', 'sync']);
    assert.deepEqual(events, ['failed', 'failed']);
    assert.equal(proxy.pendingSince, null);
    assert.equal(proxy.failure, null);
  });

  test('a refused frontend is reported once, and retried with the next full sync', async () => {
    dataplane.refused.set(KEY, new Error('exists'));
    change();
    await pass();
    await proxy.programmed;
    await pass(100);
    assert.deepEqual(dataplane.calls, ['sync', 'sync']);
    dataplane.refused.clear();
    await pass(200);
    assert.deepEqual(dataplane.calls, ['sync', 'sync', 'sync']);
    await pass(SYNC_PERIOD_MS - 1);
    assert.deepEqual(dataplane.calls.length, 3);
    assert.deepEqual(events, [`refused ${KEY}`, 'failed', 'failed']);
  });

  test('a change without the refused frontend does not report it again', async () => {
    dataplane.refused.set(KEY, new Error('exists'));
    change();
    await pass();
    const refusal = new Map(dataplane.refused);
    dataplane.refused.clear();
    change('10.96.0.2');
    proxy.notify({ urgent: true });
    await pass();
    for (const [key, error] of refusal) dataplane.refused.set(key, error);
    await pass(100);
    assert.deepEqual(dataplane.calls, ['sync', 'apply', 'sync']);
    assert.equal(events.filter((event) => event.startsWith('refused')).length, 1);
  });

  test('an unsupported frontend is reported and not retried', async () => {
    dataplane.refused.set(KEY, new FairleadError('SCTP', { op: 'open listener', code: 'unsupported' }));
    change();
    await pass(SYNC_PERIOD_MS - 1);
    assert.deepEqual([dataplane.calls, events], [['sync'], [`refused ${KEY}`]]);
  });
});

describe('drift', () => {
  test('the kernel is compared after a period without work, and not written if it is equal', async () => {
    change();
    await pass();
    await pass(SYNC_PERIOD_MS);
    assert.deepEqual(dataplane.calls, ['sync', 'verify']);
    await pass(SYNC_PERIOD_MS);
    assert.deepEqual(dataplane.calls, ['sync', 'verify', 'verify']);
  });

  test('work postpones the comparison', async () => {
    change();
    await pass();
    await pass(SYNC_PERIOD_MS - 1);
    change('10.96.0.2');
    await pass();
    await pass(SYNC_PERIOD_MS - 1);
    assert.deepEqual(dataplane.calls, ['sync', 'apply']);
    await pass(1);
    assert.deepEqual(dataplane.calls, ['sync', 'apply', 'verify']);
  });

  test('a difference is reported, and everything is programmed again', async () => {
    change();
    await pass();
    dataplane.drifts = [{ object: 'table ip fairlead', kind: 'missing' }];
    proxy.check();
    await pass();
    assert.deepEqual([dataplane.calls, events], [['sync', 'verify', 'sync'], ['drift']]);
  });

  test('drifts() compares between two programmings and repairs nothing', async () => {
    change();
    await pass();
    dataplane.drifts = [{ object: 'table ip fairlead', kind: 'missing' }];
    const { promise, resolve } = Promise.withResolvers<void>();
    dataplane.gate = promise;
    change('10.96.0.2');
    await pass(100);
    const found = proxy.drifts();
    await pass();
    dataplane.gate = null;
    resolve();
    await pass();
    assert.deepEqual(await found, dataplane.drifts);
    assert.deepEqual(dataplane.calls, ['sync', 'apply', 'verify']);
  });
});

describe('a mode switch', () => {
  test('the new mode is complete before the previous one is removed and drains', async () => {
    change();
    await pass();
    const next = fakeDataplane('iptables');
    const order = [dataplane.calls, next.calls];
    const switched = proxy.switchTo(next);
    await pass();
    await switched;
    assert.deepEqual(order, [['sync', 'remove', 'close'], ['sync']]);
    assert.deepEqual([proxy.dataplane.mode, events], ['iptables', ['drained']]);
    change('10.96.0.2');
    await pass(100);
    assert.deepEqual(next.calls, ['sync', 'apply']);
  });

  test('a mode that cannot be programmed: the previous one continues after a full sync', async () => {
    change();
    await pass();
    const next = fakeDataplane('iptables');
    next.faults.push(new Error('no such module'));
    await Promise.all([assert.rejects(proxy.switchTo(next), /no such module/), pass()]);
    proxy.notify();
    await pass(100);
    assert.deepEqual([proxy.dataplane.mode, dataplane.calls], ['nftables', ['sync', 'sync']]);
  });

  test('a previous mode that cannot be removed: it is programmed completely before the switch fails', async () => {
    change();
    await pass();
    const next = fakeDataplane('iptables');
    dataplane.removalFaults.push(new Error('busy'));
    await Promise.all([assert.rejects(proxy.switchTo(next), /busy/), pass()]);
    assert.deepEqual([proxy.dataplane.mode, dataplane.calls], ['nftables', ['sync', 'remove', 'sync']]);
  });

  test('a switch ends the back-off of the previous mode', async () => {
    dataplane.faults.push(new Error('no memory'));
    change();
    await pass();
    const next = fakeDataplane('iptables');
    const switched = proxy.switchTo(next);
    await pass();
    await switched;
    await pass(1000);
    assert.deepEqual([dataplane.calls, next.calls], [['sync', 'remove', 'close'], ['sync']]);
  });

  test('closing rejects waiting calls', async () => {
    const { promise, resolve } = Promise.withResolvers<void>();
    dataplane.gate = promise;
    change();
    await pass();
    const waiting = assert.rejects(proxy.drifts(), { code: 'ended' });
    const closed = proxy.close();
    await waiting;
    resolve();
    await closed;
    assert.deepEqual(dataplane.calls, ['sync', 'close']);
  });
});
