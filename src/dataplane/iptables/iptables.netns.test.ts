import assert from 'node:assert/strict';
import { existsSync } from 'node:fs';
import { after, before, describe, test } from 'node:test';
import { sendStraySynAck } from '../../kernel/tcp-segment.ts';
import { pause, systemClock } from '../../lib/clock.ts';
import { eventually } from '../../lib/testing/eventually.ts';
import { testAffinityToLostEndpoint, testManyClients } from '../testing/affinity-suite.ts';
import { testChangesInPlace, testRemoval } from '../testing/change-suite.ts';
import { testNodeSettings } from '../testing/node-suite.ts';
import { testAddressOfAnotherNode, testHairpin, testLoopback, testReach } from '../testing/reach-suite.ts';
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

/** Clients of a node port: three connections to addresses of 127.0.0.0/8, the others elsewhere. */
const CLIENTS: readonly (readonly [address: string, protocol: 'TCP' | 'UDP'])[] = [
  ['127.0.0.1', 'TCP'],
  ['127.0.0.1', 'UDP'],
  ['127.8.8.8', 'TCP'],
  ['::1', 'TCP'],
  ['192.0.2.10', 'TCP'],
];

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
    test('packets to node ports on loopback addresses and invalid packets are counted, others are not', async () => {
      const counted = async () =>
        (await scene.dataplane.abilities.counters?.read()) ?? assert.fail('no counters');
      const before = await counted();
      for (const [address, protocol] of CLIENTS) await scene.ask('node', protocol, address, 30020);
      for (const [family, times] of [
        ['ipv4', 2],
        ['ipv6', 1],
      ] as const) {
        const [from, to] = (['pod3', 'pod1'] as const).map((place) => scene.topology.address(place, family));
        for (let i = 0; i < times; i++) {
          const sent = [
            { ip: String(from), port: 4000 + i },
            { ip: String(to), port: 8080 },
          ] as const;
          sendStraySynAck(...sent, scene.topology.namespace('pod3'));
        }
      }
      const after = await counted();
      assert.equal(after.loopbackAccepted - before.loopbackAccepted, 3);
      assert.equal(after.invalidDropped - before.invalidDropped, 3);
      const listed = (tool: typeof iptables, ...words: string[]) =>
        Number(/^ +(\d+) .*(?:ctorigdst|INVALID)/m.exec(tool('-vxnL', ...words))?.[1] ?? 0);
      assert.equal(after.loopbackAccepted, listed(iptables, 'KUBE-SERVICES'));
      assert.equal(
        after.invalidDropped,
        listed(iptables, 'KUBE-FORWARD') + listed(ip6tables, 'KUBE-FORWARD'),
      );
    });
  });
  testRefusals(scene);
  testHairpin(scene);
  testAddressOfAnotherNode(scene);
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
    await eventually(() => noticed > 0);
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
