import assert from 'node:assert/strict';
import { createSocket } from 'node:dgram';
import { readFileSync, writeFileSync } from 'node:fs';
import { dirname, join } from 'node:path';
import { after, afterEach, before, describe, test } from 'node:test';
import { bindUdpIn } from '../kernel/netns.ts';
import type { IPFamily } from '../lib/address.ts';
import { systemClock } from '../lib/clock.ts';
import { silentLogger } from '../lib/log.ts';
import { eventually } from '../lib/testing/eventually.ts';
import type { ServiceMap } from '../service/model.ts';
import type { Dataplane } from './dataplane.ts';
import { makeTestGroup, removeTestGroup } from './ebpf/testing/client.ts';
import { createIptables } from './iptables/iptables.ts';
import { resumeDrain } from './ipvs/drain.ts';
import { createIpvs } from './ipvs/ipvs.ts';
import { connectEcho, type EchoConnection, serveEcho } from './ipvs/testing/echo.ts';
import { listServers } from './ipvs/testing/servers.ts';
import { createNftables } from './nftables/nftables.ts';
import { openEbpf } from './testing/open-ebpf.ts';
import { endpoint, frontend, serviceMap } from './testing/service-map.ts';
import { createTopology, type Place, type Topology } from './testing/topology.ts';

const FAMILIES: readonly IPFamily[] = ['ipv4', 'ipv6'];
const ECHO = 9000;
const UDP = 9001;
const VIP = '10.96.0.60';
const OUTER = '203.0.113.60';
const PLACES: readonly Place[] = ['pod1', 'pod2'];

const LEFT =
  'open connections continue, the other mode handles new ones and UDP, and finally no IPVS state remains';

describe('from IPVS to another mode and back, with open connections', () => {
  let topology: Topology;
  let map: ServiceMap;
  const closers: { close(): void }[] = [];
  const connections: EchoConnection[] = [];
  const open: Dataplane[] = [];

  before(async () => {
    topology = createTopology();
    for (const place of PLACES) {
      closers.push(serveEcho(topology, place, ECHO));
      await topology.serve(place, UDP);
    }
    const endpoints = (port: number) =>
      PLACES.map((place) => endpoint(topology.address(place, 'ipv4'), port));
    const web = { service: 'web', endpoints: endpoints(ECHO) } as const;
    map = serviceMap([
      frontend({ ...web, kind: 'ClusterIP', address: VIP, port: 80 }),
      frontend({ ...web, kind: 'NodePort', address: null, port: 30_060 }),
      frontend({ ...web, kind: 'NodePort', address: null, port: 30_061, affinitySeconds: 60 }),
      frontend({ ...web, kind: 'LoadBalancer', address: OUTER, port: 80 }),
      frontend({
        kind: 'ClusterIP',
        service: 'dns',
        address: VIP,
        port: 53,
        protocol: 'UDP',
        endpoints: endpoints(UDP),
      }),
      frontend({
        kind: 'ClusterIP',
        service: 'idle',
        address: '10.96.0.61',
        port: 80,
        endpoints: endpoints(ECHO),
      }),
    ]);
  });
  afterEach(async () => {
    for (const connection of connections.splice(0)) connection.destroy();
    for (const dataplane of open.splice(0)) {
      await dataplane.remove();
      await dataplane.close();
    }
    const ipvs = openIpvs();
    await ipvs.remove();
    await ipvs.close();
  });
  after(() => {
    for (const closer of closers) closer.close();
    topology?.close();
  });

  const openIpvs = () => createIpvs({ families: FAMILIES, netns: topology.namespace('node') });
  const OTHERS: Readonly<Record<string, () => Dataplane>> = {
    nftables: () => createNftables({ families: FAMILIES, netns: topology.namespace('node') }),
    iptables: () => createIptables({ families: FAMILIES, netns: topology.namespace('node') }),
  };

  async function connectAll(): Promise<EchoConnection[]> {
    const node = topology.address('node', 'ipv4');
    const targets: [Place, string, number][] = [
      ['pod3', VIP, 80],
      ['node', VIP, 80],
      ['outside', node, 30_060],
      ['outside', node, 30_061],
      ['outside', OUTER, 80],
    ];
    const made: EchoConnection[] = [];
    for (const [from, address, port] of targets) made.push(await connectEcho(topology, from, address, port));
    connections.push(...made);
    for (const { place } of made) assert.ok(PLACES.includes(place), place);
    return made;
  }

  async function replace(before: Dataplane, next: Dataplane): Promise<void> {
    open.push(next);
    assert.deepEqual((await next.sync(map)).failed, []);
    await before.remove({ succeeded: true });
    await before.close();
    open.splice(open.indexOf(before), 1);
  }

  /** A client that keeps its port; resolves to the first word of the answer. */
  function udpClient() {
    const socket = createSocket('udp4');
    socket.bind({ fd: bindUdpIn(topology.namespace('pod3'), '0.0.0.0', 0), exclusive: true });
    closers.push({ close: () => socket.close() });
    return async () => {
      for (let i = 0; i < 5; i++) {
        const answer = new Promise<string | null>((resolve) => {
          const timer = setTimeout(() => resolve(null), 500);
          socket.once('message', (message) => {
            clearTimeout(timer);
            resolve(String(message).split(' ')[0] ?? '');
          });
        });
        socket.send('?', 53, VIP);
        const text = await answer;
        if (text !== null) return text;
      }
      return 'silence';
    };
  }

  async function leaveFor(other: Dataplane): Promise<void> {
    const ipvs = openIpvs();
    open.push(ipvs);
    await ipvs.sync(map);
    const asked = udpClient();
    assert.ok(PLACES.includes((await asked()) as Place));
    const old = await connectAll();
    await replace(ipvs, other);
    for (const connection of old) assert.ok(await connection.says('still here'));
    assert.ok(PLACES.includes((await asked()) as Place));
    const idle = () =>
      [...listServers(topology).keys()].filter(
        (server) => server.startsWith('UDP') || server.includes('10.96.0.61'),
      );
    await eventually(() => idle().length === 0);
    assert.ok(listServers(topology).has(`TCP ${VIP}:80`));
    assert.equal((await connectEcho(topology, 'pod3', VIP, 81)).place, 'ECONNREFUSED');
    const before = connectionsOf(topology);
    const fresh = await connectAll();
    for (const connection of fresh) assert.ok(await connection.says('a new one'));
    assert.equal(connectionsOf(topology), before, 'no new connection goes through IPVS');
    for (const connection of old) await connection.end();
    await eventually(() => !/fairlead-ipvs/.test(topology.run('node', 'ip', 'link')));
    assert.equal(listServers(topology).size, 0);
    assert.doesNotMatch(topology.run('node', 'ip', 'link'), /fairlead-ipvs/);
    assert.doesNotMatch(topology.run('node', 'nft', 'list', 'tables'), /fairlead-ipvs/);
    for (const connection of fresh) assert.ok(await connection.says('without the addresses'));
  }
  for (const [name, openOther] of Object.entries(OTHERS)) {
    test(`${name}: ${LEFT}`, () => leaveFor(openOther()));
  }

  async function thereAndBack(other: Dataplane): Promise<void> {
    const ipvs = openIpvs();
    open.push(ipvs);
    await ipvs.sync(map);
    const first = await connectAll();
    await replace(ipvs, other);
    const second = await connectAll();
    const again = openIpvs();
    await replace(other, again);
    const third = await connectAll();
    for (const connection of [...first, ...second, ...third]) assert.ok(await connection.says('still here'));
    assert.deepEqual(await again.verify(), []);
    assert.doesNotMatch(topology.run('node', 'nft', 'list', 'tables'), /fairlead-ipvs-drain/);
  }
  test('to another mode and back: virtual servers that still have connections are adopted', () =>
    thereAndBack(OTHERS['nftables']?.() ?? assert.fail()));

  for (const [what, walk] of [
    [LEFT, leaveFor],
    ['to another mode and back', thereAndBack],
  ] as const) {
    test(`ebpf: ${what}`, async () => {
      await using group = joinTestGroup();
      const cgroup = group.path;
      const pinPath = `/run/${cgroup.split('/').at(-1)}-bpf`;
      const openMode = () =>
        openEbpf({ families: FAMILIES, netns: topology.namespace('node'), cgroup, pinPath });
      await walk(openMode());
      for (const connection of connections.splice(0)) connection.destroy();
      for (const dataplane of open.splice(0)) {
        await dataplane.remove();
        await dataplane.close();
      }
    });
  }

  test('the next process continues a drain that the previous one left', async () => {
    const ipvs = openIpvs();
    open.push(ipvs);
    await ipvs.sync(map);
    const old = await connectAll();
    await replace(ipvs, OTHERS['nftables']?.() ?? assert.fail());
    for (const connection of old) await connection.end();
    await resumeDrain({
      families: FAMILIES,
      netns: topology.namespace('node'),
      clock: systemClock,
      logger: silentLogger,
    });
    assert.equal(listServers(topology).size, 0);
    assert.doesNotMatch(topology.run('node', 'nft', 'list', 'tables'), /fairlead-ipvs/);
  });

  test('removing the mode ends the drain too', async () => {
    const ipvs = openIpvs();
    open.push(ipvs);
    await ipvs.sync(map);
    const old = await connectAll();
    await replace(ipvs, OTHERS['nftables']?.() ?? assert.fail());
    for (const connection of old) assert.ok(await connection.says('still here'));
    const another = openIpvs();
    await another.remove();
    await another.close();
    assert.equal(listServers(topology).size, 0);
    assert.doesNotMatch(topology.run('node', 'nft', 'list', 'tables'), /fairlead-ipvs/);
  });
});

function connectionsOf(topology: Topology): number {
  return topology.run('node', 'ipvsadm', '-Lnc').split('\n').length;
}

/** Moves this process into a separate control group until disposal. */
function joinTestGroup() {
  const before = readFileSync('/proc/self/cgroup', 'utf8').match(/^0::(.*)$/m)?.[1] ?? '/';
  const path = makeTestGroup();
  const move = (group: string) => writeFileSync(join(group, 'cgroup.procs'), String(process.pid));
  move(path);
  return {
    path,
    async [Symbol.asyncDispose]() {
      move(join(dirname(path), before));
      await removeTestGroup(path);
    },
  };
}
