import { FALLBACK_TABLE } from '../dataplane/ebpf/plan.ts';
import { CHAIN, TREE_PREFIXES, TREES, treeChain } from '../dataplane/iptables/chain-names.ts';
import { TABLE as IPVS_TABLE } from '../dataplane/ipvs/layout.ts';
import { TABLE as NFTABLES_TABLE } from '../dataplane/nftables/render.ts';
import { TABLE as USERSPACE_TABLE } from '../dataplane/userspace/layout.ts';
import { NftConnection } from '../kernel/nftables/connection.ts';
import type { IPFamily } from '../lib/address.ts';
import { type Clock, pause } from '../lib/clock.ts';
import {
  COMMANDS,
  type Command,
  chainsOf,
  familyOf,
  isInUse,
  protocolOf,
  rulesOf,
  VARIANTS,
} from './foreign-chains.ts';
import { KUBE_PROXY_TABLE } from './kube-proxy-state.ts';

const POLL_MS = 250;
/** The tables in which modes translate addresses of Services. */
const SERVICE_TABLES: readonly string[] = [NFTABLES_TABLE, FALLBACK_TABLE, IPVS_TABLE, USERSPACE_TABLE];
/** The chain by which our iptables mode finds a Service. */
const OUR_CHAIN = treeChain(TREES.address.prefix, '');

/**
 * Waits until kube-proxy forwards the Services of every family in which only Fairlead does, at most `limitMs` milliseconds.
 * Returns the families in which it still does not.
 */
export async function untilKubeProxyForwards(clock: Clock, limitMs: number): Promise<IPFamily[]> {
  const deadline = clock.now() + limitMs;
  for (;;) {
    const missing = await familiesWithoutKubeProxy();
    if (missing.length === 0 || clock.now() >= deadline) return missing;
    await pause(clock, POLL_MS);
  }
}

/** Returns the families in which the kernel forwards Services by rules of Fairlead and not by those of kube-proxy. */
export async function familiesWithoutKubeProxy(): Promise<IPFamily[]> {
  const missing: IPFamily[] = [];
  for (const command of COMMANDS)
    if ((await hasOurs(command)) && !(await hasKubeProxys(command))) missing.push(familyOf(command));
  return missing;
}

async function hasOurs(command: Command): Promise<boolean> {
  if (tablesOf(command).some((name) => SERVICE_TABLES.includes(name))) return true;
  for (const variant of VARIANTS)
    if (isInUse(variant) && (await chainsOf(variant, command, 'nat')).includes(OUR_CHAIN)) return true;
  return false;
}

/**
 * kube-proxy writes all Services in one transaction, after it has read them: in nftables mode with its table; in the other
 * modes into the table nat, after it has created the chain KUBE-SERVICES there. In our iptables mode that chain exists before,
 * and its rules jump to chains that kube-proxy does not have.
 */
async function hasKubeProxys(command: Command): Promise<boolean> {
  if (tablesOf(command).includes(KUBE_PROXY_TABLE)) return true;
  for (const variant of VARIANTS) {
    if (!isInUse(variant)) continue;
    const rules = await rulesOf(variant, command, 'nat', CHAIN.services);
    if (isWrittenByKubeProxy(rules)) return true;
  }
  return false;
}

/** Names of Services, of which comments consist, have no capital letters. */
export const isWrittenByKubeProxy = (rules: readonly string[]): boolean =>
  rules.length > 0 && !rules.some((rule) => TREE_PREFIXES.some((prefix) => rule.includes(prefix)));

function tablesOf(command: Command): string[] {
  const connection = new NftConnection();
  try {
    return connection.tables(protocolOf(command)).map(({ name }) => name);
  } finally {
    connection.close();
  }
}
