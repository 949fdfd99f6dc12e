import { execFile } from 'node:child_process';
import { existsSync, readFileSync } from 'node:fs';
import { promisify } from 'node:util';
import type { Mode } from '../dataplane/dataplane.ts';
import { createIptables } from '../dataplane/iptables/iptables.ts';
import { NftConnection } from '../kernel/nftables/connection.ts';
import { findLink, openRouteSocket } from '../kernel/rtnetlink/links.ts';
import type { IPFamily } from '../lib/address.ts';
import { hasCode, messageOf } from '../lib/errors.ts';
import type { Logger } from '../lib/log.ts';

/** The state of kube-proxy in the kernel. */
export interface KubeProxyState {
  /** Variants of iptables with its chains. */
  readonly iptables: readonly ('nft' | 'legacy')[];
  /** Families (NFPROTO_IPV4, NFPROTO_IPV6) of its tables `kube-proxy`. */
  readonly nftables: readonly number[];
  /** Whether the device of its virtual servers exists. */
  readonly ipvs: boolean;
}

/** The mode of this agent; null: none. */
export interface Programmed {
  readonly mode: Mode | null;
  readonly families: readonly IPFamily[];
}

/** linux/netfilter.h */
const NFPROTO_IPV4 = 2;
const NFPROTO_IPV6 = 10;
const NFT_TABLE = 'kube-proxy';
const IPVS_DEVICE = 'kube-ipvs0';
const CANARY = 'KUBE-PROXY-CANARY';
const COMMANDS = ['iptables', 'ip6tables'] as const;
const VARIANTS = ['nft', 'legacy'] as const;
type Command = (typeof COMMANDS)[number];
type Variant = (typeof VARIANTS)[number];

/**
 * Finds the state of kube-proxy, in all its modes and both variants of iptables. In iptables mode the
 * chains of the agent's own variant and families have kube-proxy's names, and are ignored.
 */
export async function findKubeProxyState({ mode, families }: Programmed): Promise<KubeProxyState> {
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
  return { iptables, nftables: ownTables(), ipvs: hasIpvsDevice() };
}

/**
 * Removes kube-proxy's state, after this agent has programmed its own rules: open connections keep their translation,
 * which is in connection tracking. Resolves to a list of the removed items, for the log.
 */
export async function removeKubeProxyState(
  state: KubeProxyState,
  { mode, families }: Programmed,
  logger: Logger,
): Promise<string[]> {
  const own = mode === 'iptables' ? await defaultVariant() : null;
  const removed: string[] = [];
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
        batch.deleteTable(NFT_TABLE);
        connection.commitSync(batch);
      }
    } finally {
      connection.close();
    }
    removed.push('nftables');
  }
  if (state.ipvs) {
    logger.warn(
      {},
      `kube-proxy's IPVS virtual servers (device ${IPVS_DEVICE}) stay: remove them by kube-proxy --cleanup`,
    );
  }
  return removed;
}

async function removeCanary(variant: Variant, command: Command): Promise<void> {
  if (!(await chainsOf(variant, command, 'mangle')).includes(CANARY)) return;
  await promisify(execFile)(`${command}-${variant}`, ['--wait', '5', '-t', 'mangle', '-X', CANARY]);
}

/** Returns the names of a table's chains. The nft variant is read without its tools, which would create tables. */
async function chainsOf(variant: Variant, command: Command, table: string): Promise<string[]> {
  if (variant === 'nft') {
    const connection = new NftConnection();
    try {
      return connection.chains(command === 'iptables' ? NFPROTO_IPV4 : NFPROTO_IPV6, table);
    } finally {
      connection.close();
    }
  }
  if (!existsCommand(`${command}-legacy`)) return [];
  const { stdout } = await promisify(execFile)(`${command}-legacy-save`, ['-t', table], {
    maxBuffer: 1 << 30,
  });
  return [...stdout.matchAll(/^:(\S+) -/gm)].map(([, chain = '']) => chain);
}

/** Reading a legacy table would create it: only existing ones are read. */
function isInUse(variant: 'nft' | 'legacy'): boolean {
  if (variant === 'nft') return true;
  return ['ip_tables_names', 'ip6_tables_names'].some((file) => {
    try {
      return readFileSync(`/proc/net/${file}`, 'utf8').trim() !== '';
    } catch (error) {
      if (hasCode(error, 'ENOENT')) return false;
      throw error;
    }
  });
}

const familyOf = (command: Command): IPFamily => (command === 'iptables' ? 'ipv4' : 'ipv6');

const existsCommand = (command: string): boolean =>
  (process.env['PATH'] ?? '').split(':').some((folder) => existsSync(`${folder}/${command}`));

async function defaultVariant(): Promise<'nft' | 'legacy'> {
  const { stdout } = await promisify(execFile)('iptables', ['--version']);
  return stdout.includes('nf_tables') ? 'nft' : 'legacy';
}

function ownTables(): number[] {
  const connection = new NftConnection();
  try {
    return [NFPROTO_IPV4, NFPROTO_IPV6].filter((family) =>
      connection.tables(family).some(({ name }) => name === NFT_TABLE),
    );
  } finally {
    connection.close();
  }
}

function hasIpvsDevice(): boolean {
  const socket = openRouteSocket();
  try {
    return findLink(socket, IPVS_DEVICE) !== null;
  } finally {
    socket.close();
  }
}

/** Returns true if any state was found. */
export const isAnyLeft = ({ iptables, nftables, ipvs }: KubeProxyState): boolean =>
  iptables.length > 0 || nftables.length > 0 || ipvs;

/** Finds and removes kube-proxy's state; failures are only logged, since they do not affect traffic. */
export async function takeOver(programmed: Programmed, logger: Logger): Promise<string[]> {
  try {
    const state = await findKubeProxyState(programmed);
    if (!isAnyLeft(state)) return [];
    const removed = await removeKubeProxyState(state, programmed, logger);
    if (removed.length > 0) logger.info({ removed }, 'removed the rules of kube-proxy');
    return removed;
  } catch (error) {
    logger.error({ err: error }, `failed to remove the rules of kube-proxy: ${messageOf(error)}`);
    return [];
  }
}
