import { join } from 'node:path';
import type { Dataplane, Mode } from '../dataplane/dataplane.ts';
import { findInterface } from '../dataplane/ipvs/service-interface.ts';
import type { ProxyPolicies } from '../dataplane/userspace/pool-listener.ts';
import type { Outcome } from '../failover/outcome.ts';
import type { IpvsTimeouts } from '../kernel/ipvs/codec.ts';
import type { IPFamily } from '../lib/address.ts';
import { systemClock } from '../lib/clock.ts';
import { FairleadError } from '../lib/errors.ts';
import type { Logger } from '../lib/log.ts';
import { readControlGroups } from '../runtime/control-groups.ts';

export interface DataplaneSettings {
  readonly families: readonly IPFamily[];
  readonly logger: Logger;
  /** Whether kube-proxy runs on this node: removing a mode then keeps state with kube-proxy's names. */
  readonly isKubeProxyRunning?: boolean;
  /** Called when another program has changed the mode's state, which must be verified and repaired. */
  readonly onForeignChange: () => void;
  /** Called by modes that observe the outcome of connections to endpoints themselves. */
  readonly onOutcome: (outcome: Outcome) => void;
  /** Network policies, for a mode that opens connections itself. */
  readonly policies?: ProxyPolicies;
  /** The control group of this node's pods ("/fairlead-default/node-1"); null: the whole machine is the node. */
  readonly cgroupParent: string | null;
  /** The default scheduler, which the kernel must support. Null: the mode is opened only to be removed. */
  readonly ipvsScheduler: string | null;
  /** Seconds; 0: the kernel's value. */
  readonly ipvsTimeouts: IpvsTimeouts;
}

/** The factories of the modes, each loaded on first use. */
const FACTORIES: Readonly<Partial<Record<Mode, (settings: DataplaneSettings) => Promise<Dataplane>>>> = {
  nftables: async (settings) => {
    const { createNftables } = await import('../dataplane/nftables/nftables.ts');
    return createNftables(settings);
  },
  ebpf: async ({ cgroupParent, ...settings }) => {
    const [{ createEbpf }, { pinPathOf }, { createNftables }] = await Promise.all([
      import('../dataplane/ebpf/ebpf.ts'),
      import('../dataplane/ebpf/pins.ts'),
      import('../dataplane/nftables/nftables.ts'),
    ]);
    const options = { ...settings, fallback: createNftables };
    if (cgroupParent === null) return createEbpf(options);
    const groups = readControlGroups();
    const pinPath = pinPathOf(cgroupParent);
    if (groups !== null) return createEbpf({ ...options, pinPath, cgroup: join(groups.root, cgroupParent) });
    // The group of the whole machine would have other programs than this node's pods.
    const obstacle = new FairleadError('the mode ebpf needs a cgroup v2 hierarchy that can be written', {
      op: 'start eBPF mode',
      code: 'missing-kernel-feature',
      hint: 'use the nftables mode here',
    });
    return createEbpf({ ...options, pinPath, obstacle });
  },
  iptables: async (settings) => {
    const { createIptables } = await import('../dataplane/iptables/iptables.ts');
    return createIptables(settings);
  },
  userspace: async (settings) => {
    const { createUserspace } = await import('../dataplane/userspace/userspace.ts');
    return createUserspace(settings);
  },
  ipvs: async ({ ipvsTimeouts, ipvsScheduler, ...settings }) => {
    const { createIpvs } = await import('../dataplane/ipvs/ipvs.ts');
    const dataplane = createIpvs({ ...settings, timeouts: ipvsTimeouts });
    try {
      if (ipvsScheduler !== null) await dataplane.requireScheduler(ipvsScheduler);
    } catch (error) {
      await dataplane.close();
      throw error;
    }
    return dataplane;
  },
};

/** Opens the dataplane of a mode. Throws FairleadError if this build does not include it. */
export async function openDataplane(mode: Mode, settings: DataplaneSettings): Promise<Dataplane> {
  const factory = FACTORIES[mode];
  if (factory) {
    if (mode !== 'ipvs' && findInterface() !== null) await endIpvs(settings);
    return factory(settings);
  }
  throw new FairleadError(`mode ${mode} is not available`, {
    op: 'open dataplane',
    code: 'no-such-mode',
    hint: `use one of ${Object.keys(FACTORIES).join(', ')}`,
  });
}

/** The agent may have been restarted after a switch from the IPVS mode, while connections through ip_vs were still open. */
async function endIpvs({ families, logger }: DataplaneSettings): Promise<void> {
  const { resumeDrain } = await import('../dataplane/ipvs/drain.ts');
  await resumeDrain({ families, logger, clock: systemClock });
}

/** Returns the modes that `openDataplane` supports. */
export function availableModes(): Mode[] {
  return Object.keys(FACTORIES) as Mode[];
}
