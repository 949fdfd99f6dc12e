import assert from 'node:assert/strict';
import { test } from 'node:test';
import { setImmediate } from 'node:timers/promises';
import { manualClock } from '../../lib/clock.ts';
import { silentLogger } from '../../lib/log.ts';
import type { Frontend } from '../../service/model.ts';
import { endpoint, frontend } from '../testing/service-map.ts';
import { ListenerTable } from './listener-table.ts';
import { listenerOpener } from './pool-listener.ts';

const HERE = { ipv4: '127.0.0.1', ipv6: null, masqueradeBit: 14 };

function createScene() {
  const clock = manualClock(1000);
  const open = listenerOpener({
    ...{ netns: undefined, clock, random: () => 0, logger: silentLogger, policies: undefined },
    ...{ onOutcome: undefined, onFlow: () => {}, isWatched: () => false },
  });
  const table = new ListenerTable({ open, clock, netns: undefined, logger: silentLogger });
  table.restart(HERE, new Map());
  return { clock, table };
}

function web(...ips: string[]): Frontend {
  const endpoints = ips.map((ip) => endpoint(ip, 8080));
  return frontend({ kind: 'ClusterIP', service: 'web', address: '10.96.0.1', port: 80, endpoints });
}

function take(table: ListenerTable, one: Frontend) {
  const route = one.routes.pod;
  assert.ok(route.action === 'forward');
  return table.take(route.pool, one);
}

test('a listener serves while frontends use its pool, then accepts what is in flight, then ends', async () => {
  const { clock, table } = createScene();
  const listener = take(table, web('10.244.1.2'));
  assert.equal(take(table, web('10.244.1.2', '10.244.1.3')), listener, 'one for each pool');
  assert.deepEqual(
    listener.endpoints.map(({ ip }) => ip),
    ['10.244.1.2', '10.244.1.3'],
  );
  assert.deepEqual(table.sweep(), { opened: [listener], unused: [] });
  table.release(listener.pool);
  assert.deepEqual(table.sweep(), { opened: [], unused: [] }, 'another frontend uses it');

  table.release(listener.pool);
  assert.deepEqual(table.sweep(), { opened: [], unused: [listener] });
  assert.equal(table.get(listener.pool), undefined);
  assert.equal(table.at('TCP', listener.at), listener, 'rules may still lead to it');
  assert.equal(table.areLingering, false);

  table.retire(false);
  assert.equal(table.areLingering, true);
  const lingered = table.lingered();
  assert.ok(listener.proxy.listening);
  for (let i = 0; i < 4; i++) {
    clock.advance(400);
    await setImmediate();
  }
  await lingered;
  assert.equal(table.areLingering, false);
  assert.equal(table.at('TCP', listener.at), undefined);
  assert.equal(listener.proxy.listening, false);
  table.retire(false);
  assert.deepEqual([...table.all()], [], 'it has no connections');
  await table.close({ keepsConnections: false });
});

test('a listener at another address than the node has is replaced', async () => {
  const { table } = createScene();
  const listener = take(table, web('10.244.1.2'));
  table.sweep();
  table.restart({ ...HERE, ipv4: '127.0.0.2' }, new Map([[listener.pool, listener.at]]));
  const moved = take(table, web('10.244.1.2'));
  assert.equal(moved.at.ip, '127.0.0.2');
  assert.deepEqual(table.sweep(), { opened: [moved], unused: [listener] });
  assert.deepEqual([...table], [moved]);
  assert.deepEqual([...table.all()], [listener, moved]);
  await table.close({ keepsConnections: false });
});
