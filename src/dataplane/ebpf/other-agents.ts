import { closeSync, openSync } from 'node:fs';
import { openProgram, programInfo, programsAt } from '../../kernel/bpf/program.ts';
import { FairleadError, hasCode } from '../../lib/errors.ts';
import { pinnedPrograms } from './pins.ts';

/** The hook that each agent in eBPF mode uses, and the name of the program there (bpf/socket-lb.bpf.c). */
const HOOK = 'connect4';
const PROGRAM = 'fl_connect4';

/**
 * Throws FairleadError if the programs of another agent are attached to the control group: of the kernel's two programs at a
 * hook each would choose endpoints for the processes of both nodes. This happens where nodes share a machine, its control
 * groups and their root: network namespaces, or containers without a control group namespace of their own (kind on control
 * groups v1). In such a namespace /sys/fs/cgroup is the container's own group. `pinPath`: the pins of this agent, or of its
 * predecessor.
 */
export function refuseOtherAgents(cgroup: string, pinPath: string): void {
  const own = pinnedPrograms(pinPath, HOOK);
  const others = programsOf(cgroup).filter((id) => !own.includes(id) && nameOf(id) === PROGRAM);
  if (others.length === 0) return;
  throw new FairleadError(
    `another agent's programs are attached to the control group ${cgroup} (BPF program ${others.join(', ')}): each of the two would choose endpoints for the processes of both nodes`,
    {
      op: 'start eBPF mode',
      code: 'group-in-use',
      object: cgroup,
      hint: 'use another mode on nodes that share control groups, or give each node a control group namespace (docker run --cgroupns=private); "fairlead cleanup" on the other node removes its programs',
    },
  );
}

function programsOf(cgroup: string): number[] {
  let group: number;
  try {
    group = openSync(cgroup, 'r');
  } catch (error) {
    // It is created later.
    if (hasCode(error, 'ENOENT')) return [];
    throw error;
  }
  try {
    return programsAt(group, HOOK, false);
  } finally {
    closeSync(group);
  }
}

function nameOf(program: number): string | null {
  const fd = openProgram(program);
  if (fd === null) return null;
  try {
    return programInfo(fd).name;
  } finally {
    closeSync(fd);
  }
}
