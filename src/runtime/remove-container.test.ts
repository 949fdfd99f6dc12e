import assert from 'node:assert/strict';
import { type ChildProcess, spawn } from 'node:child_process';
import { once } from 'node:events';
import { existsSync, mkdirSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { describe, test } from 'node:test';
import { type RuntimePaths, removeContainer } from './oci-runtime.ts';

interface Row {
  readonly what: string;
  /** The state of its control group: a folder here, "busy" with another one in it. */
  readonly group: 'none' | 'gone' | 'empty' | 'busy';
  readonly hasExitCode?: boolean;
  readonly hasMonitor?: boolean;
  /** It has no entry, as after the restoration of a snapshot. */
  readonly isUnknown?: boolean;
  readonly callsRuntime: boolean;
}

const ROWS: readonly Row[] = [
  { what: 'has ended', group: 'empty', hasExitCode: true, hasMonitor: true, callsRuntime: false },
  { what: 'ended with its monitor', group: 'empty', callsRuntime: false },
  { what: 'ended before a reboot', group: 'gone', callsRuntime: false },
  { what: 'is of a snapshot', group: 'gone', isUnknown: true, callsRuntime: false },
  { what: 'is of a snapshot, without control groups', group: 'none', isUnknown: true, callsRuntime: false },
  { what: 'has ended, without control groups', group: 'none', hasExitCode: true, callsRuntime: false },
  { what: 'runs', group: 'busy', hasMonitor: true, callsRuntime: true },
  { what: 'runs without its monitor', group: 'busy', callsRuntime: true },
  { what: 'has ended, but not all its processes', group: 'busy', hasExitCode: true, callsRuntime: true },
  { what: 'is being created', group: 'gone', hasMonitor: true, callsRuntime: true },
  { what: 'may run, without control groups', group: 'none', callsRuntime: true },
];

describe('the removal of a container calls the runtime only if it may still run:', () => {
  for (const { what, group, hasExitCode, hasMonitor, isUnknown, callsRuntime } of ROWS) {
    test(`a container that ${what}`, async () => {
      const folder = mkdtempSync(join(tmpdir(), 'flt-remove-'));
      const [bundle, crun, exits, control] = ['run-0', 'crun', 'exits', 'group'].map((name) =>
        join(folder, name),
      ) as [string, string, string, string];
      let monitor: ChildProcess | null = null;
      try {
        for (const path of [bundle, crun, exits]) mkdirSync(path);
        if (!isUnknown) mkdirSync(join(crun, 'a'));
        if (group === 'empty') mkdirSync(control);
        if (group === 'busy') mkdirSync(join(control, 'below'), { recursive: true });
        if (hasExitCode) writeFileSync(join(exits, 'a'), '0');
        if (hasMonitor) {
          monitor = spawn('sh', ['-c', 'echo; read line', 'conmon', bundle], {
            stdio: ['pipe', 'pipe', 'ignore'],
          });
          if (monitor.stdout) await once(monitor.stdout, 'readable');
          writeFileSync(join(bundle, 'conmon.pid'), String(monitor.pid));
        }
        const program = join(folder, 'runtime');
        writeFileSync(program, `#!/bin/sh\necho "$@" > ${folder}/called\n`, { mode: 0o755 });
        const paths = { crun, exits, program, cgroupManager: 'cgroupfs' } as RuntimePaths;
        await removeContainer(paths, { id: 'a', bundle }, group === 'none' ? null : control);
        assert.equal(existsSync(join(folder, 'called')), callsRuntime);
        if (!callsRuntime) assert.ok(!existsSync(join(crun, 'a')));
      } finally {
        monitor?.kill('SIGKILL');
        rmSync(folder, { recursive: true, force: true });
      }
    });
  }
});
