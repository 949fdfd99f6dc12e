import assert from 'node:assert/strict';
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { test } from 'node:test';
import { manualClock } from '../../lib/clock.ts';
import { watchConfigurations } from './other-configurations.ts';

const OURS = '10-fairlead.conflist';

/** The files in the folder, ten seconds apart, and what is said of each state. */
const CASES: { name: string; states: string[][]; said: (string | null)[] }[] = [
  { name: 'ours alone', states: [[OURS]], said: [] },
  {
    name: 'one after ours',
    states: [[OURS, '10-flannel.conflist', '87-podman.conflist', 'x.conf']],
    said: [],
  },
  { name: 'one before ours', states: [[OURS, '05-cilium.conflist']], said: ['05-cilium.conflist'] },
  {
    name: 'the first of several',
    states: [[OURS, '10-calico.conflist', '00-x.json', '05-a.conf']],
    said: ['00-x.json'],
  },
  { name: 'no configuration', states: [[OURS, '00-readme', '00-cilium.conflist.bak']], said: [] },
  { name: 'a hidden file', states: [[OURS, '.conf']], said: ['.conf'] },
  { name: 'capital letters sort first', states: [[OURS, '10-Z.conf']], said: ['10-Z.conf'] },
  {
    name: 'it comes and goes, and is said once each time',
    states: [[OURS], [OURS, '05-a.conf'], [OURS, '05-a.conf'], [OURS], [OURS], [OURS, '05-a.conf']],
    said: ['05-a.conf', null, '05-a.conf'],
  },
  {
    name: 'another one',
    states: [
      [OURS, '05-a.conf'],
      [OURS, '06-b.conf'],
    ],
    said: ['05-a.conf', '06-b.conf'],
  },
  { name: 'the folder is gone', states: [[OURS, '05-a.conf'], []], said: ['05-a.conf', null] },
];

for (const { name, states, said } of CASES) {
  test(`network configurations of other plugins: ${name}`, () => {
    const root = mkdtempSync(join(tmpdir(), 'cni-'));
    try {
      const clock = manualClock();
      const heard: (string | null)[] = [];
      const write = (names: readonly string[]) => {
        for (const file of [...new Set(states.flat())]) rmSync(join(root, file), { force: true });
        for (const file of names) writeFileSync(join(root, file), '{}');
      };
      const [first = [], ...rest] = states;
      write(first);
      const stop = watchConfigurations(root, { clock, onChange: (file) => void heard.push(file) });
      for (const state of rest) {
        if (state.length === 0) rmSync(root, { recursive: true });
        else write(state);
        clock.advance(10_000);
      }
      stop();
      clock.advance(20_000);
      assert.deepEqual(heard, said);
    } finally {
      rmSync(root, { recursive: true, force: true });
    }
  });
}
