import type { Mode } from '../dataplane/dataplane.ts';
import { defaultControlGroup } from '../dataplane/ebpf/programs.ts';
import { checkRequirements } from '../dataplane/ebpf/requirements.ts';
import { IpvsConnection } from '../kernel/ipvs/connection.ts';
import { findProgram } from '../kernel/program-path.ts';
import { FairleadError, messageOf } from '../lib/errors.ts';

/** Why a node cannot run a mode, and what would help. */
export interface Obstacle {
  readonly reason: string;
  readonly fix: string | null;
}

/** The check of each mode that not every node can run; it throws, and leaves nothing behind. */
const CHECKS: readonly (readonly [mode: Mode, check: () => void])[] = [
  [
    'ebpf',
    () => {
      checkRequirements();
      defaultControlGroup();
    },
  ],
  ['ipvs', () => new IpvsConnection().close()],
  [
    'iptables',
    () => {
      if (findProgram('iptables-restore') !== null) return;
      throw new FairleadError('iptables-restore is not installed', {
        op: 'open the iptables mode',
        code: 'ENOENT',
        hint: 'install the package iptables',
      });
    },
  ],
];

/** Returns why this node cannot run a mode; null: it can, as far as can be seen without opening it. */
export function modeObstacle(mode: Mode): Obstacle | null {
  try {
    CHECKS.find(([checked]) => checked === mode)?.[1]();
    return null;
  } catch (error) {
    const fix = error instanceof FairleadError ? (error.hint ?? null) : null;
    return { reason: messageOf(error), fix };
  }
}

/** Returns the modes that this node cannot run, without opening them; the agent itself needs nf_tables. */
export function modeObstacles(): Map<Mode, Obstacle> {
  const found = CHECKS.map(([mode]) => [mode, modeObstacle(mode)] as const);
  return new Map(found.flatMap(([mode, obstacle]) => (obstacle === null ? [] : [[mode, obstacle] as const])));
}
