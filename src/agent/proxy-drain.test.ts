import assert from 'node:assert/strict';
import { test } from 'node:test';
import { NO_ABILITIES } from '../dataplane/abilities.ts';
import type { Dataplane, Mode } from '../dataplane/dataplane.ts';
import { serviceMap } from '../dataplane/testing/service-map.ts';
import { manualClock } from '../lib/clock.ts';
import { silentLogger } from '../lib/log.ts';
import { fakeDataplane } from '../proxy/testing/fake-dataplane.ts';
import { DRAIN_MS, drainProxy } from './proxy-drain.ts';

interface Row {
  readonly name: string;
  readonly mode: Mode;
  /** Whether another mode can stand in. */
  readonly canStandIn?: boolean;
  readonly isProgrammed?: boolean;
  /** Whether a connection of an earlier mode is open. */
  readonly isEarlierOpen?: boolean;
  /** The calls, in order; `reset`: at the limit. */
  readonly expected: readonly string[];
}

const ROWS: readonly Row[] = [
  { name: 'a mode whose connections outlive the agent', mode: 'nftables', expected: ['ended'] },
  {
    name: 'a mode that copies connections: another stands in, and open connections are waited for, up to a limit',
    mode: 'userspace',
    expected: ['nftables stands in', 'current waits', 'current resets', 'ended'],
  },
  {
    name: 'before anything is programmed, the rules of the previous agent stay',
    mode: 'userspace',
    isProgrammed: false,
    expected: ['ended'],
  },
  {
    name: 'if no other mode can stand in, the connections end with the agent',
    mode: 'userspace',
    canStandIn: false,
    expected: ['ended'],
  },
  {
    name: 'connections of an earlier mode of the node are waited for too',
    mode: 'nftables',
    isEarlierOpen: true,
    expected: ['earlier waits', 'earlier resets', 'ended'],
  },
];

for (const { name, mode, canStandIn = true, isProgrammed = true, isEarlierOpen = false, expected } of ROWS) {
  test(name, async () => {
    const clock = manualClock();
    const calls: string[] = [];
    const relay = (which: string): Dataplane => ({
      ...fakeDataplane('userspace'),
      abilities: {
        ...NO_ABILITIES,
        connections: {
          end: async () => 0,
          drain: (signal) =>
            new Promise((resolve) => {
              calls.push(`${which} waits`);
              signal.addEventListener('abort', () => {
                calls.push(`${which} resets`);
                resolve(1);
              });
            }),
        },
      },
    });
    const proxy = {
      dataplane: mode === 'userspace' ? relay('current') : fakeDataplane(mode),
      map: isProgrammed ? serviceMap([]) : null,
    };
    const relays = [
      ...(mode === 'userspace' ? [proxy.dataplane] : []),
      ...(isEarlierOpen ? [relay('earlier')] : []),
    ];
    const modes = {
      mode,
      async standIn(other: Mode) {
        if (!canStandIn) throw new Error('the kernel rejects it');
        calls.push(`${other} stands in`);
        proxy.dataplane = fakeDataplane(other);
      },
    };
    const isProxy = mode === 'userspace';
    const drained = drainProxy({ modes, isProxy, proxy, relays, clock, logger: silentLogger }).then(() =>
      calls.push('ended'),
    );
    for (let i = 0; i < 5; i++) await new Promise((resolve) => setImmediate(resolve));
    clock.advance(DRAIN_MS);
    await drained;
    assert.deepEqual(calls, expected);
  });
}
