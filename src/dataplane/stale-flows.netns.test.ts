import assert from 'node:assert/strict';
import { randomBytes } from 'node:crypto';
import { createServer, Socket as TcpSocket } from 'node:net';
import { after, afterEach, before, describe, test } from 'node:test';
import { ConntrackConnection } from '../kernel/conntrack/connection.ts';
import { listenTcpIn, openTcpIn } from '../kernel/netns.ts';
import type { IPFamily } from '../lib/address.ts';
import type { Frontend, ServiceMap } from '../service/model.ts';
import { type ConntrackReconciler, createConntrackReconciler } from './conntrack/reconciler.ts';
import type { Dataplane } from './dataplane.ts';
import { removePins } from './ebpf/pins.ts';
import { makeTestGroup, removeTestGroup } from './ebpf/testing/client.ts';
import { createNftables } from './nftables/nftables.ts';
import { openEbpf } from './testing/open-ebpf.ts';
import { changeBetween, endpoint, frontend, serviceMap } from './testing/service-map.ts';
import { createTopology, type Place, type Topology } from './testing/topology.ts';
import { openUdpFlow } from './testing/udp-flow.ts';
import { createUserspace } from './userspace/userspace.ts';

const FAMILIES: readonly IPFamily[] = ['ipv4', 'ipv6'];
const CLUSTER_IP = { ipv4: '10.96.0.7', ipv6: 'fd00:96::7' } as const;
const PORT = 53;
const TARGET = 5353;
const NODE_PORT = 30053;

/** The mode under test, and the mode of a switch. */
const MODES = { nftables: 'userspace', userspace: 'nftables', ebpf: 'nftables' } as const;
type TestedMode = keyof typeof MODES;

for (const mode of Object.keys(MODES) as TestedMode[]) {
  describe(`connection tracking follows the Services in ${mode} mode`, () => suite(mode));
}

function suite(mode: TestedMode): void {
  let topology: Topology;
  let dataplane: Dataplane;
  /** Of eBPF mode: no client is in this group, so that the fallback tables translate all flows, as those from outside. */
  let group: string | null = null;
  const pinPath = `/run/flt-${randomBytes(3).toString('hex')}-bpf`;
  let reconciler: ConntrackReconciler;
  let flows: ConntrackConnection;
  const closers: (() => void)[] = [];

  before(async () => {
    topology = createTopology();
    for (const place of ['pod1', 'pod2'] as const) await topology.serve(place, TARGET);
    const netns = topology.namespace('node');
    if (mode === 'ebpf') group = makeTestGroup();
    dataplane = open(mode);
    reconciler = createConntrackReconciler({
      families: FAMILIES,
      netns,
      isListener: (at) => dataplane.abilities.listeners?.has(at) ?? false,
    });
    flows = new ConntrackConnection(netns);
  });
  afterEach(() => {
    for (const close of closers.splice(0)) close();
  });
  after(async () => {
    flows?.close();
    await reconciler?.close();
    await dataplane?.close();
    topology?.close();
    removePins(pinPath);
    if (group) await removeTestGroup(group);
  });

  function open(mode: TestedMode): Dataplane {
    const options = { families: FAMILIES, netns: topology.namespace('node') };
    if (mode === 'nftables') return createNftables(options);
    if (mode === 'userspace') return createUserspace(options);
    assert.ok(group);
    return openEbpf({ ...options, cgroup: group, pinPath });
  }

  const dns = (...places: Place[]): Frontend[] => sparing([], places);
  /** `spared`: places that terminate and still serve. */
  const sparing = (spared: readonly Place[], places: readonly Place[]): Frontend[] =>
    FAMILIES.flatMap((family) => {
      const at = (place: Place) => endpoint(topology.address(place, family), TARGET);
      const shared = {
        service: 'dns',
        family,
        protocol: 'UDP' as const,
        endpoints: places.map(at),
        spared: spared.map(at),
      };
      return [
        frontend({ ...shared, kind: 'ClusterIP', address: CLUSTER_IP[family], port: PORT }),
        frontend({ ...shared, kind: 'NodePort', address: null, port: NODE_PORT }),
      ];
    });

  async function start(map: ServiceMap, by = reconciler): Promise<void> {
    await dataplane.sync(map);
    by.sync(map);
    await by.settled();
  }
  async function turnInto(before: ServiceMap, after: ServiceMap): Promise<void> {
    const change = changeBetween(before, after);
    await dataplane.apply(change, after);
    reconciler.apply(change);
    await reconciler.settled();
  }
  /** As turnInto; also waits for the second pass, so that only a pass of its own can serve the next change. */
  async function turnIntoAndRest(before: ServiceMap, after: ServiceMap): Promise<void> {
    await turnInto(before, after);
    await reconciler.settled();
  }

  async function client(place: Place, address: string, port: number) {
    const flow = await openUdpFlow(topology.namespace(place), address, port);
    closers.push(() => flow.close());
    return flow;
  }

  for (const family of FAMILIES) {
    for (const [kind, from] of [
      ['cluster IP', 'pod3'],
      ['node port', 'outside'],
    ] as const) {
      test(`${family} ${kind}: a UDP flow leaves an endpoint that no longer serves`, async () => {
        const [address, port] =
          kind === 'cluster IP' ? [CLUSTER_IP[family], PORT] : [topology.address('node', family), NODE_PORT];
        const one = serviceMap(dns('pod1'));
        await start(one);
        const { ask } = await client(from, address, port);
        assert.equal(await ask(), 'pod1');
        const two = serviceMap(dns('pod1', 'pod2'));
        await turnInto(one, two);
        assert.equal(await ask(), 'pod1', 'a flow keeps its endpoint while that serves');
        const terminating = serviceMap(sparing(['pod1'], ['pod2']));
        await turnIntoAndRest(two, terminating);
        assert.equal(await ask(), 'pod1', 'a flow keeps an endpoint that terminates and still serves');
        assert.equal(await (await client(from, address, port)).ask(), 'pod2', 'a new flow avoids it');
        const other = serviceMap(dns('pod2'));
        const gone = changeBetween(terminating, other);
        await dataplane.apply(gone, other);
        reconciler.apply(gone);
        await reconciler.passed();
        assert.equal(await ask(), 'pod2');
        const none = serviceMap(dns());
        await turnInto(other, none);
        assert.equal(await ask(), 'ECONNREFUSED', 'scaled to zero');
        await turnInto(none, one);
        assert.equal(await ask(), 'pod1', 'and back');
      });
    }

    test(`${family}: flows of a deleted Service are removed`, async () => {
      const one = serviceMap(dns('pod1'));
      await start(one);
      const { ask } = await client('pod3', CLUSTER_IP[family], PORT);
      assert.equal(await ask(), 'pod1');
      await turnInto(one, serviceMap([]));
      const left = flows.list(family, { protocol: 17, destination: CLUSTER_IP[family] });
      assert.deepEqual(left, []);
      assert.equal(await ask(), 'silence');
    });

    test(`${family}: a UDP flow of the previous mode leaves an endpoint that no longer serves`, async () => {
      const [one, other] = [serviceMap(dns('pod1')), serviceMap(dns('pod2'))];
      await start(one);
      const { ask } = await client('pod3', CLUSTER_IP[family], PORT);
      assert.equal(await ask(), 'pod1');
      const before = dataplane;
      dataplane = open(MODES[mode]);
      await dataplane.sync(one);
      await before.remove({ succeeded: true });
      await before.close();
      reconciler.sync(one);
      await reconciler.settled();
      assert.equal(await ask(), 'pod1');
      await turnInto(one, other);
      assert.equal(await ask(), 'pod2');
      const next = open(mode);
      await next.sync(other);
      await dataplane.remove({ succeeded: true });
      await dataplane.close();
      dataplane = next;
    });

    for (const startsEmpty of [false, true]) {
      const where = startsEmpty ? ' on a node that has just started' : '';
      test(`${family}: a flow opened before its Service existed reaches the Service${where}`, async () => {
        await start(serviceMap(dns('pod1')));
        // Without rules the packet leaves untranslated, which connection tracking records.
        await dataplane.remove();
        topology.run('node', 'nft', 'add table inet tracking');
        topology.run('node', 'nft', 'add chain inet tracking c { type filter hook forward priority 0; }');
        topology.run('node', 'nft', 'add rule inet tracking c ct state established counter');
        closers.push(() => void topology.run('node', 'nft', 'delete table inet tracking'));
        const netns = topology.namespace('node');
        const first = createConntrackReconciler({ families: FAMILIES, netns, startsEmpty });
        closers.push(() => void first.close());
        const { ask } = await client('pod3', CLUSTER_IP[family], PORT);
        assert.notEqual(await ask(), 'pod1');
        await start(serviceMap(dns('pod1')), first);
        assert.equal(await ask(), 'pod1');
      });
    }

    test(`${family}: flows that belong to no Service are kept`, async () => {
      const one = serviceMap(dns('pod1'));
      await start(one);
      const { ask } = await client('pod3', topology.address('pod1', family), TARGET);
      assert.equal(await ask(), 'pod1');
      const direct = () =>
        flows
          .list(family, { protocol: 17, destination: topology.address('pod1', family) })
          .filter(({ original }) => original.source === topology.address('pod3', family))
          .map(({ id }) => id);
      const before = direct();
      assert.equal(before.length, 1);
      await turnInto(one, serviceMap(dns('pod2')));
      assert.deepEqual(direct(), before);
    });
  }

  // In userspace mode the proxy has separate connections, which it ends itself.
  if (mode === 'userspace') return;
  test('a TCP connection to a draining endpoint continues; a connection to a removed endpoint ends', async () => {
    const port = 7070;
    const server = createServer((socket) => {
      socket.on('error', () => {});
      socket.on('data', (data) => socket.write(data));
      closers.push(() => socket.destroy());
    });
    server.listen({ fd: listenTcpIn(topology.namespace('pod1'), '0.0.0.0', port) });
    closers.push(() => server.close());
    const web = (...places: Place[]) =>
      serviceMap([
        frontend({
          kind: 'ClusterIP',
          service: 'web',
          address: '10.96.0.9',
          port: 80,
          endpoints: places.map((place) => endpoint(topology.address(place, 'ipv4'), port)),
        }),
      ]);
    const one = web('pod1');
    await start(one);
    const socket = new TcpSocket({ fd: openTcpIn(topology.namespace('pod3'), 'ipv4') });
    socket.connect(80, '10.96.0.9');
    closers.push(() => socket.destroy());
    const echo = (text: string) =>
      new Promise<string>((resolve) => {
        socket.once('data', (data) => resolve(data.toString()));
        socket.once('error', (error: NodeJS.ErrnoException) => resolve(error.code ?? 'error'));
        socket.write(text);
      });
    assert.equal(await echo('hello'), 'hello');
    await turnInto(one, web('pod2'));
    assert.equal(await echo('still'), 'still');
    const gone = [{ ip: topology.address('pod1', 'ipv4'), port }];
    assert.deepEqual(reconciler.connected([...gone, { ip: topology.address('pod2', 'ipv4'), port }]), gone);
    // The client waits without sending anything.
    const end = new Promise<string>((resolve) =>
      socket.once('error', (error: NodeJS.ErrnoException) => resolve(error.code ?? 'error')),
    );
    assert.equal(await reconciler.endConnections(gone), 1);
    assert.equal(await end, 'ECONNRESET');
  });
}
