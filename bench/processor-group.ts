import { existsSync, mkdirSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import { removeGroup } from './control-group.ts';

const V1 = '/sys/fs/cgroup/cpuacct';
const root = existsSync(V1) ? V1 : '/sys/fs/cgroup';

/** A control group that counts the processor time of a command and of everything that it starts. */
export interface ProcessorGroup {
  /** Returns the command with its arguments, as one that runs in the group. */
  inside(command: string, words: readonly string[]): [string, string[]];
  /** Returns the processor time used so far, with that of the groups named; seconds. */
  seconds(others?: readonly string[]): number;
  close(): Promise<void>;
}

export function openProcessorGroup(name: string): ProcessorGroup {
  const folder = join(root, name);
  mkdirSync(folder);
  return {
    inside: (command, words) => [
      'sh',
      ['-c', `echo $$ > ${join(folder, 'cgroup.procs')} && exec "$0" "$@"`, command, ...words],
    ],
    seconds: (others = []) => [name, ...others].reduce((sum, one) => sum + secondsOf(join(root, one)), 0),
    close: () => removeGroup(folder),
  };
}

function secondsOf(folder: string): number {
  if (!existsSync(folder)) return 0;
  if (root === V1) return Number(readFileSync(join(folder, 'cpuacct.usage'), 'utf8')) / 1e9;
  return Number(/^usage_usec (\d+)/m.exec(readFileSync(join(folder, 'cpu.stat'), 'utf8'))?.[1]) / 1e6;
}
