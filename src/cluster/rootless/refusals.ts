import type { Mode } from '../../dataplane/dataplane.ts';
import { FairleadError } from '../../lib/errors.ts';
import { hasIpvs } from './ipvs-support.ts';
import { wayOutObstacle } from './way-out.ts';

/** Throws FairleadError for a proxy mode that an ordinary user cannot run. */
export function refuseMode(mode: Mode): void {
  if (mode === 'ebpf')
    throw refusal('eBPF mode', 'the kernel loads BPF programs for root only', 'choose another mode');
  if (mode === 'ipvs' && !hasIpvs())
    throw refusal(
      'IPVS mode',
      'its kernel module is not loaded',
      'sudo modprobe ip_vs; or choose another mode',
    );
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
