import { rmdirSync, rmSync } from 'node:fs';
import { dirname, join } from 'node:path';
import type { Mode } from '../dataplane/dataplane.ts';
import { NftRefusal } from '../kernel/nftables/connection.ts';
import { readOptionalFile } from '../kernel/optional-file.ts';
import { deleteAddress } from '../kernel/rtnetlink/addresses.ts';
import { getLink, openRouteSocket } from '../kernel/rtnetlink/links.ts';
import { FAMILY_NAMES, type IPFamily } from '../lib/address.ts';
import { type Clock, systemClock } from '../lib/clock.ts';
import { FairleadError, hasCode, messageOf } from '../lib/errors.ts';
import type { Logger } from '../lib/log.ts';
import { CNI_SOCKET, removeCniSocket } from '../network/cni/cni-server.ts';
import { uninstallCni } from '../network/cni/installation.ts';
import { removeDnsFallback } from '../network/dns-fallback.ts';
import { removeDnsLimit } from '../network/dns-limit.ts';
import { removeNodeNetwork } from '../network/node-network.ts';
import { removePods } from '../network/pod-network.ts';
import { removePolicies } from '../policy/enforcement.ts';
import type { AgentConfiguration } from './agent-configuration.ts';
import { availableModes, openDataplane } from './dataplanes.ts';
import { DNS_ADDRESSES_FILE } from './dns-part.ts';
import { removeEgress } from './egress-part.ts';
import { familiesWithoutKubeProxy, untilKubeProxyForwards } from './kube-proxy-readiness.ts';
import { MODE_FILE } from './mode-switch.ts';
import { findRunningKubeProxy } from './running-kube-proxy.ts';

const DEFAULT_STATE_DIR = '/var/lib/fairlead/agent';
const CNI_FOLDERS = { binDir: '/opt/cni/bin', confDir: '/etc/cni/net.d' };
const FAMILIES: readonly IPFamily[] = ['ipv4', 'ipv6'];

/** A kube-proxy that has just started reads all objects of the cluster first. */
const KUBE_PROXY_MS = 60_000;

export interface CleanupOptions {
  readonly clock?: Clock;
  /** Called before kube-proxy is waited for; `evidence`: by what it was found. */
  readonly onWait?: (evidence: string) => void;
  /** Where the node's root file system is mounted, if this is a container. */
  readonly nodeRoot?: string;
}

/** The result of one step of a clean-up; `error`: the reason of its failure; `hint`: what to do. */
export interface CleanupStep {
  readonly what: string;
  readonly error: string | null;
  readonly hint: string | null;
}

/**
 * Removes everything that agents wrote on this node and nothing else: the rules, virtual servers, programs, maps and
 * devices of every mode, the rules of network policies, the pod network's devices and routes, the CNI plugin and DNS
 * addresses. A failing step does not stop the others. `configuration` of the agent that ran here: disabled parts, the
 * devices of pods and the state files are not removed; null: removes everything, in the default folders. Chains with the
 * names of a running kube-proxy are kept; nothing is removed before it forwards the Services, so that no request is lost.
 */
export async function removeAll(
  configuration: AgentConfiguration | null,
  logger: Logger,
  { clock = systemClock, onWait, nodeRoot = '/' }: CleanupOptions = {},
): Promise<CleanupStep[]> {
  const steps: CleanupStep[] = [];
  const step = async (what: string, work: () => void | Promise<void>) => {
    try {
      await work();
      steps.push({ what, error: null, hint: null });
    } catch (error) {
      steps.push({ what, error: messageOf(error), hint: hintOf(error) });
    }
  };
  const cgroupParent = configuration?.pods?.cgroupParent ?? null;
  const evidence = await findRunningKubeProxy();
  if (evidence !== null) {
    const refusal = await awaitKubeProxy(evidence, clock, onWait);
    if (refusal !== null) return [refusal];
  }
  const beside = evidence === null ? '' : `, except the chains of the running kube-proxy (${evidence})`;
  for (const mode of availableModes()) {
    await step(`mode ${mode}${mode === 'iptables' ? beside : ''}`, () =>
      removeMode(mode, cgroupParent, evidence !== null, logger),
    );
  }
  const onNode = (path: string) => join(nodeRoot, path);
  const stateDir = onNode(configuration?.stateDir ?? DEFAULT_STATE_DIR);
  if (configuration === null || configuration.policy) await step('network policies', () => removePolicies());
  const cni = configuration === null ? CNI_FOLDERS : configuration.network?.cni;
  if (cni)
    await step('CNI plugin', () => {
      uninstallCni({ binDir: onNode(cni.binDir), confDir: onNode(cni.confDir) });
      removeCniSocket(join(stateDir, CNI_SOCKET));
    });
  if (configuration === null || configuration.dns) {
    await step('DNS addresses', () => removeDnsAddresses(join(stateDir, DNS_ADDRESSES_FILE)));
    await step('DNS fallback', () => removeDnsFallback());
    await step('DNS limit', () => removeDnsLimit());
  }
  if (configuration === null || configuration.network)
    await step('pod network', async () => {
      removeEgress();
      removeNodeNetwork();
      // An agent that starts again with this configuration reconnects the pods.
      if (configuration === null) await removePods(stateDir);
    });
  // A failed step may need the rest of the state when it is repeated.
  const isComplete = configuration === null && steps.every(({ error }) => error === null);
  await step('state', () => (isComplete ? removeFolder(stateDir) : removeModeFile(stateDir)));
  return steps;
}

/** Waits until a running kube-proxy forwards the Services. Returns the failed step if it does not. */
async function awaitKubeProxy(
  evidence: string,
  clock: Clock,
  onWait: CleanupOptions['onWait'],
): Promise<CleanupStep | null> {
  if ((await familiesWithoutKubeProxy()).length === 0) return null;
  onWait?.(evidence);
  const missing = await untilKubeProxyForwards(clock, KUBE_PROXY_MS);
  if (missing.length === 0) return null;
  const families = missing.map((family) => FAMILY_NAMES[family]).join(' and ');
  return {
    what: 'nothing was removed',
    error: `kube-proxy is running (${evidence}), but has not programmed the Services in ${families}`,
    hint: 'look for errors in the log of kube-proxy; without a running kube-proxy, cleanup removes the rules at once',
  };
}

const removeModeFile = (stateDir: string) => rmSync(join(stateDir, MODE_FILE), { force: true });

/** Removes the state of the agent, and the folder above it if nothing else is in it. */
function removeFolder(stateDir: string): void {
  rmSync(stateDir, { recursive: true, force: true });
  try {
    rmdirSync(dirname(stateDir));
  } catch (error) {
    // States of local clusters are in the same folder; EBUSY: it is a volume of this container.
    if (!hasCode(error, 'ENOENT', 'ENOTEMPTY', 'EEXIST', 'EBUSY')) throw error;
  }
}

function hintOf(error: unknown): string | null {
  // Tables of a running agent cannot be changed by others, root or not.
  if (error instanceof NftRefusal && hasCode(error, 'EPERM'))
    return 'stop the agent of this node, wait until its process has ended, and run cleanup again';
  return error instanceof FairleadError ? (error.hint ?? null) : null;
}

/** Kernels without a mode's mechanism have no state of it. */
const ABSENT = ['no-ipvs', 'no-dummy', 'missing-kernel-feature', 'ENOENT'];

/** Removes the addresses that the DNS part added to the loopback device. */
function removeDnsAddresses(file: string): void {
  const addresses = readOptionalFile(file)?.split('\n').filter(Boolean) ?? [];
  const socket = openRouteSocket();
  try {
    const loopback = getLink(socket, 'lo');
    for (const address of addresses) {
      deleteAddress(socket, { device: loopback.index, address, prefix: address.includes(':') ? 128 : 32 });
    }
  } finally {
    socket.close();
  }
  rmSync(file, { force: true });
}

async function removeMode(
  mode: Mode,
  cgroupParent: string | null,
  isKubeProxyRunning: boolean,
  logger: Logger,
): Promise<void> {
  try {
    const dataplane = await openDataplane(mode, {
      families: FAMILIES,
      isKubeProxyRunning,
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
    logger.debug({ mode, error: messageOf(error) }, 'this mode cannot have left anything here');
  }
}
