import { CHECKED_DSCP } from '../kernel/dscp.ts';
import type { IPFamily } from '../lib/address.ts';
import { accept, addressFields, goto, hasDscp, inSet, jump, type Rule } from '../nft/rule.ts';
import type { ChainSpec, Fragment, SetSpec } from '../nft/spec.ts';
import { hashOf } from './json-hash.ts';
import { DIRECTIONS, type Direction, type Policy, type Tier } from './model.ts';
import type { NoteChains } from './name-notes.ts';
import { canDeny, chainOf, deniedChain, ITSELF, PROXIES, ruleName } from './policy-chain-names.ts';
import { namesOf } from './policy-references.ts';
import { acceptAt, type PolicyRules } from './policy-rules.ts';

/** The chains and sets that pods and policies need. Fragments with the same name are the same object. */
export interface PolicyChains {
  /** The set of a group's pods; groups' sets contain most elements. */
  group(id: string): Fragment;
  set(set: SetSpec): Fragment;
  /** The chains and sets of a policy; a policy of the whole cluster has its rules in the chains of its pods. */
  policy(policy: Policy): Fragment;
  /** What the names in a policy's rules need, before its chains. */
  names(policy: Policy): readonly Fragment[];
  /** Returns the chain of pods to which these policies apply, in the order of evaluation. */
  isolation(direction: Direction, policies: readonly Policy[]): { name: string; needs: Fragment[] };
  /** Drops all fragments. */
  reset(): void;
}

/**
 * `isProxied`: proxies on the nodes check the policies for packets to Services. `notes`: the chains by which addresses are added to
 * the sets of names; null: nothing adds any.
 */
export function createPolicyChains(
  family: IPFamily,
  rules: PolicyRules,
  { isProxied, notes }: { readonly isProxied: boolean; readonly notes: NoteChains | null },
): PolicyChains {
  const { groupSet, deniedSet, countAndDrop, rulesOf, setsOf } = rules;
  const { source, destination } = addressFields(family);
  const fragments = new Map<string, Fragment>();

  /** Returns one object per name: fragments with the same name are identical. */
  const fragment = (name: string, make: () => Pick<Fragment, 'chains' | 'sets'>): Fragment => {
    const known = fragments.get(name);
    if (known) return known;
    const made = { ...make(), rules: [] };
    fragments.set(name, made);
    return made;
  };
  /** The sets of groups, which contain most elements. */
  const groupSets = new Map<string, Fragment>();
  const groupFragment = (id: string): Fragment => {
    const known = groupSets.get(id);
    if (known) return known;
    const made = setFragment(groupSet(id));
    groupSets.set(id, made);
    return made;
  };
  const setFragment = (set: SetSpec): Fragment =>
    fragment(`set ${set.name}`, () => ({ chains: [], sets: [set] }));
  const policyFragment = (policy: Policy): Fragment =>
    fragment(`policy ${policy.key} ${policy.hash}`, () => {
      const sets: SetSpec[] = [];
      const chains = DIRECTIONS.flatMap((direction): ChainSpec[] => {
        const rules = policy[direction];
        if (!rules) return [];
        for (const [i, rule] of rules.entries()) sets.push(...setsOf(rule, ruleName(policy, direction, i)));
        if (policy.tier === 'NetworkPolicy') {
          return [{ name: chainOf(policy, direction), rules: rulesOf(policy, direction, []) }];
        }
        if (!canDeny(policy, direction)) return [];
        const counted = deniedSet(direction, policy);
        sets.push(counted);
        return [{ name: deniedChain(policy, direction), rules: countAndDrop(counted, direction) }];
      });
      return { chains, sets };
    });

  const names = (policy: Policy): Fragment[] => namesOf(policy).flatMap(({ id }) => notes?.of(id) ?? []);

  /**
   * Returns the chain of pods to which these policies apply, in the order of evaluation. NetworkPolicies are chains of
   * their own, which return. The rules of the other tiers are in the chain itself, because Pass has to skip the rest of
   * its tier, and a `goto` in a chain that was jumped to would return to this one.
   */
  const isolation = (direction: Direction, list: readonly Policy[]): { name: string; needs: Fragment[] } => {
    const name = `${direction}-of-${hashOf(list.map((policy) => [policy.key, policy.hash]))}`;
    const ofTier = (tier: Tier) => list.filter((policy) => policy.tier === tier);
    const [admin, own, baseline] = [ofTier('Admin'), ofTier('NetworkPolicy'), ofTier('Baseline')];
    const always: Rule[] = [
      [inSet(ITSELF, source, destination), accept],
      ...(direction === 'ingress' && isProxied
        ? [[hasDscp(CHECKED_DSCP, family), inSet(PROXIES, source), accept]]
        : []),
    ];
    const accepted: Rule = [acceptAt(direction)];
    const unmatched = deniedSet(direction, null);
    const isolated: Rule[] = own.map((policy) => [jump(chainOf(policy, direction))]);
    const denied = countAndDrop(unmatched, direction);
    const isOfCluster = admin.length + baseline.length > 0;
    const rest = `${name}-rest`;
    const chains = (): ChainSpec[] =>
      isOfCluster
        ? [
            {
              name,
              rules: [
                ...always,
                ...admin.flatMap((policy) => rulesOf(policy, direction, [goto(rest)])),
                [goto(rest)],
              ],
            },
            {
              name: rest,
              rules:
                own.length > 0
                  ? [...isolated, ...denied]
                  : [...baseline.flatMap((policy) => rulesOf(policy, direction, accepted)), accepted],
            },
          ]
        : // Last: packets that policies allow need no lookup.
          [{ name, rules: [...isolated, ...always, ...denied] }];
    const chain = fragment(`chain ${name}`, () => ({
      chains: chains(),
      sets: own.length > 0 ? [unmatched] : [],
    }));
    return { name, needs: [...list.flatMap(names), ...list.map(policyFragment), chain] };
  };

  return {
    group: groupFragment,
    set: setFragment,
    policy: policyFragment,
    names,
    isolation,
    reset() {
      fragments.clear();
      groupSets.clear();
    },
  };
}
