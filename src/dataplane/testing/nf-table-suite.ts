import assert from 'node:assert/strict';
import { test } from 'node:test';
import { pause, systemClock } from '../../lib/clock.ts';
import { eventually } from '../../lib/testing/eventually.ts';
import type { Dataplane } from '../dataplane.ts';
import { ALL, type ServiceScene } from './service-scene.ts';

/** The names that a mode uses in its nf_tables tables. */
export interface TableNames {
  readonly table: string;
  /** A base chain with rules. */
  readonly chain: string;
  /** The map with the frontends' addresses. */
  readonly frontends: string;
  /** A set of single addresses. */
  readonly addresses: string;
}

/** Tests the output of `nft list`. `refusal`: the chain for frontends without endpoints. */
export function testListing(scene: ServiceScene, refusal: string): void {
  test('nft lists the ruleset with the names of Services', async () => {
    await scene.sync([
      ...scene.service(88, ALL, 'external-local', { affinitySeconds: 5, allowedSources: ['192.0.2.0/24'] }),
      ...scene.service(89, []),
    ]);
    await scene.ask('outside', 'TCP', ...scene.destination('LoadBalancer', 'ipv4', 88));
    const { topology } = scene;
    const text = topology.run('node', 'nft', 'list', 'ruleset');
    assert.match(text, /10\.96\.0\.88 \. tcp \. 80 comment "shop\/s88:p" : goto/);
    assert.match(text, new RegExp(`10\\.96\\.0\\.89 \\. udp \\. 80 comment "shop/s89:p" : goto ${refusal}`));
    assert.ok(JSON.parse(topology.run('node', 'nft', '-j', 'list', 'ruleset')).nftables.length > 0);
  });
}

export function testOwnership(scene: ServiceScene, table: string): void {
  test('the table is owned by its process, and tables of other programs are kept', async () => {
    const nft = (...words: string[]) => scene.topology.run('node', 'nft', ...words);
    nft('add table ip theirs');
    nft('add chain ip theirs in { type filter hook input priority 0; }');
    await scene.sync(scene.service(90, ALL));
    assert.throws(() => nft('delete', 'table', 'ip', table), /not permitted/);
    nft('flush', 'chain', 'ip', 'theirs', 'in');
    assert.match(nft('list', 'tables'), /table ip theirs/);
    const to = scene.destination('ClusterIP', 'ipv4', 90);
    await scene.expectPlaces('pod3', 'TCP', to, ALL, scene.proxy);
  });
}

/**
 * Tests changes by other programs. `open` opens the mode with a table that its process does not own, and
 * with a callback for changes.
 */
export function testForeignChanges(
  scene: ServiceScene,
  { table, chain, frontends, addresses }: TableNames,
  open: (netns: string, onForeignChange: () => void) => Dataplane,
): void {
  test('changes by other programs are detected, reported and repaired', async () => {
    await scene.dataplane.remove();
    await scene.dataplane.close();
    let noticed = 0;
    scene.reopen((netns) => open(netns, () => noticed++));
    const nft = (...words: string[]) => scene.topology.run('node', 'nft', ...words);
    await scene.sync(scene.service(60, ['pod1']));
    await scene.apply(scene.service(60, ['pod1', 'pod2']));
    await scene.apply(scene.service(60, []));
    await scene.apply(scene.service(60, ['pod1', 'pod2']));
    nft('add', 'table', 'ip', 'other');
    await pause(systemClock, 200);
    assert.equal(noticed, 0, 'the mode’s own changes and other tables are not reported');
    nft('flush', 'chain', 'ip', table, chain);
    nft('delete', 'element', 'ip6', table, frontends, '{ fd00:96::60 . tcp . 80 }');
    nft('add', 'element', 'ip', table, addresses, '{ 1.2.3.4 }');
    await eventually(() => noticed > 0);
    const drifts = (await scene.dataplane.verify()).map(({ object, kind }) => `${kind} ${object}`);
    assert.deepEqual(drifts.sort(), [
      `different table ip ${table} chain ${chain}`,
      `missing table ip6 ${table} map ${frontends} element fd00:96::60 . tcp . 80`,
      `unexpected table ip ${table} map ${addresses} element 1.2.3.4`,
    ]);
    await scene.sync(scene.service(60, ['pod1', 'pod2']));
    await scene.expectVerified();
    nft('flush', 'ruleset');
    assert.equal((await scene.dataplane.verify()).length, 2);
    await scene.sync(scene.service(60, ['pod1', 'pod2']));
    await scene.expectVerified();
    await scene.dataplane.remove();
    await scene.dataplane.close();
    scene.reopen();
  });
}
