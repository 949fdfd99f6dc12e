import assert from 'node:assert/strict';
import { after, before, beforeEach, describe, test } from 'node:test';
import { openPacketQueue } from '../../kernel/packet-queue.ts';
import { eventually } from '../../lib/testing/eventually.ts';
import type { FlowEvent } from '../flow-event.ts';
import { ALL, createServiceScene, FAMILIES, TARGET } from '../testing/service-scene.ts';
import { type Place, SILENCE_MS } from '../testing/topology.ts';
import { createUserspace } from './userspace.ts';

/** Network policies decide about a connection before it is accepted: a denied client sees silence, as in other modes. */
describe('connections that network policies deny', () => {
  /** "CLIENT ENDPOINT" */
  const forbidden = new Set<string>();
  const counted: string[] = [];
  const flows: FlowEvent[] = [];
  const pairOf = (client: string, { ip }: { readonly ip: string }) => `${client} ${ip}`;
  const scene = createServiceScene({
    open: (netns) =>
      createUserspace({
        families: FAMILIES,
        netns,
        policies: {
          admits: (client, to) => !forbidden.has(pairOf(client, to)),
          denied: (client, to, protocol) => counted.push(`${pairOf(client, to)} ${protocol}`),
        },
      }),
    proxy: true,
  });
  const { service, destination } = scene;
  const deny = (client: Place, ...places: Place[]) => {
    for (const family of FAMILIES)
      for (const place of places)
        forbidden.add(`${scene.topology.address(client, family)} ${scene.topology.address(place, family)}`);
  };
  /** The result for a client that only connects. */
  const connect = async (from: Place, kind: 'ClusterIP' | 'NodePort', family: 'ipv4' | 'ipv6', n: number) => {
    const [address, port] = destination(kind, family, n);
    return (await scene.ask(from, 'TCP', address, port, SILENCE_MS)).split(' ')[0];
  };

  before(() => scene.start());
  after(() => scene.close());
  beforeEach(async () => {
    forbidden.clear();
    counted.length = 0;
    flows.length = 0;
    await scene.sync([...service(20, ['pod1']), ...service(21, ALL)]);
  });

  const ROWS: readonly [name: string, from: Place, kind: 'ClusterIP' | 'NodePort'][] = [
    ['a pod', 'pod3', 'ClusterIP'],
    ['a pod that is the endpoint itself', 'pod1', 'ClusterIP'],
    ['the node', 'node', 'ClusterIP'],
    ['a client outside', 'outside', 'NodePort'],
  ];
  for (const [name, from, kind] of ROWS) {
    for (const family of FAMILIES) {
      test(`${name}, ${family}: silence until the policy allows it, and again when it is back`, async () => {
        assert.equal(await connect(from, kind, family, 20), 'pod1');
        forbidden.add(`${scene.topology.address(from, family)} ${scene.topology.address('pod1', family)}`);
        assert.equal(await connect(from, kind, family, 20), 'silence');
        forbidden.clear();
        assert.equal(await connect(from, kind, family, 20), 'pod1');
      });
    }
  }

  for (const family of FAMILIES) {
    test(`a client reaches the only endpoint that it is allowed, ${family}`, async () => {
      deny('pod3', 'pod1', 'far');
      for (let i = 0; i < 4; i++) assert.equal(await connect('pod3', 'ClusterIP', family, 21), 'pod2');
      deny('pod3', 'pod2');
      assert.equal(await connect('pod3', 'ClusterIP', family, 21), 'silence');
      assert.equal(await connect('pod2', 'ClusterIP', family, 20), 'pod1', 'another client');
    });

    test(`a changed endpoint counts from the next packet, ${family}`, async () => {
      deny('pod3', 'pod1');
      const [address, port] = destination('ClusterIP', family, 20);
      // The client's kernel repeats its first packet after a second.
      const answer = scene.ask('pod3', 'TCP', address, port);
      await eventually(() => counted.length > 0);
      await scene.apply([...service(20, ['pod2']), ...service(21, ALL)]);
      assert.match(await answer, /^pod2 /);
    });
  }

  test('a denial is counted and reported once, although the client repeats its packet', async () => {
    const watch = scene.dataplane.abilities.flows?.watch(
      (event) => event.kind === 'denied' && flows.push(event),
    );
    deny('pod3', 'pod1');
    const [address, port] = destination('ClusterIP', 'ipv4', 20);
    assert.equal(await scene.ask('pod3', 'TCP', address, port, 2500), 'silence');
    watch?.close();
    const client = scene.topology.address('pod3', 'ipv4');
    assert.deepEqual(counted, [`${client} ${scene.topology.address('pod1', 'ipv4')} TCP`]);
    assert.deepEqual(
      flows.map(({ kind, client: { ip }, endpoint: to, service: at }) => ({ kind, ip, to, at })),
      [
        {
          kind: 'denied',
          ip: client,
          to: { ip: scene.topology.address('pod1', 'ipv4'), port: TARGET },
          at: { ip: address, port },
        },
      ],
    );
    await scene.expectVerified();
  });

  test('the queue has a free number, and ends with the process', async () => {
    const queues = () =>
      scene.topology
        .run('node', 'cat', '/proc/net/netfilter/nfnetlink_queue')
        .trim()
        .split('\n')
        .map((line) => Number(line.trim().split(/\s+/)[0]));
    const [number = 0] = queues();
    const other = openPacketQueue({
      netns: scene.topology.namespace('node'),
      snapBytes: 64,
      decide: () => false,
    });
    assert.deepEqual(queues().sort(), [number, other.number].sort());
    assert.notEqual(other.number, number);
    assert.equal(await connect('pod3', 'ClusterIP', 'ipv4', 20), 'pod1');
    await scene.dataplane.close();
    assert.deepEqual(queues(), [other.number]);
    // The rules stay, and nothing waits for the process that has ended.
    assert.equal(await connect('pod3', 'ClusterIP', 'ipv4', 20), 'refused');
    scene.reopen();
    await scene.sync(service(20, ['pod1']));
    other.close();
    deny('pod3', 'pod1');
    assert.equal(await connect('pod3', 'ClusterIP', 'ipv6', 20), 'silence');
    await scene.expectVerified();
  });
});
