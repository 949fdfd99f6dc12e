import type { Direction, Policy } from './model.ts';

/** The table of each family (`ip` and `ip6`); it exists while a pod of the node is isolated. */
export const POLICY_TABLE = 'fairlead-policy';

/** Names of chains and sets have at most 255 bytes (NFT_NAME_MAXLEN). */
export const MAX_LABEL = 200;

export const MAP_OF: Readonly<Record<Direction, string>> = {
  ingress: 'isolated-ingress',
  egress: 'isolated-egress',
};

/** Addresses of the nodes whose proxies check the policies for their clients before they connect. */
export const PROXIES = 'proxies';

/** Chains that count dropped packets. */
export const DENIED: Readonly<Record<Direction, string>> = {
  ingress: 'denied-ingress',
  egress: 'denied-egress',
};

/** Sets of this node's pods, which count packets that no rule of the pods' NetworkPolicies allows. */
export const UNMATCHED: Readonly<Record<Direction, string>> = {
  ingress: 'unmatched-ingress',
  egress: 'unmatched-egress',
};

/** Pairs of each isolated pod's address with itself. */
export const ITSELF = 'itself';

const NAME_SET = 'names-';

/** The set of the addresses that pods got for a group of names. */
export const nameSetOf = (group: string): string => `${NAME_SET}${group}`;

/** Returns the id of the group of such a set; null: another set. */
export const groupOfNameSet = (set: string): string | null =>
  set.startsWith(NAME_SET) ? set.slice(NAME_SET.length) : null;

export const label = ({ key }: Policy) => key.slice(0, MAX_LABEL);

/** `explain` and `nft list` show this name. */
export const chainOf = (policy: Policy, direction: Direction): string =>
  `${direction}-${label(policy)}-${policy.hash}`;

/** The chain, and the set of the pods by which it counts, of packets that a policy of the whole cluster denies. */
export const deniedChain = (policy: Policy, direction: Direction): string =>
  `denied-${chainOf(policy, direction)}`;

export const ruleName = (policy: Policy, direction: Direction, rule: number) =>
  `${chainOf(policy, direction)}-${rule}`;

/** Returns true for a policy of the whole cluster with a rule that denies. */
export const canDeny = (policy: Policy, direction: Direction): boolean =>
  policy.tier !== 'NetworkPolicy' && (policy[direction] ?? []).some(({ action }) => action === 'Deny');
