import assert from 'node:assert/strict';
import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { test } from 'node:test';
import type { Mode } from '../dataplane/dataplane.ts';
import type { Node } from '../kube/types.ts';
import { silentLogger } from '../lib/log.ts';
import { fakeDataplane } from '../proxy/testing/fake-dataplane.ts';
import { createModeSwitch, MODE_ANNOTATION } from './mode-switch.ts';

const nodeWith = (mode: string | null): Node => ({
  metadata: { name: 'node-1', ...(mode === null ? {} : { annotations: { [MODE_ANNOTATION]: mode } }) },
});

/**
 * One step: an update of the Node with an annotation, a request for a mode by the control socket, or a mode that cannot
 * be opened from now on. Steps do not wait for switches that are in progress, except "settle".
 */
type Step = { annotation: string | null } | { request: Mode } | { broken: Mode | null } | 'settle';

const ROWS: readonly {
  readonly name: string;
  readonly steps: readonly Step[];
  /** All modes that were programmed, in order. */
  readonly modes: readonly Mode[];
  readonly events: readonly string[];
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
];

for (const { name, steps, modes, events } of ROWS) {
  test(name, async () => {
    const stateDir = mkdtempSync(join(tmpdir(), 'mode-switch-'));
    const seen = { modes: [] as Mode[], events: [] as string[] };
    let broken: Mode | null = null;
    const made = createModeSwitch({
      stateDir,
      mode: 'nftables',
      async open(mode) {
        if (mode === broken) throw new Error(`${mode} is broken`);
        return fakeDataplane(mode);
      },
      async switchTo({ mode }) {
        await settle();
        seen.modes.push(mode);
      },
      onMode: () => {},
      onKept: () => {},
      node: () => nodeWith(null),
      events: { event: (_object, _type, reason) => seen.events.push(reason), flush: async () => {} },
      logger: silentLogger,
    });
    try {
      for (const step of [...steps, 'settle' as const]) {
        if (step === 'settle') for (let i = 0; i < 10; i++) await settle();
        else if ('annotation' in step) made.follow(nodeWith(step.annotation));
        else if ('request' in step) void made.switchMode(step.request);
        else broken = step.broken;
      }
      assert.deepEqual(seen, { modes, events });
      assert.equal(made.mode, modes.at(-1) ?? 'nftables');
    } finally {
      rmSync(stateDir, { recursive: true });
    }
  });
}

/** Lets pending callbacks run. */
function settle(): Promise<void> {
  return new Promise((resolve) => setImmediate(resolve));
}
