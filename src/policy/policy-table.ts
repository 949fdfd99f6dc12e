import { isDeepStrictEqual } from 'node:util';
import type { Namespace, NetworkPolicy, Node, Pod } from '../kube/types.ts';
import { keyOf } from '../kube/types.ts';
import { familyOf, type IPFamily } from '../lib/address.ts';
import { createAddressClaims } from './address-claims.ts';
import { inGroup } from './allows.ts';
import { createGroupMembers } from './group-members.ts';
import { createIsolation, type IsolatedBy, isolatedBy, NOT_ISOLATED, withPolicy } from './isolation.ts';
import {
  comparePolicies,
  type Policy,
  type PolicyChange,
  type PolicyMap,
  type PolicyPod,
  type ProgrammedPod,
} from './model.ts';
import { NODES, nodeKey, readNode } from './node-pod.ts';
import { createPodIndex } from './pod-index.ts';
import { createPodObjects } from './pod-objects.ts';
import { createPolicyList } from './policy-list.ts';
import { readPolicy } from './policy-reader.ts';
import { mentions, namesOf, portKey } from './policy-references.ts';
import { createPortNames } from './port-names.ts';
import { type ChangeableEntry, createTableChanges } from './table-changes.ts';

/**
 * The policies of a cluster, its pods and namespaces, indexed for one node. The cost of a change is
 * proportional to its effect: for a pod, its groups and policies; for a policy, the pods that it and its
 * peers select.
 */
export interface PolicyTable extends PolicyMap {
  setPolicy(object: NetworkPolicy): void;
  setClusterPolicy(policy: Policy): void;
  deletePolicy(key: string): void;
  /** Sets a node, by whose labels policies of the whole cluster may select its addresses. */
  setNode(object: Node): void;
  deleteNode(name: string): void;
  setNamespace(object: Namespace): void;
  deleteNamespace(name: string): void;
  setPod(object: Pod): void;
  deletePod(key: string): void;
  /**
   * Records that the node has assigned these addresses to a pod: they count until `unplug`, regardless of
   * the pod's object.
   */
  plugIn(key: string, owner: string, addresses: readonly string[]): void;
  /**
   * Records that the pod's network was removed; ignored if `owner` is not the one that was plugged in last.
   */
  unplug(key: string, owner: string): void;
  commit(): PolicyChange;
  readonly hasChanges: boolean;
  readonly policyCount: number;
  /** Whether a policy has a rule with names. */
  readonly usesNames: boolean;
  /** Returns the policy if it isolates a pod of this node. */
  activePolicy(key: string): Policy | null;
  /** Returns every key of a pod or policy that may have to be programmed. */
  all(): PolicyChange;
  programmed(podKey: string): ProgrammedPod | null;
  /** Returns true if rules in use name this port ("name/protocol"). */
  usesPortName(port: string): boolean;
  /** Returns true if a pod of this node with an address of the family is isolated. */
  isolatesPods(family: IPFamily): boolean;
}

/** The state of a pod; the same object as long as the table contains the pod. */
interface PodEntry extends ChangeableEntry {
  pod: PolicyPod;
  /** Ids, each once. */
  groups: string[];
  isolatedBy: IsolatedBy;
  changedIn: number;
}

/** `learned`: see PolicyMap; default: no pod has got addresses. */
export function createPolicyTable(node: string, learned: PolicyMap['learned'] = () => null): PolicyTable {
  const policies = createPolicyList();
  const namespaces = new Map<string, Readonly<Record<string, string>>>();
  const pods = new Map<string, PodEntry>();
  const labelsOf = (namespace: string) => namespaces.get(namespace) ?? null;
  const namespaceLabels = { keys: () => namespaces.keys(), of: labelsOf };
  const allPods = createPodIndex<PodEntry>(namespaceLabels);
  /** This node's pods. */
  const ownPods = createPodIndex<PodEntry>(namespaceLabels);
  const changes = createTableChanges();
  const claims = createAddressClaims(changes.pod);
  const groups = createGroupMembers(allPods, namespaceLabels, changes.entry);
  const isolation = createIsolation<PodEntry>({ changed: changes.entry, activated: policyActivated });
  const objects = createPodObjects(node, putPod);
  let withNames = 0;
  const portNames = createPortNames((port) => {
    for (const entry of pods.values()) {
      if (entry.pod.ports.some(({ name, protocol }) => portKey(name, protocol) === port))
        changes.entry(entry);
    }
  });

  /** Retains or releases what the rules of a policy mention. */
  function countMentions(policy: Policy, isUsed: boolean): void {
    const { pods: named, ports } = mentions(policy);
    for (const group of named)
      if (isUsed) groups.retain(group);
      else groups.release(group);
    for (const port of ports) portNames.count(port, isUsed ? 1 : -1);
  }

  function policyActivated(key: string, isActive: boolean): void {
    changes.policy(key);
    const policy = policies.get(key);
    if (policy) countMentions(policy, isActive);
  }

  /** Updates a pod's policies to those that select it. */
  function refreshPolicies(entry: PodEntry): void {
    const { pod } = entry;
    if (pod.node !== node) {
      isolation.set(entry, NOT_ISOLATED);
      return;
    }
    const labels = labelsOf(pod.namespace);
    const isSelecting = ({ subject }: Policy) => inGroup(subject, pod, labels);
    const own = policies.in(pod.namespace).filter(isSelecting);
    const cluster = policies.ofCluster().filter(isSelecting);
    const selecting = cluster.length === 0 ? own : [...cluster, ...own].sort(comparePolicies);
    isolation.set(entry, isolatedBy(selecting));
  }

  function putPod(key: string, next: PolicyPod | null): void {
    const before = pods.get(key);
    if (!next) {
      if (before) removePod(key, before);
      return;
    }
    if (before && isDeepStrictEqual(before.pod, next)) return;
    claims.replace(key, before?.pod.addresses ?? [], next.addresses);
    const entry: PodEntry = before ?? {
      pod: next,
      groups: [],
      isolatedBy: NOT_ISOLATED,
      changedIn: -1,
    };
    const { addresses, ports } = next;
    if (!before || !isDeepStrictEqual([before.pod.addresses, before.pod.ports], [addresses, ports]))
      changes.entry(entry);
    if (before) for (const index of indexesOf(before)) index.delete(before);
    entry.pod = next;
    pods.set(key, entry);
    for (const index of indexesOf(entry)) index.add(entry);
    groups.refresh(entry);
    refreshPolicies(entry);
  }

  const indexesOf = ({ pod }: PodEntry) => (pod.node === node ? [allPods, ownPods] : [allPods]);

  function removePod(key: string, entry: PodEntry): void {
    isolation.set(entry, NOT_ISOLATED);
    claims.replace(key, entry.pod.addresses, []);
    pods.delete(key);
    for (const index of indexesOf(entry)) index.delete(entry);
    changes.entry(entry);
  }

  /** Updates the pods of this node that a policy selects or selected; null: the policy was deleted. */
  function refreshIsolation(policyKey: string, policy: Policy | null): void {
    const concerned = new Set(isolation.podsOf(policyKey));
    if (policy) ownPods.eachCandidate(policy.subject, (entry) => concerned.add(entry));
    for (const entry of concerned) {
      const isSelected = policy !== null && inGroup(policy.subject, entry.pod, labelsOf(entry.pod.namespace));
      isolation.set(
        entry,
        withPolicy(entry.isolatedBy, policyKey, isSelected ? policy : null, policies.compare),
      );
    }
  }

  function putPolicy(key: string, next: Policy | null): void {
    const before = policies.get(key);
    if (before?.hash === next?.hash) return;
    for (const [one, change] of [
      [next, 1],
      [before, -1],
    ] as const)
      if (one && namesOf(one).length > 0) withNames += change;
    const wasActive = isolation.isActive(key);
    if (next && before && wasActive) {
      // The peers of both versions are kept until the new version is complete.
      countMentions(next, true);
      policies.set(key, next);
      countMentions(before, false);
      changes.policy(key);
      for (const entry of isolation.podsOf(key)) changes.entry(entry);
    } else if (next) policies.set(key, next);
    refreshIsolation(key, next);
    if (next) return;
    // Kept until here, so that its references could be released.
    policies.delete(key);
    if (wasActive) changes.policy(key);
  }

  function putNamespace(name: string, labels: Readonly<Record<string, string>> | null): void {
    if (isDeepStrictEqual(labelsOf(name), labels)) return;
    if (labels) namespaces.set(name, labels);
    else namespaces.delete(name);
    groups.forgetNamespace(name);
    for (const entry of allPods.in(name)) groups.refresh(entry);
    if (policies.ofCluster().length > 0) for (const entry of ownPods.in(name)) refreshPolicies(entry);
  }

  const memberAt = (address: string, isNode: boolean): PolicyPod | null => {
    const found = pods.get(claims.ownerOf(address) ?? '')?.pod ?? null;
    return found !== null && (found.namespace === NODES) === isNode ? found : null;
  };

  function programmed(key: string): ProgrammedPod | null {
    const entry = pods.get(key);
    if (!entry) return null;
    const { pod, groups: ids } = entry;
    const addresses = pod.addresses.filter((address) => claims.ownerOf(address) === key);
    return { pod, addresses, groups: ids, isolatedBy: entry.isolatedBy };
  }

  return {
    podAt: (address) => memberAt(address, false),
    nodeAt: (address) => memberAt(address, true),
    policiesIn: policies.in,
    clusterPolicies: policies.ofCluster,
    namespaceLabels: labelsOf,
    learned,
    setPolicy: (object) => putPolicy(keyOf(object), readPolicy(object)),
    setClusterPolicy: (policy) => putPolicy(policy.key, policy),
    deletePolicy: (key) => putPolicy(key, null),
    setNode: (object) => putPod(nodeKey(object.metadata?.name ?? ''), readNode(object)),
    deleteNode: (name) => putPod(nodeKey(name), null),
    setNamespace: ({ metadata }) => putNamespace(metadata?.name ?? '', metadata?.labels ?? {}),
    deleteNamespace: (name) => putNamespace(name, null),
    setPod: objects.set,
    deletePod: objects.delete,
    plugIn: objects.plugIn,
    unplug: objects.unplug,
    commit: changes.commit,
    get hasChanges() {
      return !changes.isEmpty;
    },
    get policyCount() {
      return policies.size;
    },
    get usesNames() {
      return withNames > 0;
    },
    activePolicy: (key) => (isolation.isActive(key) ? (policies.get(key) ?? null) : null),
    all: () => ({ pods: new Set(pods.keys()), policies: new Set(isolation.active()) }),
    programmed,
    usesPortName: (port) => portNames.has(port),
    isolatesPods: (family) =>
      isolation.pods.values().some(({ pod }) => pod.addresses.some((one) => familyOf(one) === family)),
  };
}
