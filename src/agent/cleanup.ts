import { rmSync } from 'node:fs';
import { join } from 'node:path';
import type { Mode } from '../dataplane/dataplane.ts';
import type { IPFamily } from '../lib/address.ts';
import { hasCode, messageOf } from '../lib/errors.ts';
import type { Logger } from '../lib/log.ts';
import { uninstallCni } from '../network/cni/installation.ts';
import { removeNodeNetwork } from '../network/node-network.ts';
import { removePolicies } from '../policy/enforcement.ts';
import type { AgentConfiguration } from './configuration.ts';
import { availableModes, openDataplane } from './dataplanes.ts';
import { MODE_FILE } from './mode-switch.ts';

const FAMILIES: readonly IPFamily[] = ['ipv4', 'ipv6'];

/** What one step of a clean-up came to; `error`: it could not be done. */
export interface CleanupStep {
  readonly what: string;
  readonly error: string | null;
}

/**
 * Removes what agents wrote on this node and nothing else: the rules, virtual servers, programs, maps and devices of
 * every mode, the rules of network policies, the pod network's devices and routes, and the CNI plugin. Each step is done whatever became of those
 * before. `configuration` of the agent that ran here: what it does not do is left alone; null: everything.
 */
export async function removeAll(
  configuration: AgentConfiguration | null,
  logger: Logger,
): Promise<CleanupStep[]> {
  const steps: CleanupStep[] = [];
  const step = async (what: string, work: () => void | Promise<void>) => {
    try {
      await work();
      steps.push({ what, error: null });
    } catch (error) {
      steps.push({ what, error: messageOf(error) });
    }
  };
  const cgroupParent = configuration?.pods?.cgroupParent ?? null;
  for (const mode of availableModes()) {
    await step(`mode ${mode}`, () => removeMode(mode, cgroupParent, logger));
  }
  if (configuration === null || configuration.policy) await step('network policies', () => removePolicies());
  const cni = configuration?.network?.cni;
  if (cni) {
    await step('CNI plugin', () => uninstallCni({ ...cni, libDir: join(configuration.stateDir, 'cni') }));
  }
  if (configuration === null || configuration.network) await step('pod network', () => removeNodeNetwork());
  if (configuration) {
    await step('state', () => rmSync(join(configuration.stateDir, MODE_FILE), { force: true }));
  }
  return steps;
}

/** Kernels without a mode's mechanism have nothing of it to remove. */
const ABSENT = ['no-ipvs', 'no-dummy', 'missing-kernel-feature', 'ENOENT'];

async function removeMode(mode: Mode, cgroupParent: string | null, logger: Logger): Promise<void> {
  try {
    const dataplane = await openDataplane(mode, {
      families: FAMILIES,
      logger,
      onForeignChange() {},
      onOutcome() {},
      cgroupParent,
      ipvsScheduler: null,
      ipvsTimeouts: { tcp: 0, tcpFin: 0, udp: 0 },
    });
    try {
      await dataplane.remove();
    } finally {
      await dataplane.close();
    }
  } catch (error) {
    if (!hasCode(error, ...ABSENT)) throw error;
    logger.debug({ mode, error: messageOf(error) }, 'nothing of this mode can be here');
  }
}
