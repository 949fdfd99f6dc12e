import assert from 'node:assert/strict';
import { after, before, describe, test } from 'node:test';
import { createClient } from '../src/kube/client.ts';
import { type Informer, startInformer } from '../src/kube/informer.ts';
import { ANNOUNCEMENT_LABEL, ANNOUNCEMENT_NAMESPACE, announcingNode } from '../src/kube/load-balancer.ts';
import type { ApiRequest, Transport } from '../src/kube/transport.ts';
import { type KubeObject, RESOURCES, type Resource } from '../src/kube/types.ts';
import { systemClock } from '../src/lib/clock.ts';
import { silentLogger } from '../src/lib/log.ts';
import { eventually } from '../src/lib/testing/eventually.ts';
import { followCandidates } from '../src/loadbalancer/candidates.ts';
import { type Speaker, startSpeaker } from '../src/loadbalancer/speaker.ts';
import { type ControlPlane, startControlPlane } from './testing/control-plane.ts';

const NODES = ['node-1', 'node-2', 'node-3', 'node-4'];
const SERVICES = 8;
const LEASE_MS = 300;

interface Line {
  /** "slow": every answer is delayed; "cut": there are no answers. */
  state: 'good' | 'slow' | 'cut';
}

interface Member {
  readonly name: string;
  readonly line: Line;
  readonly speaker: Speaker;
  readonly stop: () => void;
  /** The addresses that the announcer has to announce. */
  readonly told: Set<string>;
}

const sleep = (ms: number) => new Promise<void>((resolve) => setTimeout(resolve, ms));

/** Simulates the line between one node and the API server. */
function disturbed(transport: Transport, line: Line): Transport {
  const pass = async (signal: AbortSignal | undefined): Promise<void> => {
    if (line.state === 'slow') await sleep(Math.random() * LEASE_MS);
    while (line.state === 'cut') {
      signal?.throwIfAborted();
      await sleep(5);
    }
    signal?.throwIfAborted();
  };
  return async (request: ApiRequest) => {
    await pass(request.signal);
    const response = await transport(request);
    // The write succeeds even if its answer gets lost.
    await pass(request.signal);
    const body = async function* () {
      for await (const chunk of response.body) {
        await pass(request.signal);
        yield chunk;
      }
    };
    return { ...response, body: body() };
  };
}

describe('nodes that share addresses by Leases', { timeout: 120_000 }, () => {
  let plane: ControlPlane;
  let members: Member[] = [];
  const transport = (): Transport => plane.transport;
  let referee: NodeJS.Timeout | undefined;
  const violations: string[] = [];
  let addresses: string[] = [];

  const join = (name: string): Member => {
    const line: Line = { state: 'good' };
    const ending = new AbortController();
    const { signal } = ending;
    const client = createClient(disturbed(transport(), line), name);
    const clock = systemClock;
    const common = { client, clock, random: Math.random, logger: silentLogger, signal };
    const follow = <T extends KubeObject>(resource: Resource<T>, more = {}): Informer<T> =>
      startInformer({ ...common, resource, ...more });
    const told = new Set<string>();
    const speaker = startSpeaker({
      ...common,
      node: name,
      namespace: ANNOUNCEMENT_NAMESPACE,
      leases: follow(RESOURCES.leases, {
        namespace: ANNOUNCEMENT_NAMESPACE,
        labelSelector: ANNOUNCEMENT_LABEL,
      }),
      leaseDurationMs: LEASE_MS,
      steady: () => performance.now(),
    });
    const sources = {
      nodes: follow(RESOURCES.nodes),
      services: follow(RESOURCES.services),
      slices: follow(RESOURCES.endpointSlices),
    };
    followCandidates(sources, speaker.setCandidates);
    speaker.setAnnouncer({ announce: (one) => told.add(one), withdraw: (one) => told.delete(one) });
    return { name, line, speaker, told, stop: () => ending.abort() };
  };
  /** Returns the nodes that answer for an address at this moment. */
  const speaking = (address: string) =>
    members.filter(({ speaker, told }) => told.has(address) && speaker.mayAnnounce(address));
  const untilAllSpeak = async (among: readonly string[] = NODES) => {
    const settled = () =>
      addresses.every((address) => {
        const [one] = speaking(address);
        return one !== undefined && among.includes(one.name);
      });
    for (const until = Date.now() + 30_000; !settled(); await sleep(10))
      assert.ok(
        Date.now() < until,
        addresses.map((one) => `${one}: ${speaking(one).map(({ name }) => name)}`).join('; '),
      );
  };

  before(async () => {
    plane = await startControlPlane({
      loadBalancerPools: [{ name: 'default', ranges: ['192.0.2.0/28'] }],
      nodeGraceSeconds: 600,
    });
    for (const name of NODES) await plane.addNode(name);
    members = NODES.map(join);
    await Promise.all(members.map(({ speaker }) => speaker.ready));
    referee = setInterval(() => {
      for (const address of addresses) {
        const names = speaking(address).map(({ name }) => name);
        if (names.length > 1) violations.push(`${address}: ${names.join(' and ')}`);
      }
    }, 1);
    for (let i = 0; i < SERVICES; i++)
      await plane.client.create(RESOURCES.services, {
        metadata: { name: `web-${i}`, namespace: 'default' },
        spec: { type: 'LoadBalancer', ports: [{ port: 80 }] },
      });
    addresses = await plane.until(RESOURCES.services, 'addresses', (services) => {
      const all = services.flatMap(({ status }) =>
        (status?.loadBalancer?.ingress ?? []).map(({ ip = '' }) => ip),
      );
      return all.length === SERVICES ? all : undefined;
    });
  });
  after(async () => {
    clearInterval(referee);
    for (const { line, stop } of members) {
      line.state = 'good';
      stop();
    }
    await plane?.close();
  });

  test('each address is announced by one node, and they are distributed', async () => {
    await untilAllSpeak();
    const shares = members.map(({ told }) => told.size);
    assert.equal(
      shares.reduce((a, b) => a + b),
      SERVICES,
    );
    // A node that is late leaves its share to others: how even it is without, is tested in election.test.ts.
    assert.ok(shares.filter((share) => share > 0).length >= 2, shares.join(', '));
  });

  test('the Leases name the announcing node', async () => {
    // A node that was late does not speak, and an address that moves has no speaker, for a moment.
    await eventually(
      async () => {
        const { items } = await plane.client.list(RESOURCES.leases, { namespace: ANNOUNCEMENT_NAMESPACE });
        return addresses.map((address) => [announcingNode(items, address), speaking(address)[0]?.name]);
      },
      (pairs) => pairs.every(([inLease, speaker]) => inLease === speaker),
    );
  });

  test('a node that cannot reach the API server stops announcing before another takes over', async () => {
    const [victim] = members;
    assert.ok(victim);
    const had = [...victim.told];
    victim.line.state = 'cut';
    await untilAllSpeak(NODES.slice(1));
    assert.ok(had.every((address) => !victim.speaker.mayAnnounce(address)));
    victim.line.state = 'good';
    await untilAllSpeak();
    assert.deepEqual(violations, []);
  });

  test('an API server that pauses for longer than Leases last does not move addresses', async () => {
    const owners = () =>
      addresses.map((address) =>
        speaking(address)
          .map(({ name }) => name)
          .join(),
      );
    const before = owners();
    for (const { line } of members) line.state = 'cut';
    await sleep(3 * LEASE_MS);
    assert.ok(addresses.every((address) => speaking(address).length === 0));
    for (const { line } of members) line.state = 'good';
    await untilAllSpeak();
    assert.deepEqual(owners(), before);
    assert.deepEqual(violations, []);
  });

  test('a node that shuts down hands over its addresses', async () => {
    const last = members.at(-1);
    assert.ok(last);
    await last.speaker.close();
    await untilAllSpeak(NODES.slice(0, -1));
    last.stop();
    members = [...members.slice(0, -1), join(last.name)];
    assert.deepEqual(violations, []);
  });

  test('two nodes never announce one address, regardless of failing links', async () => {
    for (let i = 0; i < 25; i++) {
      const member = members[Math.floor(Math.random() * members.length)];
      assert.ok(member);
      member.line.state = (['good', 'slow', 'cut'] as const)[Math.floor(Math.random() * 3)] ?? 'good';
      await sleep(Math.random() * LEASE_MS);
    }
    for (const { line } of members) line.state = 'good';
    await untilAllSpeak();
    assert.deepEqual(violations, []);
  });
});
