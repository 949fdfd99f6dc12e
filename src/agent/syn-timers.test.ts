import assert from 'node:assert/strict';
import { test } from 'node:test';
import type { Mode } from '../dataplane/dataplane.ts';
import { parseCidr } from '../lib/address.ts';
import { silentLogger } from '../lib/log.ts';
import { createSynTimers } from './syn-timers.ts';

const A = ['10.96.0.0/16'];
const AB = [...A, 'fd00:96::/112'];

/** A mode and the networks of cluster IPs; "broken": the program cannot be attached from then on. */
type Step = readonly [mode: Mode, networks: readonly string[]] | 'broken';

const ROWS: readonly {
  readonly name: string;
  readonly steps: readonly Step[];
  /** Which networks are covered after each step, and what had been attached at any time. */
  readonly covered: readonly (readonly string[])[];
  readonly attached: readonly string[];
  readonly logs: number;
}[] = [
  {
    name: 'modes that use connection tracking have one program',
    steps: [
      ['nftables', AB],
      ['iptables', AB],
      ['ipvs', AB],
    ],
    covered: [AB, AB, AB],
    attached: [AB.join()],
    logs: 0,
  },
  {
    name: 'other modes have none',
    steps: [
      ['ebpf', AB],
      ['nftables', AB],
      ['ebpf', AB],
      ['userspace', AB],
      ['nftables', AB],
    ],
    covered: [[], AB, [], [], AB],
    attached: [AB.join(), AB.join()],
    logs: 0,
  },
  {
    name: 'networks are followed',
    steps: [
      ['nftables', []],
      ['nftables', A],
      ['nftables', AB],
      ['nftables', []],
    ],
    covered: [[], A, AB, []],
    attached: [A.join(), AB.join()],
    logs: 0,
  },
  {
    name: 'a kernel without the mechanism keeps its timers, and the log has one line',
    steps: ['broken', ['nftables', A], ['iptables', A], ['nftables', AB], ['ebpf', AB], ['nftables', AB]],
    covered: [[], [], [], [], [], []],
    attached: [],
    logs: 1,
  },
  {
    name: 'a failed replacement leaves nothing behind',
    steps: [['nftables', A], 'broken', ['nftables', AB]],
    covered: [A, A, []],
    attached: [A.join()],
    logs: 1,
  },
];

for (const { name, steps, covered, attached, logs } of ROWS)
  test(name, async () => {
    const open = new Set<object>();
    const all: string[] = [];
    let broken = false;
    let lines = 0;
    const timers = createSynTimers({
      cgroupParent: null,
      logger: { ...silentLogger, info: () => lines++ },
      async attach(networks) {
        if (broken) throw new Error('not supported');
        const texts = networks.map(({ text }) => text);
        all.push(texts.join());
        const timer = {
          covers: (address: string) => texts.includes(address),
          close: () => open.delete(timer),
        };
        open.add(timer);
        return timer;
      },
    });
    const seen: string[][] = [];
    for (const step of steps) {
      if (step === 'broken') broken = true;
      else
        await timers.follow(
          step[0],
          step[1].flatMap((text) => parseCidr(text) ?? []),
        );
      seen.push(AB.filter((text) => timers.current?.covers(text)));
      assert.equal(open.size, timers.current === null ? 0 : 1);
    }
    timers.close();
    await timers.follow(
      'nftables',
      AB.flatMap((text) => parseCidr(text) ?? []),
    );
    assert.equal(open.size, 0);
    assert.deepEqual([seen, all, lines], [covered, attached, logs]);
  });

test('networks that change while the program is loaded: the last ones win', async () => {
  const closed: string[] = [];
  const loads: (() => void)[] = [];
  const timers = createSynTimers({
    cgroupParent: null,
    logger: silentLogger,
    attach: async (networks) => {
      const texts = networks.map(({ text }) => text);
      await new Promise<void>((resolve) => loads.push(resolve));
      return { covers: (address) => texts.includes(address), close: () => closed.push(texts.join()) };
    },
  });
  const parsed = (texts: readonly string[]) => texts.flatMap((text) => parseCidr(text) ?? []);
  const both = [timers.follow('nftables', parsed(A)), timers.follow('nftables', parsed(AB))];
  for (const load of loads.reverse()) load();
  await Promise.all(both);
  assert.deepEqual([closed, AB.every((text) => timers.current?.covers(text))], [[A.join()], true]);
});
