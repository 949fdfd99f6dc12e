import assert from 'node:assert/strict';
import { existsSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { test } from 'node:test';
import type { Mode } from '../dataplane/dataplane.ts';
import type { Node } from '../kube/types.ts';
import { manualClock } from '../lib/clock.ts';
import { FairleadError } from '../lib/errors.ts';
import { silentLogger } from '../lib/log.ts';
import { type FakeDataplane, fakeDataplane } from '../proxy/testing/fake-dataplane.ts';
import { createModeSwitch, MODE_ANNOTATION, MODE_FILE } from './mode-switch.ts';

const nodeWith = (mode: string | null): Node => ({
  metadata: { name: 'node-1', ...(mode === null ? {} : { annotations: { [MODE_ANNOTATION]: mode } }) },
});

/**
 * One step: an update of the Node with an annotation, a request for a mode by the control socket, or a mode that cannot
 * be opened from now on, or a mode that stands in for the one of the node because the agent ends. Steps do not wait for switches that are in progress, except "settle".
 */
type Step =
  | { annotation: string | null }
  | { request: Mode }
  | { broken: Mode | null }
  | { unwritable: Mode }
  | { standIn: Mode }
  | 'settle';

const ROWS: readonly {
  readonly name: string;
  readonly steps: readonly Step[];
  /** All modes that were programmed, in order. */
  readonly modes: readonly Mode[];
  readonly events: readonly string[];
  /** The mode that remains; default: the last programmed one. */
  readonly remains?: Mode;
  /** The mode whose rules the next agent removes; default: as `remains`. */
  readonly file?: Mode;
}[] = [
  {
    name: 'the annotation of the node is followed',
    steps: [{ annotation: null }, { annotation: 'iptables' }],
    modes: ['iptables'],
    events: ['ModeSwitched'],
  },
  {
    name: 'a node that still has the previous annotation does not revert a request',
    steps: [
      { annotation: 'ebpf' },
      'settle',
      { request: 'iptables' },
      { annotation: 'ebpf' },
      'settle',
      { annotation: 'ebpf' },
      { annotation: 'iptables' },
    ],
    modes: ['ebpf', 'iptables'],
    events: ['ModeSwitched', 'ModeSwitched'],
  },
  {
    name: 'the last of several annotations wins, also if it is the current mode',
    steps: [{ annotation: 'ebpf' }, { annotation: 'nftables' }],
    modes: ['ebpf', 'nftables'],
    events: ['ModeSwitched', 'ModeSwitched'],
  },
  {
    name: 'a mode that is not available is an event, and the mode remains',
    steps: [{ annotation: 'fastest' }],
    modes: [],
    events: ['ModeNotSwitched'],
  },
  {
    name: 'a failed switch is repeated at each update of the node',
    steps: [
      { broken: 'ebpf' },
      { annotation: 'ebpf' },
      'settle',
      { annotation: 'ebpf' },
      'settle',
      { broken: null },
      { annotation: 'ebpf' },
    ],
    modes: ['ebpf'],
    events: ['ModeNotSwitched', 'ModeNotSwitched', 'ModeSwitched'],
  },
  {
    name: 'a failed switch is not repeated after a request for another mode',
    steps: [
      { broken: 'ebpf' },
      { annotation: 'ebpf' },
      'settle',
      { broken: null },
      { request: 'iptables' },
      'settle',
      { annotation: 'ebpf' },
    ],
    modes: ['iptables'],
    events: ['ModeNotSwitched', 'ModeSwitched'],
  },
  {
    name: 'a mode that stands in does not change the mode of the node, and the next agent removes its rules',
    steps: [{ request: 'userspace' }, { standIn: 'nftables' }],
    modes: ['userspace', 'nftables'],
    events: ['ModeSwitched'],
    remains: 'userspace',
    file: 'nftables',
  },
  {
    name: 'no switch follows a mode that stands in',
    steps: [{ standIn: 'iptables' }, 'settle', { annotation: 'ebpf' }, { request: 'userspace' }],
    modes: ['iptables'],
    events: [],
    remains: 'nftables',
    file: 'iptables',
  },
  {
    name: 'a mode that cannot stand in leaves no trace',
    steps: [{ request: 'userspace' }, { unwritable: 'nftables' }, { standIn: 'nftables' }],
    modes: ['userspace'],
    events: ['ModeSwitched'],
  },
];

for (const { name, steps, modes, events, ...row } of ROWS) {
  test(name, async () => {
    const stateDir = mkdtempSync(join(tmpdir(), 'mode-switch-'));
    const seen = { modes: [] as Mode[], events: [] as string[] };
    const remains = row.remains ?? modes.at(-1) ?? 'nftables';
    let broken: Mode | null = null;
    let unwritable: Mode | null = null;
    const made = createModeSwitch({
      stateDir,
      mode: 'nftables',
      async open(mode) {
        if (mode === broken) throw new Error(`${mode} is broken`);
        return fakeDataplane(mode);
      },
      async switchTo({ mode }) {
        await settle();
        if (mode === unwritable) throw new Error(`${mode} cannot be written`);
        seen.modes.push(mode);
      },
      onMode: () => {},
      onKept: () => {},
      node: () => nodeWith(null),
      events: { event: (_object, _type, reason) => seen.events.push(reason), flush: async () => {} },
      clock: manualClock(),
      logger: silentLogger,
      signal: new AbortController().signal,
    });
    try {
      for (const step of [...steps, 'settle' as const]) {
        if (step === 'settle') for (let i = 0; i < 10; i++) await settle();
        else if ('annotation' in step) made.follow(nodeWith(step.annotation));
        else if ('request' in step) made.switchMode(step.request).catch(() => {});
        else if ('standIn' in step) made.standIn(step.standIn).catch(() => {});
        else if ('unwritable' in step) unwritable = step.unwritable;
        else broken = step.broken;
      }
      assert.deepEqual(seen, { modes, events });
      assert.equal(made.mode, remains);
      // A node whose mode was never switched has no file before its first programming.
      const file = join(stateDir, MODE_FILE);
      assert.equal(existsSync(file) ? readFileSync(file, 'utf8') : remains, row.file ?? remains);
    } finally {
      rmSync(stateDir, { recursive: true });
    }
  });
}

test('rules that a previous agent still owns are removed when it has ended', async () => {
  const stateDir = mkdtempSync(join(tmpdir(), 'mode-switch-'));
  try {
    writeFileSync(join(stateDir, MODE_FILE), 'nftables');
    const clock = manualClock();
    const made = createModeSwitch({
      stateDir,
      mode: 'userspace',
      open: async (mode) => fakeDataplane(mode),
      switchTo: async () => {},
      onMode: () => {},
      onKept: () => {},
      node: () => nodeWith(null),
      events: { event: () => {}, flush: async () => {} },
      clock,
      logger: silentLogger,
      signal: new AbortController().signal,
    });
    const opened: FakeDataplane[] = [];
    const removing = made.removeEarlier(async (mode) => {
      const dataplane = fakeDataplane(mode);
      const owned = new FairleadError('owned', { op: 'remove table', code: 'EPERM' });
      if (opened.push(dataplane) === 1) dataplane.removalFaults.push(owned);
      return dataplane;
    });
    for (let i = 0; i < 10; i++) await settle();
    assert.deepEqual(
      opened.map(({ calls }) => calls),
      [['remove', 'close']],
    );
    clock.advance(1000);
    await removing;
    assert.deepEqual(
      opened.map(({ mode, calls }) => [mode, ...calls]),
      [
        ['nftables', 'remove', 'close'],
        ['nftables', 'remove', 'close'],
      ],
    );
    assert.equal(readFileSync(join(stateDir, MODE_FILE), 'utf8'), 'userspace');
  } finally {
    rmSync(stateDir, { recursive: true });
  }
});

/** Lets pending callbacks run. */
function settle(): Promise<void> {
  return new Promise((resolve) => setImmediate(resolve));
}
