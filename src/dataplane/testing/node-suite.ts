import assert from 'node:assert/strict';
import { test } from 'node:test';
import { cidr, frontend, NODE } from './service-map.ts';
import { FAMILIES, PROTOCOLS, type ServiceScene, TARGET } from './service-scene.ts';

/** Tests changes of a node's settings. */
export function testNodeSettings(scene: ServiceScene): void {
  test('SCTP and detection by interface can be programmed', async () => {
    const node = { ...NODE, localDetection: { mode: 'InterfaceNamePrefix', prefix: 'v' } } as const;
    const sctp = frontend({
      kind: 'ClusterIP',
      service: 'signal',
      address: '10.96.0.80',
      port: 3868,
      protocol: 'SCTP',
      endpoints: scene.at('ipv4', 'pod1', 'pod2'),
    });
    await scene.sync([sctp, ...scene.service(81, ['pod2'])], node);
    await scene.expectVerified();
    const { expectPlaces, destination } = scene;
    await expectPlaces('pod3', 'TCP', destination('ClusterIP', 'ipv4', 81), ['pod2'], false);
    await expectPlaces('outside', 'TCP', destination('ClusterIP', 'ipv6', 81), ['pod2'], true);
    await expectPlaces('node', 'TCP', destination('ClusterIP', 'ipv4', 81), ['pod2'], true);
  });

  test('node ports answer only on the configured addresses', async () => {
    const node = {
      ...NODE,
      localhostNodePorts: false,
      nodePortAddresses: { ipv4: { all: false, cidrs: [cidr('10.244.1.1/32')] }, ipv6: { all: true } },
    } as const;
    await scene.sync(scene.service(82, ['pod2']), node);
    assert.equal(await scene.ask('outside', 'TCP', '192.0.2.10', 30082), 'refused');
    assert.match(await scene.ask('outside', 'TCP', '10.244.1.1', 30082), /^pod2/);
    assert.equal(await scene.ask('node', 'TCP', '::1', 30082), 'refused');
    await scene.expectVerified();
  });

  test("a Service's server on the node itself does not change the source of the node's own connections", async () => {
    const { topology } = scene;
    await topology.serve('node', TARGET);
    for (const address of ['198.51.100.1/32', 'fd00:51::1/128 nodad'])
      topology.configure('node', `addr add ${address} dev lo`);
    await scene.sync(scene.service(83, ['node']));
    for (const family of FAMILIES) {
      const own = topology.address('node', family);
      for (const protocol of PROTOCOLS)
        assert.equal(await scene.ask('node', protocol, own, TARGET), `node ${own}`);
      const [address, port] = scene.destination('ClusterIP', family, 83);
      assert.match(await scene.ask('pod1', 'TCP', address, port), /^node /);
    }
    await scene.expectVerified();
  });
}
