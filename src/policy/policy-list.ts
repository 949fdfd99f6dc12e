import { comparePolicies, type Policy } from './model.ts';

/** The policies of a cluster by key, and in the order of evaluation. */
export interface PolicyList {
  get(key: string): Policy | undefined;
  set(key: string, policy: Policy): void;
  delete(key: string): void;
  /** Returns the NetworkPolicies of a namespace, in the order of their names. */
  in(namespace: string): readonly Policy[];
  /** Returns the policies of the whole cluster, in the order of evaluation. */
  ofCluster(): readonly Policy[];
  /** Compares two keys by the order in which their policies are evaluated. */
  compare(a: string, b: string): number;
  readonly size: number;
}

export function createPolicyList(): PolicyList {
  const policies = new Map<string, Policy>();
  const sorted = new Map<string, Policy[]>();
  /** Null: to be sorted. */
  let ofCluster: readonly Policy[] | null = [];
  const forgetOrder = (policy: Policy | undefined) => {
    sorted.delete(policy?.namespace ?? '');
    if (policy && isOfCluster(policy)) ofCluster = null;
  };
  return {
    get: (key) => policies.get(key),
    set(key, policy) {
      forgetOrder(policies.get(key));
      forgetOrder(policy);
      policies.set(key, policy);
    },
    delete(key) {
      forgetOrder(policies.get(key));
      policies.delete(key);
    },
    in(namespace) {
      const known = sorted.get(namespace);
      if (known) return known;
      const list = [...policies.values()]
        .filter((policy) => policy.namespace === namespace && !isOfCluster(policy))
        .sort((a, b) => (a.name < b.name ? -1 : 1));
      sorted.set(namespace, list);
      return list;
    },
    ofCluster() {
      ofCluster ??= [...policies.values()].filter(isOfCluster).sort(comparePolicies);
      return ofCluster;
    },
    compare(a, b) {
      const [one, other] = [policies.get(a), policies.get(b)];
      return one && other ? comparePolicies(one, other) : 0;
    },
    get size() {
      return policies.size;
    },
  };
}

const isOfCluster = ({ kind }: Policy): boolean => kind !== 'NetworkPolicy';
