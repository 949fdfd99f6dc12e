import type { Mode } from '../../dataplane/dataplane.ts';
import { FairleadError } from '../../lib/errors.ts';
import { hasIpvs } from './ipvs-support.ts';
import { wayOutObstacle } from './way-out.ts';

const MODE_NAMES: Readonly<Partial<Record<Mode, string>>> = { ebpf: 'eBPF mode', ipvs: 'IPVS mode' };

/** Returns why an ordinary user cannot run a proxy mode that root could, and the fix; null: nothing is known to prevent it. */
export function userModeObstacle(mode: Mode): { readonly reason: string; readonly fix: string } | null {
  if (mode === 'ebpf')
    return { reason: 'the kernel loads BPF programs for root only', fix: 'choose another mode' };
  if (mode === 'ipvs' && !hasIpvs())
    return {
      reason: 'its kernel module is not loaded',
      fix: 'sudo modprobe ip_vs; or choose another mode',
    };
  return null;
}

/** Throws FairleadError for a proxy mode that an ordinary user cannot run. */
export function refuseMode(mode: Mode): void {
  const obstacle = userModeObstacle(mode);
  if (obstacle !== null) throw refusal(MODE_NAMES[mode] ?? mode, obstacle.reason, obstacle.fix);
}

/** Throws FairleadError for the options of `up` that an ordinary user's cluster cannot have. */
export function refuseMachineNetwork(options: {
  readonly hostAccess: string;
  readonly egress: boolean;
}): void {
  if (options.hostAccess !== 'none')
    throw refusal(
      '--host-access',
      "it adds a device to this machine's network",
      'to reach a Service from this machine: --publish, or fairlead open',
    );
  const obstacle = options.egress ? wayOutObstacle() : null;
  if (obstacle !== null) throw refusal('--egress', obstacle.reason, obstacle.fix);
}

function refusal(what: string, reason: string, instead: string): FairleadError {
  return new FairleadError(`${what} is not possible without root: ${reason}`, {
    op: 'fairlead up',
    code: 'not-root',
    hint: `${instead}; or start the cluster as root: sudo fairlead up`,
  });
}
