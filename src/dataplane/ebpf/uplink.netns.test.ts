import assert from 'node:assert/strict';
import { randomBytes } from 'node:crypto';
import { once } from 'node:events';
import { existsSync } from 'node:fs';
import { after, before, describe, test } from 'node:test';
import { setTimeout as delay } from 'node:timers/promises';
import { unpin } from '../../kernel/bpf/pin.ts';
import { ConntrackConnection } from '../../kernel/conntrack/connection.ts';
import type { IPFamily } from '../../lib/address.ts';
import type { Endpoint, Frontend } from '../../service/model.ts';
import { endpoint, frontend } from '../testing/service-map.ts';
import {
  ALL,
  createServiceScene,
  everywhere,
  FAMILIES,
  LOCAL,
  PROTOCOLS,
  type Transport,
  vip as vipOf,
} from '../testing/service-scene.ts';
import { type Place, SILENCE_MS } from '../testing/topology.ts';
import { createEbpf } from './ebpf.ts';
import { pinnedLinks, removePins } from './pins.ts';
import { deviceAttachment } from './requirements.ts';
import { makeTestGroup, removeTestGroup } from './testing/client.ts';
import { attachForeign } from './testing/group-programs.ts';
import { connectFrom, echoIn, udpIn } from './testing/outside.ts';

/** Where the tests' own servers are. */
const ECHO = 9000;
const KINDS = ['NodePort', 'LoadBalancer'] as const;
const NUMBER: Readonly<Record<Transport, number>> = { TCP: 6, UDP: 17 };

const hasLinks = deviceAttachment(undefined) === 'tcx';

for (const attachment of ['tcx', 'clsact'] as const) {
  const skip = attachment === 'tcx' && !hasLinks && 'this kernel has no tcx (Linux 6.6)';
  describe(`eBPF mode at the uplink, attached by ${attachment}`, { skip }, () => {
    let group: string;
    let pinPath: string;
    let conntrack: ConntrackConnection;
    const scene = createServiceScene({
      open: (netns) =>
        createEbpf({ families: FAMILIES, netns, cgroup: group, pinPath, attachment, uplink: 'eth0' }),
    });
    const { service, destination } = scene;
    const uplinkLinks = () => pinnedLinks(pinPath).filter((name) => name.startsWith('uplink-'));
    const filters = () =>
      scene.topology.run('node', 'tc', 'filter', 'show', 'dev', 'eth0', 'ingress') +
      scene.topology.run('node', 'tc', 'filter', 'show', 'dev', 'eth0', 'egress');

    before(async () => {
      group = makeTestGroup();
      pinPath = `/run/flt-${randomBytes(3).toString('hex')}-bpf`;
      await scene.start();
      conntrack = new ConntrackConnection(scene.topology.namespace('node'));
    });
    after(async () => {
      await scene.dataplane.remove();
      await scene.close();
      conntrack?.close();
      if (pinPath) removePins(pinPath);
      if (group) await removeTestGroup(group);
    });

    /** Whether nf_tables translated anything that was sent to this address. */
    const wasTranslated = ([address, port]: readonly [string, number], protocol: Transport) =>
      conntrack
        .list(address.includes(':') ? 'ipv6' : 'ipv4', { destination: address, protocol: NUMBER[protocol] })
        .some(({ original }) => original.destinationPort === port);

    test('a Service of external policy Local is answered by local pods, which see the client, untranslated by nftables', async () => {
      await scene.sync([...service(20, ALL, 'external-local'), ...service(21, ALL)]);
      await scene.expectVerified();
      for (const kind of KINDS) {
        await everywhere(async (family, protocol) => {
          const to = destination(kind, family, 20);
          await scene.expectPlaces('outside', protocol, to, LOCAL, false);
          assert.ok(!wasTranslated(to, protocol), `${to} ${protocol}`);
        });
      }
    });

    test('all else goes by nftables', async () => {
      for (const kind of KINDS) {
        await everywhere(async (family, protocol) => {
          const to = destination(kind, family, 21);
          await scene.expectPlaces('outside', protocol, to, ALL, true);
          assert.ok(wasTranslated(to, protocol));
        });
      }
    });

    test('pods, and clients that are answered by another device, are left to nftables', async () => {
      const { configure, ask } = scene.topology;
      const sources = { pod: '10.244.9.9', elsewhere: '198.51.100.9' };
      for (const address of Object.values(sources)) configure('outside', `addr add ${address}/32 dev lo`);
      configure('node', `route add ${sources.pod}/32 dev eth0`, `route add ${sources.elsewhere}/32 dev eth1`);
      const to = destination('LoadBalancer', 'ipv4', 20);
      // One Service for each: what was translated is told by its address.
      assert.ok(!wasTranslated(to, 'UDP'));
      assert.match(await ask('outside', 'UDP', ...to, sources.pod), /^(pod1|pod2|far) /);
      const from = (source: string) =>
        conntrack
          .list('ipv4', { destination: to[0], protocol: NUMBER.UDP })
          .some(({ original }) => original.source === source);
      assert.ok(from(sources.pod));
      assert.equal(await ask('outside', 'UDP', ...to, sources.elsewhere, SILENCE_MS), 'silence');
      assert.ok(from(sources.elsewhere));
    });

    test('a connection whose endpoint does not answer goes to another one', async () => {
      const { configure } = scene.topology;
      await scene.sync(service(28, LOCAL, 'external-local'));
      const to = destination('NodePort', 'ipv4', 28);
      configure('node', 'route replace blackhole 10.244.1.11/32');
      try {
        const asked = Array.from({ length: 8 }, () => scene.ask('outside', 'TCP', ...to));
        for (const answer of await Promise.all(asked)) assert.match(answer, /^pod2 /);
      } finally {
        configure('node', 'route replace 10.244.1.11/32 dev v1');
      }
    });

    test('the kernel objects that carry a packet from outside are named', async () => {
      await scene.sync(service(20, ALL, 'external-local'));
      const [frontend] = service(20, ALL, 'external-local').filter(({ kind }) => kind === 'LoadBalancer');
      assert.ok(frontend?.address);
      const packet = {
        source: scene.topology.address('outside', 'ipv4'),
        destination: frontend.address,
        port: frontend.port,
        protocol: frontend.protocol,
      };
      const programs = (sourceClass: 'external' | 'node') =>
        scene.dataplane
          .locate(frontend, { ...packet, sourceClass })
          .filter(({ object }) => object.includes('fl_uplink_in'));
      assert.equal(programs('external').length, 1);
      assert.equal(programs('node').length, 0);
    });

    test('endpoints that come and go are followed, and what becomes none of its own is left to nftables', async () => {
      const one = (...places: Place[]) => service(22, places, 'external-local');
      await scene.sync(one('pod1', 'far'));
      const ask = (places: readonly Place[]) =>
        everywhere((family, protocol) =>
          scene.expectPlaces('outside', protocol, destination('LoadBalancer', family, 22), places, false),
        );
      await ask(['pod1']);
      await scene.apply(one('pod2', 'far'));
      await ask(['pod2']);
      await scene.expectVerified();
      await scene.apply(service(22, ALL));
      await everywhere(async (family, protocol) => {
        const to = destination('LoadBalancer', family, 22);
        assert.ok(!wasTranslated(to, protocol));
        await scene.expectPlaces('outside', protocol, to, ALL, true);
        assert.ok(wasTranslated(to, protocol));
      });
      await scene.expectVerified();
    });

    test('a flow of datagrams whose endpoint is gone goes to another one', async () => {
      const { namespace } = scene.topology;
      await scene.sync(service(23, ['pod1'], 'external-local'));
      for (const family of FAMILIES) {
        const [address, port] = destination('LoadBalancer', family, 23);
        const client = await udpIn(namespace('outside'), address, 0);
        const ask = async () => {
          const answered = once(client, 'message');
          client.send('?', port, address);
          return `${(await answered)[0]}`;
        };
        try {
          assert.match(await ask(), /^pod1 /);
          await scene.apply(service(23, LOCAL, 'external-local'));
          for (let i = 0; i < 5; i++) assert.match(await ask(), /^pod1 /, 'it stays while that serves');
          await scene.apply(service(23, ['pod2'], 'external-local'));
          assert.match(await ask(), /^pod2 /);
        } finally {
          client.close();
          await scene.apply(service(23, ['pod1'], 'external-local'));
        }
      }
    });

    test('errors on the way find those whom they concern', async () => {
      const { namespace, address, configure } = scene.topology;
      const at = (family: IPFamily): Endpoint => endpoint(address('pod1', family), ECHO);
      await scene.sync(echoes(50, at));
      for (const family of FAMILIES) {
        const [vip, port] = [vipOf(family, 50), 80];
        // Towards the client: it has to learn that the way to the pod is narrow.
        const echo = echoIn(namespace('pod1'), address('pod1', family), ECHO);
        configure('node', 'link set v1 mtu 1300');
        try {
          const connection = await connectFrom(namespace('outside'), vip, port);
          await connection.exchange(100_000);
          connection.destroy();
        } finally {
          configure('node', 'link set v1 mtu 1500');
          echo.close();
        }
        // From the client: the server has to learn that nobody listens there any more.
        const server = await udpIn(namespace('pod1'), address('pod1', family), ECHO);
        const client = await udpIn(namespace('outside'), vip, 0);
        try {
          const asked = once(server, 'message');
          client.send('?', port, vip);
          const [, peer] = await asked;
          assert.equal(peer.address, address('outside', family));
          server.connect(peer.port, peer.address);
          await once(server, 'connect');
          await new Promise<void>((resolve) => client.close(resolve));
          const refused = new Promise<NodeJS.ErrnoException>((resolve) => server.once('error', resolve));
          server.send('!');
          assert.equal((await refused).code, 'ECONNREFUSED');
        } finally {
          server.close();
        }
      }
    });

    test('an answer larger than a packet arrives whole', async () => {
      const { namespace, address } = scene.topology;
      await scene.sync(echoes(51, (family) => endpoint(address('pod1', family), ECHO)));
      for (const family of FAMILIES) {
        const server = await udpIn(namespace('pod1'), address('pod1', family), ECHO);
        const client = await udpIn(namespace('outside'), vipOf(family, 51), 0);
        try {
          server.on('message', (_, peer) => server.send(Buffer.alloc(5000, 'y'), peer.port, peer.address));
          const answered = once(client, 'message');
          client.send('?', 80, vipOf(family, 51));
          const [answer, from] = await answered;
          assert.equal(answer.length, 5000);
          assert.deepEqual([from.address, from.port], [vipOf(family, 51), 80]);
        } finally {
          server.close();
          client.close();
        }
      }
    });

    test('one port of a client reaches an endpoint in two Services’ names', async () => {
      const { namespace, address } = scene.topology;
      await scene.sync([
        ...service(24, ['pod1'], 'external-local'),
        ...service(25, ['pod1'], 'external-local'),
      ]);
      for (const family of FAMILIES) {
        const client = await udpIn(namespace('outside'), address('outside', family), 0);
        try {
          for (const n of [24, 25, 24, 25]) {
            const [vip, port] = destination('LoadBalancer', family, n);
            const answered = once(client, 'message');
            client.send('?', port, vip);
            const [answer, from] = await answered;
            assert.match(`${answer}`, /^pod1 /);
            assert.equal(from.address, vip);
          }
        } finally {
          client.close();
        }
      }
    });

    test('connections live on over a restart, and when another mode takes over', async () => {
      const { namespace, address, run } = scene.topology;
      const frontends = echoes(52, (family) => endpoint(address('pod1', family), ECHO));
      await scene.dataplane.remove();
      await scene.sync(frontends);
      const echo = FAMILIES.map((family) => echoIn(namespace('pod1'), address('pod1', family), ECHO));
      const connections = await Promise.all(
        FAMILIES.map((family) => connectFrom(namespace('outside'), vipOf(family, 52), 80)),
      );
      try {
        for (const one of connections) await one.exchange(10);
        await scene.dataplane.close();
        for (const one of connections) await one.exchange(10);
        scene.reopen();
        await scene.sync(frontends);
        await scene.expectVerified();
        for (const one of connections) await one.exchange(10);
        await scene.dataplane.remove({ succeeded: true });
        for (const one of connections) await one.exchange(10);
        // What is new is not the programs' any more, and here nobody else's.
        for (const family of FAMILIES) {
          const ports = () =>
            conntrack
              .list(family, { destination: address('pod1', family), protocol: NUMBER.TCP })
              .map(({ original }) => original.sourcePort);
          const known = ports();
          await scene.ask('outside', 'TCP', vipOf(family, 52), 80, SILENCE_MS);
          assert.deepEqual(
            ports().filter((port) => !known.includes(port)),
            [],
          );
        }
        for (const one of connections) {
          await one.exchange(10);
          await one.end();
        }
        for (let i = 0; i < 300 && existsSync(`${pinPath}/v1`); i++) await delay(100);
        assert.ok(!existsSync(`${pinPath}/v1`), 'they go with the last connection');
        assert.doesNotMatch(run('node', 'tc', 'filter', 'show', 'dev', 'eth0', 'ingress'), /fairlead_uplink/);
      } finally {
        for (const one of connections) one.destroy();
        for (const one of echo) one.close();
      }
    });

    test('a connection that nftables carries stays with it when the programs come', async () => {
      const { namespace, address } = scene.topology;
      const frontends = echoes(53, (family) => endpoint(address('pod1', family), ECHO));
      scene.reopen((netns) => createEbpf({ families: FAMILIES, netns, cgroup: group, pinPath, attachment }));
      await scene.sync(frontends);
      assert.deepEqual(uplinkLinks(), []);
      const echo = echoIn(namespace('pod1'), address('pod1', 'ipv4'), ECHO);
      const server = await udpIn(namespace('pod1'), address('pod1', 'ipv4'), ECHO);
      const client = await udpIn(namespace('outside'), address('outside', 'ipv4'), 0);
      server.on('message', (_, peer) => server.send(`${peer.port}`, peer.port, peer.address));
      const askUdp = async () => {
        const answered = once(client, 'message');
        client.send('?', 80, vipOf('ipv4', 53));
        return `${(await answered)[0]}`;
      };
      const connection = await connectFrom(namespace('outside'), vipOf('ipv4', 53), 80);
      try {
        await connection.exchange(10);
        const seen = await askUdp();
        await scene.dataplane.close();
        scene.reopen();
        await scene.sync(frontends);
        await connection.exchange(10);
        assert.equal(await askUdp(), seen);
        const flows = conntrack.list('ipv4', { destination: address('pod1', 'ipv4') });
        assert.ok(!flows.some(({ original }) => original.sourcePort === connection.port));
        assert.ok(!flows.some(({ original }) => original.sourcePort === client.address().port));
        // Switched off again, nothing lives by the programs: they go.
        connection.destroy();
        await scene.dataplane.close();
        scene.reopen((netns) =>
          createEbpf({ families: FAMILIES, netns, cgroup: group, pinPath, attachment }),
        );
        await scene.sync(frontends);
        assert.deepEqual(uplinkLinks(), []);
        assert.doesNotMatch(filters(), /fairlead_uplink/);
        assert.ok(!existsSync(`${pinPath}/v1/map-uplink_flows`));
      } finally {
        connection.destroy();
        echo.close();
        server.close();
        client.close();
        await scene.dataplane.close();
        scene.reopen();
      }
    });

    test('what others take away is named and put back; what others have at the uplink stays', async () => {
      const frontends = service(26, ALL, 'external-local');
      const device = hasLinks ? attachForeign(scene.topology.namespace('node'), 'eth0') : null;
      try {
        await scene.sync(frontends);
        if (attachment === 'tcx') {
          for (const name of uplinkLinks()) unpin(`${pinPath}/v1/link-${name}`);
        } else {
          scene.topology.run('node', 'tc', 'qdisc', 'del', 'dev', 'eth0', 'clsact');
        }
        const drifts = await scene.dataplane.verify();
        const named = drifts.filter(({ object }) => /uplink.*tcx(In|E)gress/.test(object));
        assert.deepEqual(
          named.map(({ kind }) => kind),
          ['missing', 'missing'],
        );
        await scene.sync(frontends);
        await scene.expectVerified();
        await scene.dataplane.remove();
        assert.ok(!existsSync(`${pinPath}/v1`));
        assert.doesNotMatch(filters(), /fairlead/);
        assert.ok(device?.isAttached() ?? true);
      } finally {
        device?.close();
      }
    });

    test('where there is no such device nftables carries everything', async () => {
      await scene.dataplane.close();
      scene.reopen((netns) =>
        createEbpf({ families: FAMILIES, netns, cgroup: group, pinPath, attachment, uplink: 'eth9' }),
      );
      await scene.sync(service(27, ALL, 'external-local'));
      await scene.expectVerified();
      await everywhere(async (family, protocol) => {
        const to = destination('NodePort', family, 27);
        await scene.expectPlaces('outside', protocol, to, LOCAL, false);
        assert.ok(wasTranslated(to, protocol));
      });
    });

    test('a device that comes later gets the programs', async () => {
      const missing = async () =>
        (await scene.dataplane.verify()).filter(({ object }) => object.includes('uplink'));
      scene.topology.configure('node', 'link add eth9 type veth peer name eth9-peer');
      for (let i = 0; i < 300 && (await missing()).length > 0; i++) await delay(100);
      assert.deepEqual(await missing(), []);
      if (attachment === 'tcx') assert.equal(uplinkLinks().length, 2);
      else
        assert.match(
          scene.topology.run('node', 'tc', 'filter', 'show', 'dev', 'eth9', 'ingress'),
          /fairlead_uplink/,
        );
    });
  });
}

/** A Service with one address, for TCP and UDP in both families. */
function echoes(n: number, at: (family: IPFamily) => Endpoint): Frontend[] {
  return FAMILIES.flatMap((family) =>
    PROTOCOLS.map((protocol) =>
      frontend({
        kind: 'ExternalIP',
        service: `s${n}`,
        family,
        protocol,
        address: vipOf(family, n),
        port: 80,
        policy: 'external-local',
        endpoints: [at(family)],
      }),
    ),
  );
}
