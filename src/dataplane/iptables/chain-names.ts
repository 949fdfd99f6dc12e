import { hash as digestOf } from 'node:crypto';
import type { PortRef } from '../../service/model.ts';
import { portName } from '../rules/frontend-keys.ts';

/**
 * Names of chains. Those of Services, their endpoints and the fixed chains equal kube-proxy's including the
 * hash, so that knowledge and tools for kube-proxy keep working, and the chains of a node that ran
 * kube-proxy are adopted in place. The dispatch chains (see dispatch-tree.ts) exist only in Fairlead.
 */
export const CHAIN = {
  services: 'KUBE-SERVICES',
  externalServices: 'KUBE-EXTERNAL-SERVICES',
  nodePorts: 'KUBE-NODEPORTS',
  forward: 'KUBE-FORWARD',
  proxyFirewall: 'KUBE-PROXY-FIREWALL',
  markMasquerade: 'KUBE-MARK-MASQ',
  postrouting: 'KUBE-POSTROUTING',
  /**
   * Guards 127.0.0.0/8 if node ports answer there. kube-proxy relies on kubelet's chain KUBE-FIREWALL for
   * this rule.
   */
  localnet: 'KUBE-PROXY-LOCALNET',
} as const;

export type Table = 'nat' | 'filter';

export const TABLES: readonly Table[] = ['filter', 'nat'];

interface Tree {
  readonly table: Table;
  /** Begins the names of its chains. */
  readonly prefix: string;
  /** Whether keys begin with an address. */
  readonly addressed: boolean;
}

/** The dispatch trees (dispatch-tree.ts). */
export const TREES = {
  address: { table: 'nat', prefix: 'KUBE-IP-', addressed: true },
  nodePort: { table: 'nat', prefix: 'KUBE-NP-', addressed: false },
  /** The endpoints that may reach themselves through a Service. */
  hairpin: { table: 'nat', prefix: 'KUBE-SELF-', addressed: true },
  rejectAddress: { table: 'filter', prefix: 'KUBE-IP-', addressed: true },
  rejectExternal: { table: 'filter', prefix: 'KUBE-XIP-', addressed: true },
  rejectNodePort: { table: 'filter', prefix: 'KUBE-NP-', addressed: false },
  firewall: { table: 'filter', prefix: 'KUBE-FWIP-', addressed: true },
  clusterIP: { table: 'filter', prefix: 'KUBE-CIP-', addressed: true },
} as const satisfies Record<string, Tree>;
export type TreeKey = keyof typeof TREES;
export const TREE_KEYS = Object.keys(TREES) as TreeKey[];

/** The prefixes of the names of dispatch chains. */
export const TREE_PREFIXES: readonly string[] = Object.values(TREES).map(({ prefix }) => prefix);

export const SET_PREFIX = 'KUBE-AFF-';

/** XT_EXTENSION_MAXNAMELEN (linux/netfilter/x_tables.h) without the final zero. */
const MAX_CHAIN_NAME = 28;

const FIXED = new Set<string>(Object.values(CHAIN));
const OWN_PREFIXES = [
  'KUBE-SVC-',
  'KUBE-SVL-',
  'KUBE-EXT-',
  'KUBE-FW-',
  'KUBE-SEP-',
  ...TREE_PREFIXES,
  // kube-proxy leaves these chains, whose deletion it watches.
  'KUBE-PROXY-CANARY',
];

/** Returns true for the chains of this mode and of kube-proxy's iptables mode, false for kubelet's. */
export const isOwnChain = (name: string): boolean =>
  FIXED.has(name) || OWN_PREFIXES.some((prefix) => name.startsWith(prefix));

/** Returns true for the chains of this mode whose names kube-proxy does not use. */
export const isUniqueChain = (name: string): boolean =>
  name === CHAIN.localnet || TREE_PREFIXES.some((prefix) => name.startsWith(prefix));

/**
 * Returns kube-proxy's chain name: a prefix, and 16 characters of base32(sha256(port name, protocol,
 * rest)).
 */
export function serviceChain(
  prefix: 'KUBE-SVC-' | 'KUBE-SVL-' | 'KUBE-EXT-' | 'KUBE-FW-' | 'KUBE-SEP-' | typeof SET_PREFIX,
  owner: PortRef,
  rest = '',
): string {
  return prefix + hash(portName(owner) + owner.protocol.toLowerCase() + rest);
}

/** Returns a prefix and hexadecimal digits, or their hash if the name would be too long for the kernel. */
export function treeChain(prefix: string, digits: string): string {
  if (digits === '') return `${prefix}ALL`;
  const name = prefix + digits;
  return name.length <= MAX_CHAIN_NAME ? name : prefix + hash(digits);
}

const BASE32 = 'ABCDEFGHIJKLMNOPQRSTUVWXYZ234567';

/** Optimised for a cold start with a hundred thousand endpoints: one call for the digest, no loop over bits. */
function hash(text: string): string {
  const digest = digestOf('sha256', text, 'buffer');
  let out = '';
  for (let at = 0; at < 10; at += 5) {
    const high = ((digest[at] ?? 0) << 12) | ((digest[at + 1] ?? 0) << 4) | ((digest[at + 2] ?? 0) >> 4);
    const low = (((digest[at + 2] ?? 0) & 15) << 16) | ((digest[at + 3] ?? 0) << 8) | (digest[at + 4] ?? 0);
    for (const part of [high, low]) {
      for (let shift = 15; shift >= 0; shift -= 5) out += BASE32[(part >> shift) & 31];
    }
  }
  return out;
}
