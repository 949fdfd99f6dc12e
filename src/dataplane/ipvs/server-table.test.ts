import assert from 'node:assert/strict';
import { test } from 'node:test';
import { describeServer, type ServerId } from '../../kernel/ipvs/codec.ts';
import { IpvsBatch } from '../../kernel/ipvs/connection.ts';
import { endpoint } from '../testing/service-map.ts';
import type { PlannedServer } from './frontend-plan.ts';
import { SCHEDULERS } from './schedulers.ts';
import { Commands, ServerTable, serverOrder } from './server-table.ts';

const IDS: readonly ServerId[] = [
  { family: 'ipv4', mark: 7 },
  { family: 'ipv4', mark: 0xfa000001 },
  { family: 'ipv4', protocol: 6, address: '10.96.0.1', port: 53 },
  { family: 'ipv4', protocol: 17, address: '10.96.0.1', port: 53 },
  { family: 'ipv4', protocol: 6, address: '10.96.0.1', port: 443 },
  { family: 'ipv4', protocol: 6, address: '10.96.0.2', port: 80 },
  { family: 'ipv6', mark: 7 },
  { family: 'ipv6', protocol: 6, address: 'fd00::1', port: 80 },
];
const names = (ids: readonly ServerId[]) => ids.map(describeServer);

test('servers have a total order that does not depend on the order of the kernel’s list', () => {
  const mixed = [5, 2, 7, 0, 6, 3, 1, 4].flatMap((i) => IDS[i] ?? []);
  assert.deepEqual(names(mixed.toSorted(serverOrder)), names(IDS));
  assert.deepEqual(names(mixed.toSorted((a, b) => serverOrder(b, a))), names(IDS).reverse());
});

const ID: ServerId = { family: 'ipv4', protocol: 6, address: '10.96.0.1', port: 80 };
const rr = SCHEDULERS.rr ?? assert.fail();
const target = (ip: string) => endpoint(ip, 8080, false);
const planned = (scheduler: string, ...ips: string[]): PlannedServer => ({
  server: { id: ID, scheduler, schedulerFlags: 0, persistenceSeconds: null },
  endpoints: ips.map(target),
  spared: [],
  scheduler: SCHEDULERS[scheduler] ?? rr,
  holder: null,
});

/** Returns the writes of a call, in the words of error messages: additions and changes first. */
function written(call: (add: Commands, remove: Commands) => void): string[] {
  let sequence = 0;
  const batch = () => new IpvsBatch({ id: 0x21, version: 1, groups: new Map() }, () => ++sequence);
  const [add, remove] = [new Commands({ batch }), new Commands({ batch })];
  call(add, remove);
  return [add, remove].flatMap(({ batch, owners }) => {
    assert.equal(owners.length, batch.length, 'a refusal is assigned to the right Service');
    return Array.from({ length: batch.length }, (_, i) =>
      batch.object(i).replace('real server ', '').replace(' of TCP 10.96.0.1:80', ''),
    );
  });
}

test('a change writes only the commands that it needs', () => {
  const table = new ServerTable();
  const set = (plan: PlannedServer, drains = true) =>
    written((add, remove) => table.set(plan, 'web', drains, 0, add, remove));
  assert.deepEqual(set(planned('rr', '10.0.0.1', '10.0.0.2')), [
    'add TCP 10.96.0.1:80',
    'add 10.0.0.1:8080',
    'add 10.0.0.2:8080',
  ]);
  assert.deepEqual(set(planned('rr', '10.0.0.1', '10.0.0.2')), []);
  assert.deepEqual(set(planned('rr', '10.0.0.2', '10.0.0.3')), ['add 10.0.0.3:8080', 'change 10.0.0.1:8080']);
  assert.deepEqual(set(planned('rr', '10.0.0.3', '10.0.0.2')), [], 'a draining server needs no commands');
  assert.deepEqual(set(planned('rr', '10.0.0.1', '10.0.0.2', '10.0.0.3')), ['change 10.0.0.1:8080']);
  assert.deepEqual(set(planned('wlc', '10.0.0.1', '10.0.0.2', '10.0.0.3')), ['change TCP 10.96.0.1:80']);
  assert.deepEqual(set(planned('wlc', '10.0.0.1', '10.0.0.2'), false), ['delete 10.0.0.3:8080']);
  assert.deepEqual(set(planned('ovf', '10.0.0.1', '10.0.0.2')), [
    'change TCP 10.96.0.1:80',
    'change 10.0.0.1:8080',
    'change 10.0.0.2:8080',
  ]);
  assert.deepEqual(set(planned('dh', '10.0.0.2')), [
    'change TCP 10.96.0.1:80',
    'change 10.0.0.2:8080',
    'delete 10.0.0.1:8080',
  ]);
});

test('a real server that terminates keeps its flows while it serves, and is then removed at once', () => {
  const table = new ServerTable();
  const set = (plan: PlannedServer, ...spared: string[]) =>
    written((add, remove) =>
      table.set({ ...plan, spared: spared.map(target) }, 'dns', false, 0, add, remove),
    );
  set(planned('rr', '10.0.0.1', '10.0.0.2'));
  assert.deepEqual(set(planned('rr', '10.0.0.2'), '10.0.0.1'), ['change 10.0.0.1:8080']);
  assert.deepEqual(set(planned('rr', '10.0.0.2'), '10.0.0.1'), []);
  assert.equal(table.isDraining, false, 'it does not wait for its flows to end');
  assert.deepEqual(set(planned('rr', '10.0.0.2')), ['delete 10.0.0.1:8080']);
  assert.deepEqual(set(planned('rr', '10.0.0.2'), '10.0.0.1'), [], 'without flows none is added');
  set(planned('rr', '10.0.0.1', '10.0.0.2'));
  set(planned('rr', '10.0.0.2'), '10.0.0.1');
  assert.deepEqual(set(planned('rr', '10.0.0.1', '10.0.0.2')), ['change 10.0.0.1:8080'], 'it returns');
  assert.deepEqual(
    set(planned('dh', '10.0.0.2'), '10.0.0.1'),
    ['change TCP 10.96.0.1:80', 'delete 10.0.0.1:8080'],
    'a scheduler that selects servers of weight 0 too',
  );
});
