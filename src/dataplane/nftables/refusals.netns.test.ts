import assert from 'node:assert/strict';
import { execFileSync } from 'node:child_process';
import { randomBytes } from 'node:crypto';
import { afterEach, beforeEach, test } from 'node:test';
import { createNetns, removeNetns } from '../../kernel/netns.ts';
import { hasCode } from '../../lib/errors.ts';
import type { Logger } from '../../lib/log.ts';
import type { Frontend, FrontendKey } from '../../service/model.ts';
import type { Dataplane } from '../dataplane.ts';
import { changeBetween, endpoint, frontend, serviceMap } from '../testing/service-map.ts';
import { createNftables } from './nftables.ts';

/** Tests the programming of a table if the kernel rejects part of it. */

let netns: string;
let dataplane: Dataplane;
let warnings: string[];

beforeEach(() => {
  netns = `flt-${randomBytes(3).toString('hex')}-refusals`;
  createNetns(netns);
  warnings = [];
  dataplane = open();
});
afterEach(async () => {
  await dataplane.close();
  removeNetns(netns);
});

/** Not owned, so that the test can change it. */
function open(owned = false): Dataplane {
  const note = (...parts: unknown[]) => void warnings.push(JSON.stringify(parts));
  const logger = { debug() {}, info() {}, warn: note, error: note, child: () => logger } as unknown as Logger;
  return createNftables({ families: ['ipv4'], netns, owned, logger });
}

const web = (n: number, count: number, key?: FrontendKey): Frontend => {
  const made = frontend({
    kind: 'ClusterIP',
    service: `web-${n}`,
    address: `10.96.0.${n}`,
    port: 80,
    endpoints: Array.from({ length: count }, (_, i) => endpoint(`10.244.1.${10 * n + i}`, 8080)),
  });
  return key === undefined ? made : { ...made, key };
};
const nft = (...args: string[]) => execFileSync('ip', ['netns', 'exec', netns, 'nft', ...args]).toString();

test('EEXIST: a frontend that the kernel rejects is reported and left out, and all others work', async () => {
  // Two frontends with the same address and port, which the ServiceTable never produces.
  const twin = { ...web(2, 2, 'ipv4/twin'), owner: { ...web(9, 1).owner, name: 'twin' } };
  const double = {
    ...twin,
    routes: web(3, 2).routes,
  };
  const map = serviceMap([web(1, 3), web(2, 2), double, web(4, 1)]);
  const report = await dataplane.sync(map);
  assert.deepEqual(
    report.failed.map(({ key }) => key),
    ['ipv4/twin'],
  );
  assert.ok(hasCode(report.failed[0]?.error, 'EEXIST'));
  assert.match(report.failed[0]?.error.message ?? '', /ipv4\/twin.*EEXIST/);
  assert.ok(warnings.some((text) => text.includes('ipv4/twin')));
  assert.deepEqual(await dataplane.verify(), []);
  assert.match(nft('list', 'map', 'ip', 'fairlead', 'services'), /10\.96\.0\.4 \. tcp \. 80/);

  const without = serviceMap([web(1, 3), web(2, 2), web(4, 1)]);
  assert.deepEqual((await dataplane.apply(changeBetween(map, without), without)).failed, []);
  assert.deepEqual(await dataplane.verify(), []);
});

test('EEXIST: another program’s element conflicts with a change', async () => {
  const before = serviceMap([web(1, 1)]);
  await dataplane.sync(before);
  nft('add element ip fairlead services { 10.96.0.2 . tcp . 80 : drop }');
  const after = serviceMap([web(1, 1), web(2, 1)]);
  const report = await dataplane.apply(changeBetween(before, after), after);
  assert.deepEqual(report.failed, []);
  assert.ok(warnings.some((text) => text.includes('elements of services: EEXIST')));
  assert.deepEqual(await dataplane.verify(), []);
});

test('ENOENT: an element that a change deletes is already deleted', async () => {
  const before = serviceMap([web(1, 1), web(2, 1)]);
  await dataplane.sync(before);
  nft('delete element ip fairlead services { 10.96.0.2 . tcp . 80 }');
  const after = serviceMap([web(1, 1)]);
  assert.deepEqual((await dataplane.apply(changeBetween(before, after), after)).failed, []);
  assert.deepEqual(await dataplane.verify(), []);
});

test('ENFILE: another program has filled a map', async () => {
  const before = serviceMap([web(1, 1)]);
  await dataplane.sync(before);
  const size = Number(/size (\d+)/.exec(nft('list', 'map', 'ip', 'fairlead', 'services'))?.[1]);
  const elements = Array.from({ length: size - 1 }, (_, i) => `10.99.${i >> 8}.${i & 255} . tcp . 80 : drop`);
  nft(`add element ip fairlead services { ${elements.join(', ')} }`);
  const after = serviceMap([web(1, 1), web(2, 1)]);
  const report = await dataplane.apply(changeBetween(before, after), after);
  assert.deepEqual(report.failed, []);
  assert.ok(
    warnings.some((text) => text.includes('ENFILE')),
    warnings.join(),
  );
  assert.deepEqual(await dataplane.verify(), []);
});

test('EBUSY: objects that other rules refer to are replaced anyway; ENOENT: the table was deleted', async () => {
  const before = serviceMap([web(1, 3)]);
  await dataplane.sync(before);
  nft('add chain ip fairlead theirs');
  nft('add rule ip fairlead theirs jump guard-rails');
  nft('add rule ip fairlead theirs ip daddr @cluster-ips drop');
  await dataplane.sync(before);
  assert.deepEqual(await dataplane.verify(), []);
  nft('delete table ip fairlead');
  const after = serviceMap([web(1, 2)]);
  assert.deepEqual((await dataplane.apply(changeBetween(before, after), after)).failed, []);
  assert.deepEqual(await dataplane.verify(), []);
});

test('EPERM: the table belongs to another process, until it exits', async () => {
  const other = open(true);
  const map = serviceMap([web(1, 1)]);
  try {
    await other.sync(map);
    await assert.rejects(dataplane.sync(map), (error) => {
      assert.ok(hasCode(error, 'EPERM'));
      assert.match((error as { hint?: string }).hint ?? '', /another/);
      return true;
    });
  } finally {
    await other.close();
  }
  assert.deepEqual((await dataplane.sync(map)).failed, []);
  assert.deepEqual(await dataplane.verify(), []);
});
