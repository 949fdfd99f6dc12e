import { execFile } from 'node:child_process';
import { promisify } from 'node:util';
import type { Mode } from '../dataplane/dataplane.ts';
import { createIptables } from '../dataplane/iptables/iptables.ts';
import { NftConnection } from '../kernel/nftables/connection.ts';
import type { Cidr, IPFamily } from '../lib/address.ts';
import type { Clock } from '../lib/clock.ts';
import { messageOf } from '../lib/errors.ts';
import type { Logger } from '../lib/log.ts';
import {
  COMMANDS,
  type Command,
  chainsOf,
  existsCommand,
  type FoundChains,
  familyOf,
  findChains,
  isInUse,
  NFPROTO_IPV4,
  NFPROTO_IPV6,
  removeChains,
  VARIANTS,
  type Variant,
} from './foreign-chains.ts';
import {
  adoptAddresses,
  drainAdopted,
  drainNodePorts,
  type ForeignServers,
  findForeignServers,
  KUBE_PROXY_IPVS,
} from './foreign-servers.ts';

/** The state of kube-proxy in the kernel. */
export interface KubeProxyState {
  /** Variants of iptables with its chains. */
  readonly iptables: readonly ('nft' | 'legacy')[];
  /** Families (NFPROTO_IPV4, NFPROTO_IPV6) of its tables `kube-proxy`. */
  readonly nftables: readonly number[];
  /** Chains that only its IPVS mode has. */
  readonly ipvsChains: readonly FoundChains[];
  /** Its virtual servers, their device and its ipsets. */
  readonly ipvs: ForeignServers | null;
}

/** The mode of this agent; null: none. */
export interface Programmed {
  readonly mode: Mode | null;
  readonly families: readonly IPFamily[];
  /** Networks whose virtual servers stay (kube-proxy's ipvs.excludeCIDRs). */
  readonly excluded: readonly Cidr[];
}

/** Its table in nftables mode. */
export const KUBE_PROXY_TABLE = 'kube-proxy';
const CANARY = 'KUBE-PROXY-CANARY';
/** Chains of kube-proxy's IPVS mode, besides those that it shares with the iptables mode. */
const IPVS_CHAINS = {
  nat: /^KUBE-(NODE-PORT|LOAD-BALANCER)$/,
  filter: /^KUBE-(NODE-PORT|SOURCE-RANGES-FIREWALL|IPVS-FILTER|IPVS-OUT-FILTER)$/,
};

/**
 * Finds the state of kube-proxy, in all its modes and both variants of iptables. In iptables mode the
 * chains of the agent's own variant and families have kube-proxy's names, and are ignored.
 */
export async function findKubeProxyState({ mode, families, excluded }: Programmed): Promise<KubeProxyState> {
  const own = mode === 'iptables' ? await defaultVariant() : null;
  const iptables: Variant[] = [];
  for (const variant of VARIANTS) {
    if (!isInUse(variant)) continue;
    for (const command of COMMANDS) {
      if (iptables.includes(variant)) break;
      const isOwn = variant === own && families.includes(familyOf(command));
      for (const table of isOwn ? ['mangle'] : ['mangle', 'nat', 'filter']) {
        const chains = await chainsOf(variant, command, table);
        if (!chains.some((chain) => chain === CANARY || chain === 'KUBE-SERVICES')) continue;
        iptables.push(variant);
        break;
      }
    }
  }
  const ipvs = findForeignServers(KUBE_PROXY_IPVS, excluded);
  // They match its ipsets: without these there are none, and large tables need not be read again.
  const ipvsChains = ipvs === null ? [] : await findChains(IPVS_CHAINS);
  return { iptables, nftables: ownTables(), ipvsChains, ipvs };
}

/**
 * Removes kube-proxy's state, after this agent has programmed its own rules: open connections keep their translation,
 * which is in connection tracking. Resolves to a list of the removed items, for the log.
 */
async function removeKubeProxyState(
  state: KubeProxyState,
  { mode, families }: Programmed,
  clock: Clock,
  logger: Logger,
): Promise<string[]> {
  const own = mode === 'iptables' ? await defaultVariant() : null;
  const removed: string[] = [];
  // Before the chains that they jump to, and before the ipsets that they match.
  await removeChains(state.ipvsChains);
  for (const variant of state.iptables) {
    const left = COMMANDS.filter((command) => existsCommand(`${command}-${variant}`))
      .map(familyOf)
      .filter((family) => variant !== own || !families.includes(family));
    if (left.length > 0) {
      const dataplane = createIptables({ families: left, variant, logger });
      try {
        await dataplane.remove({ succeeded: true });
      } finally {
        await dataplane.close();
      }
    }
    for (const command of COMMANDS) await removeCanary(variant, command);
    removed.push(`iptables (${variant})`);
  }
  if (state.nftables.length > 0) {
    const connection = new NftConnection();
    try {
      for (const family of state.nftables) {
        const batch = connection.batch(family);
        batch.deleteTable(KUBE_PROXY_TABLE);
        connection.commitSync(batch);
      }
    } finally {
      connection.close();
    }
    removed.push('nftables');
  }
  if (state.ipvs) {
    // Our IPVS mode has taken the servers over before it programmed its own.
    if (state.ipvs.device !== null && mode !== 'ipvs') {
      await adoptAddresses(state.ipvs);
      await drainAdopted(logger);
    }
    await drainNodePorts(state.ipvs, clock, logger);
    removed.push('ipvs');
  }
  return removed;
}

async function removeCanary(variant: Variant, command: Command): Promise<void> {
  if (!(await chainsOf(variant, command, 'mangle')).includes(CANARY)) return;
  await promisify(execFile)(`${command}-${variant}`, ['--wait', '5', '-t', 'mangle', '-X', CANARY]);
}

async function defaultVariant(): Promise<'nft' | 'legacy'> {
  const { stdout } = await promisify(execFile)('iptables', ['--version']);
  return stdout.includes('nf_tables') ? 'nft' : 'legacy';
}

function ownTables(): number[] {
  const connection = new NftConnection();
  try {
    return [NFPROTO_IPV4, NFPROTO_IPV6].filter((family) =>
      connection.tables(family).some(({ name }) => name === KUBE_PROXY_TABLE),
    );
  } finally {
    connection.close();
  }
}

/** Takes the virtual servers of kube-proxy over, before our IPVS mode programs its own: they become its servers. */
export async function adoptServers(excluded: readonly Cidr[], logger: Logger): Promise<void> {
  const found = findForeignServers(KUBE_PROXY_IPVS, excluded);
  if (found === null || found.device === null) return;
  await adoptAddresses(found);
  logger.info({ addresses: found.addresses.length }, "took over kube-proxy's virtual servers");
}

/** Returns true if any state was found. */
export const isAnyLeft = ({ iptables, nftables, ipvs }: KubeProxyState): boolean =>
  iptables.length > 0 || nftables.length > 0 || ipvs !== null;

/** Finds and removes kube-proxy's state; failures are only logged, since they do not affect traffic. */
export async function takeOver(programmed: Programmed, clock: Clock, logger: Logger): Promise<string[]> {
  try {
    const state = await findKubeProxyState(programmed);
    if (!isAnyLeft(state)) return [];
    const removed = await removeKubeProxyState(state, programmed, clock, logger);
    if (removed.length > 0) logger.info({ removed }, 'removed the rules of kube-proxy');
    return removed;
  } catch (error) {
    logger.error({ err: error }, `failed to remove the rules of kube-proxy: ${messageOf(error)}`);
    return [];
  }
}
