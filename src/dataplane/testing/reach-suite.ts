import assert from 'node:assert/strict';
import { existsSync } from 'node:fs';
import { before, describe, test } from 'node:test';
import { ALL, everywhere, KINDS, LOCAL, POLICIES, PROTOCOLS, type ServiceScene } from './service-scene.ts';
import { SILENCE_MS } from './topology.ts';

/**
 * Tests which endpoints clients of every kind reach through every kind of frontend under every traffic
 * policy, and which source address the endpoints see. `more`: further tests of the mode with the same
 * Services, from number 20 for the first policy.
 */
export function testReach(scene: ServiceScene, more: () => void = () => {}): void {
  describe('reached endpoints and the source address that they see', () => {
    before(async () => {
      const report = await scene.sync(POLICIES.flatMap((policy, i) => scene.service(20 + i, ALL, policy)));
      assert.deepEqual(report.failed, []);
    });
    for (const from of ['pod3', 'node', 'outside'] as const) {
      for (const kind of KINDS) {
        for (const [i, policy] of POLICIES.entries()) {
          const external = kind !== 'ClusterIP';
          const local =
            (policy === 'internal-local' && !external) ||
            (policy === 'external-local' && external && from === 'outside');
          const masqueraded =
            scene.proxy ||
            from === 'node' ||
            (from === 'pod3' ? external && policy !== 'external-local' : !(local && external));
          test(`${from} → ${kind}, ${policy}: ${local ? 'local' : 'all'} endpoints${masqueraded ? ', masqueraded' : ''}`, () =>
            everywhere((family, protocol) => {
              const to = scene.destination(kind, family, 20 + i);
              return scene.expectPlaces(from, protocol, to, local ? LOCAL : ALL, masqueraded);
            }));
        }
      }
    }
    more();
    test('the kernel has the expected state', () => scene.expectVerified());
  });
}

/** Tests loopback addresses of the node, with the Services of `testReach`. */
export function testLoopback(scene: ServiceScene): void {
  test('node ports answer on the loopback address', async () => {
    for (const protocol of PROTOCOLS) {
      for (const address of ['127.0.0.1', '::1']) {
        await scene.expectPlaces('node', protocol, [address, 30020], ALL, true);
      }
    }
  });
  testLoopbackServers(scene);
  test('packets from outside to a loopback address are dropped', {
    skip: existsSync('/usr/sbin/nft') ? false : 'nft is not installed',
  }, async () => {
    const { topology } = scene;
    await topology.serve('node', 7777);
    // No program can send such a packet directly: the destination is rewritten after routing.
    topology.run('outside', 'nft', 'add table ip martian');
    topology.run(
      'outside',
      'nft',
      'add chain ip martian post { type filter hook postrouting priority 300; }',
    );
    topology.run('outside', 'nft', 'add rule ip martian post ip daddr 198.18.0.1 ip daddr set 127.0.0.1');
    const answer = await topology.ask('outside', 'UDP', '198.18.0.1', 7777, undefined, SILENCE_MS);
    assert.equal(answer, 'silence');
  });
}

export function testLoopbackServers(scene: ServiceScene): void {
  test('servers of the node on loopback addresses see the client’s address', async () => {
    await scene.topology.serve('node', 7778);
    for (const protocol of PROTOCOLS) {
      for (const address of ['127.0.0.1', '::1']) {
        assert.equal(await scene.topology.ask('node', protocol, address, 7778), `node ${address}`);
      }
    }
  });
}

/** Tests an endpoint that is its own client. */
export function testHairpin(scene: ServiceScene): void {
  test('an endpoint that reaches itself sees the node’s address', async () => {
    await scene.sync(scene.service(40, ['pod1']));
    await everywhere((family, protocol) =>
      scene.expectPlaces('pod1', protocol, scene.destination('ClusterIP', family, 40), ['pod1'], true),
    );
  });
}

/** Tests an external IP that is the address of another host on the node's link, such as another node. */
export function testAddressOfAnotherNode(scene: ServiceScene): void {
  test('an external IP that is another node’s address: one port is the Service, the others are that node', async () => {
    const { topology } = scene;
    await topology.serve('outside', 7790);
    const frontends = scene
      .service(41, ALL)
      .map((one) =>
        one.kind === 'LoadBalancer' ? { ...one, address: topology.address('outside', one.family) } : one,
      );
    assert.deepEqual((await scene.sync(frontends)).failed, []);
    for (const from of ['pod3', 'node'] as const) {
      await everywhere(async (family, protocol) => {
        const address = topology.address('outside', family);
        await scene.expectPlaces(from, protocol, [address, 80], ALL, true);
        assert.match(await scene.ask(from, protocol, address, 7790), /^outside /, from);
      });
    }
    await scene.expectVerified();
  });
}
