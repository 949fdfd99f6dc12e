import assert from 'node:assert/strict';
import { after, before, describe, test } from 'node:test';
import { manualClock, systemClock } from '../../lib/clock.ts';
import type { Frontend, FrontendKind, Packet } from '../../service/model.ts';
import { testChangesUnderLoad } from '../testing/change-suite.ts';
import { testForeignChanges } from '../testing/nf-table-suite.ts';
import { testAddressOfAnotherNode, testLoopbackServers, testReach } from '../testing/reach-suite.ts';
import { testRefusals } from '../testing/refusal-suite.ts';
import { cidr, endpoint, frontend, NODE } from '../testing/service-map.ts';
import {
  ALL,
  clusterIP,
  createServiceScene,
  everywhere,
  FAMILIES,
  LOCAL,
  PROTOCOLS,
  type Transport,
} from '../testing/service-scene.ts';
import type { Place } from '../testing/topology.ts';
import { createUserspace } from './userspace.ts';

const NAMES = {
  table: 'fairlead-userspace',
  chain: 'prerouting',
  frontends: 'services-pod',
  addresses: 'cluster-ips',
};

describe('userspace mode', () => {
  const options = { families: FAMILIES, random: () => 0 };
  const scene = createServiceScene({
    open: (netns) => createUserspace({ ...options, netns }),
    proxy: true,
  });
  const { service, destination } = scene;
  const expectPlaces = (
    from: Place,
    protocol: Transport,
    to: readonly [string, number],
    places: readonly Place[],
  ) => scene.expectPlaces(from, protocol, [...to], places, true);

  before(() => scene.start());
  after(() => scene.close());

  testReach(scene, () => {
    test('node ports answer on loopback and on the node’s other addresses', async () => {
      for (const protocol of PROTOCOLS) {
        for (const address of ['127.0.0.1', '127.1.2.3', '::1', '10.244.1.1', 'fd00:244:1::1']) {
          await expectPlaces('node', protocol, [address, 30020], ALL);
        }
        await expectPlaces('outside', protocol, ['10.244.1.1', 30020], ALL);
      }
    });
    testLoopbackServers(scene);
    test('a listener’s port rejects clients that connect to it directly', async () => {
      for (const { at: listener, protocol } of scene.dataplane.listeners()) {
        for (const from of ['pod3', 'node', 'outside'] as const) {
          const answer = await scene.ask(from, protocol, listener.ip, listener.port);
          assert.equal(answer, 'refused', `${from} → ${listener.ip}:${listener.port}/${protocol}`);
        }
      }
    });
    test('an endpoint reaches itself', () =>
      everywhere((family, protocol) =>
        expectPlaces('pod1', protocol, destination('ClusterIP', family, 20), ALL),
      ));
  });
  testAddressOfAnotherNode(scene);
  testRefusals(scene);

  test('an unsupported frontend is reported and rejected, and the others work', async () => {
    const shared = { kind: 'ClusterIP', service: 'signal', port: 3868 } as const;
    const bad = endpoint('10.244.1.999', 80);
    const report = await scene.sync([
      frontend({ ...shared, address: '10.96.0.80', protocol: 'SCTP', endpoints: scene.at('ipv4', 'pod1') }),
      frontend({ ...shared, service: 'bad', address: '10.96.0.81', endpoints: [bad] }),
      ...service(82, ['pod1']),
    ]);
    assert.deepEqual(
      report.failed.map(({ key, error }) => [key, (error as { code?: string }).code]),
      [
        ['ipv4/10.96.0.80/SCTP/3868', 'unsupported'],
        ['ipv4/10.96.0.81/TCP/3868', 'EINVAL'],
      ],
    );
    assert.equal(await scene.ask('pod3', 'TCP', '10.96.0.81', 3868), 'refused');
    await expectPlaces('pod3', 'TCP', destination('ClusterIP', 'ipv4', 82), ['pod1']);
    await scene.expectVerified();
  });

  test('a listener address that the node does not have is reported', async () => {
    const report = await scene.sync(service(83, ['pod1']), { ...NODE, ipv4: '192.0.2.77', ipv6: null });
    const codes = new Set(report.failed.map(({ error }) => (error as { code?: string }).code));
    assert.deepEqual(codes, new Set(['EADDRNOTAVAIL', 'no-node-address']));
    assert.equal(await scene.ask('pod3', 'TCP', clusterIP('ipv4', 83), 80), 'refused');
    assert.deepEqual((await scene.sync(service(83, ['pod1']))).failed, []);
    await expectPlaces('pod3', 'TCP', destination('ClusterIP', 'ipv6', 83), ['pod1']);
  });

  test('pods are recognized by interface too, and node ports can be limited to some addresses', async () => {
    await scene.sync(service(84, ALL, 'external-local'), {
      ...NODE,
      localDetection: { mode: 'InterfaceNamePrefix', prefix: 'v' },
      localhostNodePorts: false,
      nodePortAddresses: { ipv4: { all: false, cidrs: [cidr('10.244.1.1/32')] }, ipv6: { all: true } },
    });
    await expectPlaces('pod3', 'TCP', destination('LoadBalancer', 'ipv4', 84), ALL);
    await expectPlaces('outside', 'UDP', destination('LoadBalancer', 'ipv4', 84), LOCAL);
    assert.equal(await scene.ask('outside', 'TCP', '192.0.2.10', 30084), 'refused');
    await expectPlaces('outside', 'TCP', ['10.244.1.1', 30084], LOCAL);
    assert.equal(await scene.ask('node', 'TCP', '::1', 30084), 'refused');
    await scene.expectVerified();
  });

  test('an endpoint with the address of a frontend is reached directly', async () => {
    await scene.topology.serve('node', 30085);
    await scene.sync(
      FAMILIES.flatMap((family) =>
        PROTOCOLS.map((protocol) =>
          frontend({
            kind: 'NodePort',
            service: 's85',
            address: null,
            family,
            protocol,
            port: 30085,
            endpoints: [endpoint(scene.topology.address('node', family), 30085)],
          }),
        ),
      ),
    );
    await everywhere((family, protocol) =>
      expectPlaces('outside', protocol, destination('NodePort', family, 85), ['node']),
    );
  });

  test('a client keeps its endpoint until the affinity timeout', async () => {
    await scene.dataplane.close();
    const clock = manualClock(Date.now());
    scene.reopen((netns) =>
      createUserspace({ ...options, netns, clock: { now: clock.now, after: systemClock.after } }),
    );
    await scene.sync(service(41, ALL, 'plain', { affinitySeconds: 100 }));
    const ask = async (protocol: Transport, kind: FrontendKind, family: 'ipv4' | 'ipv6' = 'ipv4') =>
      (await scene.ask('pod3', protocol, ...destination(kind, family, 41))).split(' ')[0] as Place;
    for (const protocol of PROTOCOLS) {
      const first = await ask(protocol, 'ClusterIP');
      for (const kind of ['ClusterIP', 'LoadBalancer', 'NodePort'] as const) {
        for (let i = 0; i < 4; i++) assert.equal(await ask(protocol, kind), first);
      }
      clock.advance(99_000);
      assert.equal(await ask(protocol, 'ClusterIP'), first);
      clock.advance(100_000);
      assert.notEqual(await ask(protocol, 'ClusterIP'), first);
    }
    const first = await ask('TCP', 'ClusterIP', 'ipv6');
    const rest = ALL.filter((place) => place !== first);
    await scene.apply(service(41, rest, 'plain', { affinitySeconds: 100 }));
    assert.ok(rest.includes(await ask('TCP', 'ClusterIP', 'ipv6')));
    await scene.dataplane.close();
    scene.reopen();
  });

  test('changes are applied in place, with a cost proportional to the change', async () => {
    const rest = Array.from({ length: 300 }, (_, i) =>
      frontend({
        kind: 'ClusterIP',
        service: `m${i}`,
        address: `10.96.${1 + (i >> 8)}.${i & 255}`,
        port: 80,
        endpoints: scene.at('ipv4', 'pod1'),
      }),
    );
    await scene.sync([...rest, ...service(50, ['pod1'])]);
    const steps: [frontends: Frontend[], most: number][] = [
      // The kernel does not know the endpoints.
      [[...rest, ...service(50, ['pod2'])], 0],
      [[...rest, ...service(50, ALL)], 0],
      // Twelve frontends of three classes are removed from one map and added to another, set by set.
      [[...rest, ...service(50, [])], 110],
      [[...rest, ...service(50, ['far'], 'external-local')], 110],
      [[...rest, ...service(50, ['far'], 'external-local', { affinitySeconds: 50 })], 0],
      [[...rest, ...service(50, ['pod1'], 'external-local', { allowedSources: ['10.0.0.0/8'] })], 60],
      [rest, 110],
    ];
    for (const [frontends, most] of steps) {
      const report = await scene.apply(frontends);
      assert.deepEqual(report.failed, []);
      assert.ok(report.operations <= most, `${report.operations} operations, at most ${most} were expected`);
      await scene.expectVerified();
    }
  });

  testChangesUnderLoad(scene, { policies: ['internal-local', 'external-local'] });

  test('a restarted process listens on the same ports', async () => {
    const frontends = service(87, ALL, 'external-local');
    await scene.sync(frontends);
    const before = scene.dataplane.listeners();
    await scene.dataplane.close();
    assert.equal(await scene.ask('pod3', 'TCP', ...destination('ClusterIP', 'ipv4', 87)), 'refused');
    scene.reopen();
    await scene.sync(frontends);
    assert.deepEqual(scene.dataplane.listeners(), before);
    await expectPlaces('pod3', 'TCP', destination('ClusterIP', 'ipv4', 87), ALL);
    await scene.expectVerified();
  });

  testForeignChanges(scene, NAMES, (netns, onForeignChange) =>
    createUserspace({ ...options, netns, owned: false, onForeignChange }),
  );

  test('explain shows the path of a packet', async () => {
    const frontends = service(88, ALL, 'external-local', {
      affinitySeconds: 5,
      allowedSources: ['192.0.2.0/24'],
    });
    await scene.sync(frontends);
    const locate = (kind: FrontendKind, sourceClass: Packet['sourceClass']) => {
      const found = frontends.find((f) => f.kind === kind && f.family === 'ipv4' && f.protocol === 'TCP');
      assert.ok(found);
      const packet = {
        source: '192.0.2.20',
        sourceClass,
        destination: '203.0.113.88',
        port: 80,
        protocol: 'TCP',
      } as const;
      return scene.dataplane.locate(found, packet).map(({ object, effect }) => `${object} | ${effect}`);
    };
    const [ranges, map, listener] = locate('LoadBalancer', 'external');
    assert.match(
      ranges ?? '',
      /set allowed-sources, elements 203\.0\.113\.88 \. tcp \. 80 \. 192\.0\.2\.0\/24/,
    );
    assert.match(
      map ?? '',
      /chain prerouting → chain from-external, map services-external, element 203\.0\.113\.88 \. tcp \. 80 \| redirected to 192\.0\.2\.10:\d+$/,
    );
    assert.match(
      listener ?? '',
      /listener tcp 192\.0\.2\.10:\d+ of pool shop\/s88:p\/TCP\/ipv4\/local, process \d+ \| .*one of 2 in turn.*10\.244\.1\.11:8080, 10\.244\.1\.12:8080; a client seen within the last 5 s/,
    );
    assert.match(
      locate('NodePort', 'node')[0] ?? '',
      /chain output → chain node-ports-from-node, map nodeports-node, element tcp \. 30088/,
    );
    await scene.sync([]);
    assert.deepEqual(locate('ClusterIP', 'pod'), []);
    const text = scene.topology.run('node', 'nft', 'list', 'ruleset');
    assert.match(text, /table ip6 fairlead-userspace/);
    assert.ok(JSON.parse(scene.topology.run('node', 'nft', '-j', 'list', 'ruleset')).nftables.length > 0);
  });

  test('removing the mode removes all of its state and keeps that of other programs', async () => {
    const { topology } = scene;
    // As a mode leaves it that this one succeeds.
    topology.run('node', 'sysctl', '-qw', 'net.ipv4.conf.all.route_localnet=2');
    await scene.sync(service(89, ALL));
    assert.equal(scene.dataplane.listeners().length, 4);
    topology.run('node', 'nft', 'add', 'table', 'ip', 'theirs');
    await scene.dataplane.remove();
    const tables = topology.run('node', 'nft', 'list', 'tables');
    assert.doesNotMatch(tables, /fairlead/);
    assert.match(tables, /theirs/);
    assert.equal(topology.run('node', 'sysctl', '-n', 'net.ipv4.conf.all.route_localnet').trim(), '0');
    assert.deepEqual(scene.dataplane.listeners(), []);
    await scene.dataplane.close();
    const sockets = topology.run('node', 'ss', '-Hltun').split('\n');
    assert.deepEqual(
      sockets.filter((line) => line !== '' && !/:(30085|7778) /.test(line)),
      [],
    );
    scene.reopen();
  });
});
