import assert from 'node:assert/strict';
import { Socket } from 'node:net';
import { basename } from 'node:path';
import { after, afterEach, before, describe, test } from 'node:test';
import { EJECTION_RULES } from '../../failover/ejection-rules.ts';
import { inControlGroup } from '../../kernel/control-group.ts';
import { openTcpIn } from '../../kernel/netns.ts';
import { tcpInfo } from '../../kernel/tcp-info.ts';
import type { IPFamily } from '../../lib/address.ts';
import { pause, systemClock } from '../../lib/clock.ts';
import { eventually } from '../../lib/testing/eventually.ts';
import type { Dataplane } from '../dataplane.ts';
import { attachSynTimeout, type SynTimeout } from '../ebpf/syn-timeout.ts';
import { makeTestGroup, removeTestGroup } from '../ebpf/testing/client.ts';
import { delayArrivals } from './delayed-packets.ts';
import {
  CLUSTER_IP,
  createFailoverScene,
  type FailoverScene,
  PORT,
  type SceneOptions,
  SERVICE_NETWORKS,
} from './failover-scene.ts';
import { createTopology, type Place, type Topology } from './topology.ts';

/** The port of the endpoints. */
const TARGET = 8080;
const DEAD = `
  add table inet dead
  add chain inet dead input { type filter hook input priority 0; }
  add rule inet dead input tcp dport ${TARGET} drop
`;
const FAMILIES: readonly IPFamily[] = ['ipv4', 'ipv6'];
const NEVER_EJECTED = { settings: { ...EJECTION_RULES, agentTimeouts: 1_000_000 } };
/** Longer than the time in which an answer counts as fast, or in which one is sampled. */
const BETWEEN_MS = 30;
/** The client's second SYN is on its way before the answer to the first one. */
const FAR_MS = 150;

interface Attempt {
  /** The place that answered. */
  readonly answer: Promise<string>;
  retransmits(): number;
  close(): void;
}

/**
 * Tests failover of clients whose SYNs are retransmitted early, with packets. A connection to an endpoint itself, which
 * has the kernel's timer, is the clock. `keepsEndpoint`: the mode leads the SYNs of a connection to the same endpoint until
 * it is ejected. A list of tests, which share a topology: its length is theirs.
 */
export function testShortTimers(
  mode: string,
  open: (netns: string) => Dataplane,
  { keepsEndpoint = false } = {},
): void {
  describe(`short SYN timers in ${mode} mode`, { concurrency: 1 }, () => {
    let topology: Topology;
    let dataplane: Dataplane;
    let group = '';
    let timers: SynTimeout;
    let scene: FailoverScene | null = null;

    before(() => {
      topology = createTopology();
      dataplane = open(topology.namespace('node'));
      group = makeTestGroup();
      timers = attachSynTimeout(group, SERVICE_NETWORKS);
    });
    afterEach(async () => {
      await scene?.close();
      scene = null;
    });
    after(async () => {
      timers?.close();
      await dataplane?.close();
      topology?.close();
      if (group) await removeTestGroup(group);
    });

    async function begin(
      places: readonly Place[],
      options: Partial<SceneOptions> = {},
    ): Promise<FailoverScene> {
      const made = await createFailoverScene(topology, dataplane, {
        failover: true,
        shortTimers: () => timers,
        ...options,
      });
      scene = made;
      for (const place of places) await made.open(place);
      await made.setEndpoints(places);
      return made;
    }

    /** Opens a connection from a pod in the control group. */
    function attempt(address: string, port: number): Attempt {
      const family = address.includes(':') ? 'ipv6' : 'ipv4';
      const fd = inControlGroup(`/${basename(group)}`, () => openTcpIn(topology.namespace('pod1'), family));
      const socket = new Socket({ fd });
      let text = '';
      let retransmits: number | null = null;
      const answer = new Promise<string>((resolve) => {
        socket.on('connect', () => {
          retransmits = tcpInfo(fd).retransmits;
        });
        socket.setEncoding('utf8').on('data', (chunk) => {
          text += chunk;
        });
        socket.on('end', () => resolve(text));
        socket.on('error', (error: NodeJS.ErrnoException) => resolve(error.code ?? 'error'));
      });
      socket.connect(port, address);
      return {
        answer,
        retransmits: () => retransmits ?? tcpInfo(fd).retransmits,
        close: () => socket.destroy(),
      };
    }

    /** Connects until each of the places has answered often enough to be known as fast. */
    async function learn(family: IPFamily, places: readonly Place[]): Promise<void> {
      const counts = new Map<string, number>();
      while (places.some((place) => (counts.get(place) ?? 0) < 6)) {
        const place = await attempt(CLUSTER_IP[family], PORT).answer;
        assert.ok(places.includes(place as Place), place);
        counts.set(place, (counts.get(place) ?? 0) + 1);
        await pause(systemClock, BETWEEN_MS);
      }
    }

    /** Drops SYNs at a place. */
    function die(place: Place): { revive(): void } {
      topology.run(place, 'nft', DEAD);
      return { revive: () => void topology.run(place, 'nft', 'delete table inet dead') };
    }

    for (const family of FAMILIES) {
      test(`${family}: the first retransmitted SYN goes to another endpoint, before the kernel's timer expires`, {
        skip: keepsEndpoint,
      }, async () => {
        await begin(['pod2', 'pod3'], NEVER_EJECTED);
        await learn(family, ['pod2', 'pod3']);
        const dead = die('pod2');
        try {
          // An attempt that the machine delays for so long does not count.
          for (let isEarly = false, left = 40; !isEarly; left--) {
            assert.ok(left > 0, 'no retransmitted SYN was earlier than the kernel’s');
            const clock = attempt(topology.address('pod2', family), TARGET);
            const one = attempt(CLUSTER_IP[family], PORT);
            assert.equal(await one.answer, 'pod3');
            isEarly = one.retransmits() === 1 && clock.retransmits() === 0;
            clock.close();
          }
        } finally {
          dead.revive();
        }
      });

      test(`${family}: an endpoint that dies is ejected before the kernel's timer expires`, async () => {
        const made = await begin(['pod2', 'pod3']);
        for (let isEarly = false, left = 10; !isEarly; left--) {
          assert.ok(left > 0, 'no ejection was earlier than the kernel’s timer');
          await learn(family, ['pod2', 'pod3']);
          const before = made.verdicts.length;
          const dead = die('pod2');
          const clock = attempt(topology.address('pod2', family), TARGET);
          const attempts: Attempt[] = [];
          try {
            await eventually(async () => {
              attempts.push(attempt(CLUSTER_IP[family], PORT));
              await pause(systemClock, 5);
              return made.verdicts.length > before;
            });
            isEarly = clock.retransmits() === 0;
            const answers = await Promise.all(attempts.map(({ answer }) => answer));
            assert.deepEqual(new Set(answers), new Set(['pod3']));
          } finally {
            clock.close();
            dead.revive();
          }
          await eventually(() => made.failover?.ejected.size === 0);
          await made.settled();
        }
      });
    }

    /** Connects until the far endpoint has answered three connections whose entries were kept meanwhile. */
    async function reachFar(made: FailoverScene): Promise<void> {
      for (let kept = 0, left = 60; kept < 3; left--) {
        assert.ok(left > 0, 'pending connections to the far endpoint are deleted');
        const before = made.unanswered;
        const one = attempt(CLUSTER_IP.ipv4, PORT);
        const place = await one.answer;
        assert.ok(place === 'far' || place === 'pod2', place);
        if (made.unanswered !== before) kept = 0;
        else if (place === 'far' && one.retransmits() > 0) kept++;
      }
    }

    for (const [what, isNearFirst] of [
      ['an endpoint that is far away is connected to', false],
      ['an endpoint that was near and is far away now is connected to again', true],
    ] as const)
      test(what, async (t) => {
        const made = await begin(['far', 'pod2']);
        if (isNearFirst) await learn('ipv4', ['far', 'pod2']);
        const delay = delayArrivals(topology.namespace('far'), FAR_MS);
        if (!delay) return t.skip('the kernel cannot delay packets');
        try {
          await reachFar(made);
          await eventually(() => made.failover?.ejected.size === 0);
        } finally {
          delay.close();
        }
      });

    test('pending connections to a lone endpoint are not deleted: an ICMP error could not reach the client', async () => {
      const made = await begin(['pod2']);
      await learn('ipv4', ['pod2']);
      const dead = die('pod2');
      const before = made.unanswered;
      const attempts = Array.from({ length: 4 }, () => attempt(CLUSTER_IP.ipv4, PORT));
      // With two endpoints, each of these would have been deleted once for each retransmission.
      await eventually(() => attempts.every((one) => one.retransmits() >= 4));
      assert.equal(made.unanswered, before);
      dead.revive();
      const answers = await Promise.all(attempts.map(({ answer }) => answer));
      assert.deepEqual(new Set(answers), new Set(['pod2']));
    });
  });
}
