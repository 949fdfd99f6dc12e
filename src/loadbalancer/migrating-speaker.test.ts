import assert from 'node:assert/strict';
import { afterEach, describe, test } from 'node:test';
import { follow } from '../kube/informer.ts';
import {
  ANNOUNCEMENT_LABEL,
  ANNOUNCEMENT_NAMESPACE,
  EARLIER_ANNOUNCEMENT_NAMESPACE,
} from '../kube/load-balancer.ts';
import { type MiniatureServer, miniatureServer } from '../kube/testing/miniature-server.ts';
import { RESOURCES } from '../kube/types.ts';
import { type ManualClock, manualClock, pause } from '../lib/clock.ts';
import { silentLogger } from '../lib/log.ts';
import type { Candidates } from './candidates.ts';
import { startMigratingSpeaker } from './migrating-speaker.ts';
import { type Speaker, startSpeaker } from './speaker.ts';

const NODES = ['n1', 'n2', 'n3'];
const ADDRESSES = ['192.0.2.1', '192.0.2.2', '192.0.2.3'];
const LEASE_MS = 750;
const STEP_MS = 10;
/** Random orders of events; more: FAIRLEAD_TEST_RUNS. */
const RUNS = Number(process.env['FAIRLEAD_TEST_RUNS'] ?? 6);

/** "old": an agent of version 0.1, which knows the earlier namespace only. */
type Version = 'old' | 'new';

interface Agent {
  readonly node: string;
  readonly version: Version;
  readonly client: string;
  readonly speaker: Speaker;
  readonly told: Set<string>;
  readonly kill: () => void;
}

/** Nodes with agents of two versions, an API server, and the roles of the agents. */
interface World {
  readonly clock: ManualClock;
  readonly server: MiniatureServer;
  readonly agents: Map<string, Agent>;
  readonly random: () => number;
  /** Whether the agents may write Leases in the earlier namespace. */
  mayWriteEarlier: boolean;
  /** Whether they may read them. */
  mayReadEarlier: boolean;
  readonly violations: string[];
  /** The number of steps in which an address had no owner. */
  silent: number;
  /** The number of requests that were refused for want of rights. */
  refused: number;
  start(node: string, version: Version): void;
  kill(node: string): void;
  stop(node: string): Promise<void>;
  pass(ms: number): Promise<void>;
  owners(address: string): Agent[];
  end(): void;
}

function createWorld(seed: number): World {
  const clock = manualClock(1_000_000);
  const server = miniatureServer();
  const random = randomFrom(seed);
  const agents = new Map<string, Agent>();
  let started = 0;
  server.forbids = ({ method, path }) => {
    const isForbidden =
      path.includes(`/${EARLIER_ANNOUNCEMENT_NAMESPACE}/`) &&
      (method === 'GET' ? !world.mayReadEarlier : !world.mayWriteEarlier);
    if (isForbidden) world.refused++;
    return isForbidden;
  };
  const candidates: Candidates = {
    wanted: new Map(ADDRESSES.map((address) => [address, { services: [`default/${address}`], nodes: null }])),
    nodes: new Set(NODES),
  };
  const turns = async () => {
    for (let i = 0; i < 12; i++) await new Promise((resolve) => setImmediate(resolve));
  };
  const world: World = {
    ...{ clock, server, agents, random, mayWriteEarlier: true, mayReadEarlier: true },
    ...{ violations: [], silent: 0, refused: 0 },
    start(node, version) {
      const client = `${node}-${version}-${++started}`;
      const ending = new AbortController();
      const { signal } = ending;
      const common = { client: server.client(client), clock, random, logger: silentLogger };
      const leasesOf = (namespace: string, until = signal) =>
        follow({ ...common, signal: until }, RESOURCES.leases, {
          namespace,
          labelSelector: ANNOUNCEMENT_LABEL,
        });
      const options = { ...common, signal, node, leaseDurationMs: LEASE_MS, steady: clock.now };
      const namespace = EARLIER_ANNOUNCEMENT_NAMESPACE;
      const speaker =
        version === 'old'
          ? startSpeaker({ ...options, namespace, leases: leasesOf(namespace) })
          : startMigratingSpeaker({ ...options, follow: leasesOf });
      speaker.ready.catch(() => {});
      const told = new Set<string>();
      speaker.setAnnouncer({ announce: (one) => told.add(one), withdraw: (one) => told.delete(one) });
      speaker.setCandidates(candidates);
      agents.set(node, { node, version, client, speaker, told, kill: () => ending.abort() });
    },
    kill(node) {
      const agent = agents.get(node);
      agents.delete(node);
      agent?.kill();
    },
    async stop(node) {
      const agent = agents.get(node);
      if (!agent) return;
      const closing = agent.speaker.close();
      let isClosed = false;
      void closing.then(() => {
        isClosed = true;
      });
      for (let i = 0; i < 500 && !isClosed; i++) await world.pass(STEP_MS);
      world.kill(node);
    },
    async pass(ms) {
      for (const end = clock.now() + ms; clock.now() < end; ) {
        clock.advance(STEP_MS);
        await turns();
        for (const address of ADDRESSES) {
          const owners = world.owners(address);
          if (owners.length === 0) world.silent++;
          if (owners.length > 1)
            world.violations.push(
              `${clock.now()}: ${address}: ${owners.map((one) => one.client).join(' and ')}`,
            );
        }
      }
    },
    owners: (address) =>
      [...agents.values()].filter(({ told, speaker }) => told.has(address) && speaker.mayAnnounce(address)),
    end() {
      for (const node of [...agents.keys()]) world.kill(node);
    },
  };
  return world;
}

/** Returns a generator of numbers 0 ≤ n < 1 (mulberry32). */
function randomFrom(seed: number): () => number {
  let state = seed;
  return () => {
    state = (state + 0x6d2b79f5) | 0;
    let mixed = Math.imul(state ^ (state >>> 15), 1 | state);
    mixed = (mixed + Math.imul(mixed ^ (mixed >>> 7), 61 | mixed)) ^ mixed;
    return ((mixed ^ (mixed >>> 14)) >>> 0) / 2 ** 32;
  };
}

const isServed = (world: World) => ADDRESSES.every((address) => world.owners(address).length === 1);

/** Lets time pass until each address has an owner; fails after a minute. */
async function untilServed(world: World): Promise<void> {
  for (let i = 0; i < 600 && !isServed(world); i++) await world.pass(100);
  assert.ok(isServed(world), ADDRESSES.map((one) => `${one}: ${world.owners(one).length}`).join(', '));
}

describe('agents of two versions', { timeout: 180_000 }, () => {
  let world: World;
  afterEach(() => world.end());

  test('an upgrade of one node after another, then without the rights in the earlier namespace', async () => {
    world = createWorld(1);
    for (const node of NODES) world.start(node, 'old');
    await untilServed(world);
    for (const node of NODES) {
      await world.stop(node);
      world.start(node, 'new');
      await world.pass(3000);
      await untilServed(world);
    }
    world.silent = 0;
    world.mayWriteEarlier = false;
    await world.pass(15_000);
    assert.equal(world.silent, 0, 'the addresses were announced all the time');
    assert.deepEqual(world.violations, []);
    // A second for each of a node's own session and those of the two others, and a few more at the beginning.
    const most = NODES.length * NODES.length * 15;
    assert.ok(world.refused < most, `${world.refused} writes without the right to them in 15 s`);
    const paths = [...world.server.objects.keys()];
    assert.ok(paths.some((path) => path.includes(`/${ANNOUNCEMENT_NAMESPACE}/`)));
    world.kill('n1');
    await world.pass(3000);
    await untilServed(world);
    assert.deepEqual(world.violations, []);
  });

  test('a new cluster does not wait for agents that it never had', async () => {
    world = createWorld(2);
    world.mayWriteEarlier = false;
    for (const node of NODES) world.start(node, 'new');
    await world.pass(3000);
    assert.ok(isServed(world));
    assert.ok(
      ![...world.server.objects.keys()].some((path) => path.includes(EARLIER_ANNOUNCEMENT_NAMESPACE)),
    );
  });

  test('the rights are removed while old agents announce: new ones wait until those have stopped', async () => {
    world = createWorld(3);
    world.start('n1', 'old');
    world.start('n2', 'old');
    await untilServed(world);
    world.mayWriteEarlier = false;
    world.start('n3', 'new');
    await world.pass(200);
    assert.equal(ADDRESSES.filter((one) => world.owners(one)[0]?.node === 'n3').length, 0);
    await world.pass(15_000);
    assert.ok(ADDRESSES.every((one) => world.owners(one)[0]?.node === 'n3'));
    assert.deepEqual(world.violations, []);
  });

  test('agents that may not read the earlier Leases wait for the longest duration of a session', async () => {
    world = createWorld(4);
    world.mayWriteEarlier = false;
    world.mayReadEarlier = false;
    world.start('n1', 'new');
    await world.pass(59_000);
    assert.ok(!isServed(world));
    await world.pass(5000);
    assert.ok(isServed(world));
  });

  test('rights that come back let the earlier Leases count again', async () => {
    world = createWorld(5);
    world.mayWriteEarlier = false;
    world.start('n1', 'new');
    world.start('n2', 'old');
    await untilServed(world);
    world.mayWriteEarlier = true;
    await world.pass(10_000);
    await untilServed(world);
    world.kill('n1');
    await world.pass(10_000);
    assert.ok(ADDRESSES.every((one) => world.owners(one)[0]?.node === 'n2'));
    assert.deepEqual(world.violations, []);
  });

  test('two nodes that claim an address at the same moment do not both get it', async () => {
    for (let seed = 200; seed < 210; seed++) {
      world = createWorld(seed);
      world.start('n1', 'old');
      world.start('n2', 'old');
      await world.pass(1100);
      // The others waited for it.
      world.server.delay = () => (world.random() < 0.3 ? pause(world.clock, 60) : Promise.resolve());
      world.start('n3', 'old');
      await untilServed(world);
      assert.deepEqual(world.violations, [], `seed ${seed}`);
      world.end();
    }
  });

  test('no order of events gives an address to two nodes', async () => {
    for (let seed = 100; seed < 100 + RUNS; seed++) {
      world = createWorld(seed);
      const { random } = world;
      const events: string[] = [];
      world.server.delay = () => (random() < 0.1 ? pause(world.clock, random() * 60) : Promise.resolve());
      for (let step = 0; step < 30; step++) {
        const node = NODES[Math.floor(random() * NODES.length)] ?? '';
        const agent = world.agents.get(node);
        const dice = random();
        const version = random() < 0.5 ? 'old' : 'new';
        events.push(`${world.clock.now()}: ${node} ${dice.toFixed(2)} ${version}`);
        if (!agent) world.start(node, version);
        else if (dice < 0.15) world.kill(node);
        else if (dice < 0.35) {
          await world.stop(node);
          world.start(node, version);
        } else if (dice < 0.5) {
          world.server.down.add(agent.client);
          await world.pass(random() * 2000);
          world.server.down.delete(agent.client);
        } else if (dice < 0.6) {
          // Rights must not come back to old agents that run without them: see the decision record.
          const hasOld = [...world.agents.values()].some(({ version }) => version === 'old');
          world.mayWriteEarlier = !world.mayWriteEarlier && !hasOld;
        }
        await world.pass(random() * 1500);
      }
      assert.deepEqual(world.violations, [], `seed ${seed}:\n${events.join('\n')}`);
      // The end of a migration: only new agents, in any state of the roles.
      for (const node of NODES) {
        world.kill(node);
        world.start(node, 'new');
      }
      await untilServed(world);
      assert.deepEqual(world.violations, [], `seed ${seed}, at its end`);
      world.end();
    }
  });
});
