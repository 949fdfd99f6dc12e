import assert from 'node:assert/strict';
import { existsSync } from 'node:fs';
import { after, before, describe, test } from 'node:test';
import { pause, systemClock } from '../../lib/clock.ts';
import { testAffinityToLostEndpoint, testManyClients } from '../testing/affinity-suite.ts';
import { testChangesInPlace, testRemoval } from '../testing/change-suite.ts';
import { testNodeSettings } from '../testing/node-suite.ts';
import { testHairpin, testLoopback, testReach } from '../testing/reach-suite.ts';
import { testRefusals } from '../testing/refusal-suite.ts';
import { ALL, createServiceScene, FAMILIES } from '../testing/service-scene.ts';
import { createIptables } from './iptables.ts';
import type { Variant } from './restore.ts';

for (const variant of ['nft', 'legacy'] as const) {
  const installed = existsSync(`/usr/sbin/iptables-${variant}`);
  describe(
    `iptables mode, ${variant}`,
    { skip: installed ? false : `iptables-${variant} is not installed` },
    () => suite(variant),
  );
}

function suite(variant: Variant): void {
  const scene = createServiceScene({
    open: (netns) => createIptables({ families: FAMILIES, variant, netns }),
  });
  before(() => scene.start());
  after(() => scene.close());

  const iptables = (...words: string[]) => scene.topology.run('node', `iptables-${variant}`, ...words);
  const ip6tables = (...words: string[]) => scene.topology.run('node', `ip6tables-${variant}`, ...words);

  testReach(scene, () => {
    testLoopback(scene);
    test('dropped packets are counted', {
      skip: existsSync('/usr/sbin/nft') ? false : 'nft is not installed',
    }, () => {
      assert.match(iptables('-vnL', 'KUBE-PROXY-LOCALNET'), /^ +1 .*DROP/m);
    });
  });
  testRefusals(scene);
  testHairpin(scene);
  testManyClients(scene);
  testAffinityToLostEndpoint(scene);
  testChangesInPlace(scene);

  test('changes by other programs are detected, reported and repaired', async () => {
    await scene.dataplane.close();
    let noticed = 0;
    scene.reopen((netns) =>
      createIptables({ families: FAMILIES, variant, netns, onForeignChange: () => noticed++ }),
    );
    await scene.sync(scene.service(60, ['pod1']));
    await scene.apply(scene.service(60, ['pod1', 'pod2']));
    await pause(systemClock, 700);
    assert.equal(noticed, 0, 'our own changes are not foreign');
    iptables('-t', 'nat', '-F', 'KUBE-SERVICES');
    ip6tables('-t', 'nat', '-D', 'PREROUTING', '1');
    for (let i = 0; i < 100 && noticed === 0; i++) await pause(systemClock, 20);
    assert.ok(noticed > 0);
    const drifts = await scene.dataplane.verify();
    assert.ok(drifts.some((d) => d.object.endsWith('chain KUBE-SERVICES') && d.kind === 'different'));
    assert.ok(drifts.some((d) => /ip6tables.* chain PREROUTING rule .*KUBE-SERVICES/.test(d.object)));
    await scene.sync(scene.service(60, ['pod1', 'pod2']));
    await scene.expectVerified();
    await scene.dataplane.close();
    scene.reopen();
  });

  test('a restart adopts the rules and writes nothing', async () => {
    const frontends = [...scene.service(61, ALL, 'plain', { affinitySeconds: 9 }), ...scene.service(62, [])];
    await scene.sync(frontends);
    await scene.dataplane.close();
    scene.reopen();
    assert.equal((await scene.sync(frontends)).operations, 0);
  });

  test('a service port that iptables rejects is reported and left out, and the others work', async () => {
    const bad = scene
      .service(71, ['pod1'])
      .map((f) => ({ ...f, port: f.kind === 'ClusterIP' ? 99_999 : f.port }));
    const report = await scene.sync([...scene.service(70, ['pod1']), ...bad]);
    assert.ok(report.failed.length > 0 && report.failed.every(({ key }) => bad.some((f) => f.key === key)));
    await scene.expectPlaces('pod3', 'TCP', scene.destination('ClusterIP', 'ipv4', 70), ['pod1'], false);
  });

  testNodeSettings(scene);
  testRemoval(
    scene,
    () => {
      iptables('-t', 'nat', '-N', 'THEIRS');
      iptables('-t', 'nat', '-A', 'PREROUTING', '-j', 'THEIRS');
      iptables('-N', 'KUBE-FIREWALL');
    },
    () => {
      const left = ['iptables', 'ip6tables']
        .map((tool) => scene.topology.run('node', `${tool}-${variant}-save`))
        .join('');
      const own = left.split('\n').filter((line) => /KUBE/.test(line));
      assert.deepEqual(own, [':KUBE-FIREWALL - [0:0]']);
      assert.match(left, /-A PREROUTING -j THEIRS/);
    },
  );
}
