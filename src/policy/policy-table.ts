import { isDeepStrictEqual } from 'node:util';
import { selects } from '../kube/selector.ts';
import type { Namespace, NetworkPolicy, Node, Pod } from '../kube/types.ts';
import { keyOf } from '../kube/types.ts';
import { familyOf, type IPFamily } from '../lib/address.ts';
import { areEqual, haveEqualMembers } from '../lib/list-equality.ts';
import { coversNamespace, inGroup } from './allows.ts';
import { createLabelIndex, labelOf } from './label-index.ts';
import {
  comparePolicies,
  DIRECTIONS,
  type Direction,
  type PodGroup,
  type Policy,
  type PolicyChange,
  type PolicyMap,
  type PolicyPod,
  type ProgrammedPod,
} from './model.ts';
import { NODES, nodeKey, readNode } from './node-pod.ts';
import { readPod } from './pod-reader.ts';
import { readPolicy } from './policy-reader.ts';
import { mentions, portKey } from './policy-references.ts';

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
interface PodEntry {
  pod: PolicyPod;
  /** Ids, each once. */
  groups: string[];
  isolatedBy: Record<Direction, readonly string[]>;
  /** The generation of changes that already includes the pod's key. */
  changedIn: number;
}

const NOT_ISOLATED: PodEntry['isolatedBy'] = { ingress: [], egress: [] };

interface GroupEntry {
  readonly group: PodGroup;
  /** Number of references by active policies. */
  users: number;
}

export function createPolicyTable(node: string): PolicyTable {
  const policies = new Map<string, Policy>();
  /** Policies by namespace, in the order of their names. */
  const sorted = new Map<string, Policy[]>();
  /** The pods of this node that a policy isolates; policies without such pods are absent. */
  const isolated = new Map<string, Set<PodEntry>>();
  const namespaces = new Map<string, Readonly<Record<string, string>>>();
  const objects = new Map<string, Pod>();
  /** Pods whose objects were deleted while their networks still exist. */
  const leaving = new Set<string>();
  const plugged = new Map<string, { readonly owner: string; readonly addresses: readonly string[] }>();
  const pods = new Map<string, PodEntry>();
  /** The pods of this node that are isolated by a policy. */
  const isolatedPods = new Set<PodEntry>();
  /** Pods, indexed by '' and by each of their labels. */
  const podIndex = createLabelIndex<PodEntry>();
  /** This node's pods. */
  const ownPods = createLabelIndex<PodEntry>();
  /** The pods that claim an address; the latest one has it. */
  const claims = new Map<string, string[]>();
  const groups = new Map<string, GroupEntry>();
  /** The groups in use that cover a namespace, by a label that their pods have. */
  const groupIndex = createLabelIndex<GroupEntry>();
  /** Namespaces in `groupIndex`: those with a pod that was matched. */
  const indexed = new Set<string>();
  const portNames = new Map<string, number>();
  let dirtyPods = new Set<string>();
  let dirtyPolicies = new Set<string>();
  let generation = 0;

  function podChanged(entry: PodEntry): void {
    // Called for each of a cold start's hundreds of thousands of memberships.
    if (entry.changedIn === generation) return;
    entry.changedIn = generation;
    dirtyPods.add(entry.pod.key);
  }

  const isActive = (key: string) => isolated.has(key);
  const labelsOf = (namespace: string) => namespaces.get(namespace) ?? null;
  /** The policies of the whole cluster, in the order of evaluation; null: to be sorted. */
  let ofCluster: readonly Policy[] | null = [];
  const clusterPolicies = (): readonly Policy[] => {
    ofCluster ??= [...policies.values()].filter(isOfCluster).sort(comparePolicies);
    return ofCluster;
  };
  const byOrder = (a: string, b: string): number => {
    const [one, other] = [policies.get(a), policies.get(b)];
    return one && other ? comparePolicies(one, other) : 0;
  };
  const policiesIn = (namespace: string): readonly Policy[] => {
    const known = sorted.get(namespace);
    if (known) return known;
    const list = [...policies.values()]
      .filter((policy) => policy.namespace === namespace && !isOfCluster(policy))
      .sort((a, b) => (a.name < b.name ? -1 : 1));
    sorted.set(namespace, list);
    return list;
  };
  const ownerOf = (address: string): string | null => claims.get(address)?.at(-1) ?? null;

  /** Returns the ids of the groups in use that contain a pod. */
  function groupsOf({ namespace, labels }: PolicyPod): string[] {
    if (!indexed.has(namespace)) {
      indexed.add(namespace);
      const namespaceLabels = labelsOf(namespace);
      for (const entry of groups.values()) {
        if (coversNamespace(entry.group, namespace, namespaceLabels))
          groupIndex.add(namespace, labelOf(entry.group.pods), entry);
      }
    }
    const ids: string[] = [];
    groupIndex.forEach(namespace, labels, ({ group }) => {
      if (selects(group.pods, labels)) ids.push(group.id);
    });
    return ids;
  }

  function retainGroup(group: PodGroup): void {
    const known = groups.get(group.id);
    if (known) {
      known.users++;
      return;
    }
    const entry: GroupEntry = { group, users: 1 };
    groups.set(group.id, entry);
    const label = labelOf(group.pods);
    for (const namespace of indexed) {
      if (coversNamespace(group, namespace, labelsOf(namespace))) groupIndex.add(namespace, label, entry);
    }
    eachMember(group, (member) => {
      member.groups.push(group.id);
      podChanged(member);
    });
  }

  function eachMember(group: PodGroup, use: (member: PodEntry) => void): void {
    const label = labelOf(group.pods);
    const names = typeof group.namespaces === 'string' ? [group.namespaces] : namespaces.keys();
    for (const name of names) {
      if (!coversNamespace(group, name, labelsOf(name))) continue;
      for (const entry of podIndex.get(name, label)) if (selects(group.pods, entry.pod.labels)) use(entry);
    }
  }

  function releaseGroup({ id }: PodGroup): void {
    const entry = groups.get(id);
    if (!entry || --entry.users > 0) return;
    groups.delete(id);
    for (const namespace of indexed) groupIndex.delete(namespace, labelOf(entry.group.pods), entry);
    eachMember(entry.group, (member) => {
      member.groups = member.groups.filter((one) => one !== id);
      podChanged(member);
    });
  }

  /** Counts the use of a port name; its first and last use affects the pods that have it. */
  function countPortName(port: string, by: 1 | -1): void {
    const before = portNames.get(port) ?? 0;
    if (before + by > 0) portNames.set(port, before + by);
    else portNames.delete(port);
    if (before > 0 === before + by > 0) return;
    for (const entry of pods.values()) {
      if (entry.pod.ports.some(({ name, protocol }) => portKey(name, protocol) === port)) podChanged(entry);
    }
  }

  /**
   * Counts an isolated pod of a policy: the first one makes the policy active, the last one makes it
   * inactive.
   */
  function countIsolated(key: string, entry: PodEntry, isIsolated: boolean): void {
    const of = isolated.get(key);
    if (isIsolated) {
      if (of) {
        of.add(entry);
        return;
      }
      isolated.set(key, new Set([entry]));
    } else {
      if (!of?.delete(entry) || of.size > 0) return;
      isolated.delete(key);
    }
    dirtyPolicies.add(key);
    const policy = policies.get(key);
    if (!policy) return;
    const { pods: named, ports } = mentions(policy);
    for (const group of named)
      if (isIsolated) retainGroup(group);
      else releaseGroup(group);
    for (const port of ports) countPortName(port, isIsolated ? 1 : -1);
  }

  /** Updates a pod's policies to those that select it. */
  function refreshPolicies(entry: PodEntry): void {
    const { pod } = entry;
    if (pod.node !== node) {
      isolate(entry, NOT_ISOLATED);
      return;
    }
    const labels = labelsOf(pod.namespace);
    const isSelecting = ({ subject }: Policy) => inGroup(subject, pod, labels);
    const own = policiesIn(pod.namespace).filter(isSelecting);
    const cluster = clusterPolicies().filter(isSelecting);
    const selecting = cluster.length === 0 ? own : [...cluster, ...own].sort(comparePolicies);
    isolate(entry, {
      ingress: selecting.filter(({ ingress }) => ingress !== null).map((policy) => policy.key),
      egress: selecting.filter(({ egress }) => egress !== null).map((policy) => policy.key),
    });
  }

  function isolate(entry: PodEntry, next: PodEntry['isolatedBy']): void {
    const before = entry.isolatedBy;
    if (DIRECTIONS.every((one) => areEqual(next[one], before[one]))) return;
    entry.isolatedBy = next;
    podChanged(entry);
    const [earlier, now] = [union(before), union(next)];
    if (now.size > 0) isolatedPods.add(entry);
    else isolatedPods.delete(entry);
    for (const policy of now) if (!earlier.has(policy)) countIsolated(policy, entry, true);
    for (const policy of earlier) if (!now.has(policy)) countIsolated(policy, entry, false);
  }

  function refreshGroups(entry: PodEntry): void {
    const next = groupsOf(entry.pod);
    if (haveEqualMembers(next, entry.groups)) return;
    entry.groups = next;
    podChanged(entry);
  }

  function claim(address: string, key: string): void {
    const others = (claims.get(address) ?? []).filter((other) => other !== key);
    for (const other of others) dirtyPods.add(other);
    claims.set(address, [...others, key]);
  }

  function disclaim(address: string, key: string): void {
    const others = (claims.get(address) ?? []).filter((other) => other !== key);
    for (const other of others) dirtyPods.add(other);
    if (others.length > 0) claims.set(address, others);
    else claims.delete(address);
  }

  /** Updates a pod after its object or its network has changed. */
  function refreshPod(key: string): void {
    const object = objects.get(key);
    const isHere = object?.spec?.nodeName === node;
    putPod(key, object ? readPod(object, isHere ? (plugged.get(key)?.addresses ?? null) : null) : null);
  }

  function putPod(key: string, next: PolicyPod | null): void {
    const before = pods.get(key);
    if (!next) {
      if (before) remove(key, before);
      return;
    }
    if (before && isDeepStrictEqual(before.pod, next)) return;
    for (const address of before?.pod.addresses ?? []) {
      if (!next.addresses.includes(address)) disclaim(address, key);
    }
    for (const address of next.addresses) {
      if (!before?.pod.addresses.includes(address)) claim(address, key);
    }
    const entry: PodEntry = before ?? {
      pod: next,
      groups: [],
      isolatedBy: NOT_ISOLATED,
      changedIn: -1,
    };
    const { addresses, ports } = next;
    if (!before || !isDeepStrictEqual([before.pod.addresses, before.pod.ports], [addresses, ports]))
      podChanged(entry);
    if (before) unindex(before);
    entry.pod = next;
    pods.set(key, entry);
    index(entry);
    refreshGroups(entry);
    refreshPolicies(entry);
  }

  const indexesOf = ({ pod }: PodEntry) => (pod.node === node ? [podIndex, ownPods] : [podIndex]);

  function index(entry: PodEntry): void {
    for (const one of indexesOf(entry)) {
      for (const label of ['', ...labelsIn(entry.pod)]) one.add(entry.pod.namespace, label, entry);
    }
  }

  function unindex(entry: PodEntry): void {
    for (const one of indexesOf(entry)) {
      for (const label of ['', ...labelsIn(entry.pod)]) one.delete(entry.pod.namespace, label, entry);
    }
  }

  function remove(key: string, entry: PodEntry): void {
    isolate(entry, NOT_ISOLATED);
    for (const address of entry.pod.addresses) disclaim(address, key);
    pods.delete(key);
    unindex(entry);
    podChanged(entry);
  }

  /** Returns this node's pods that a policy may select. */
  function* candidatesOf({ subject }: Policy): Generator<PodEntry> {
    const label = labelOf(subject.pods);
    const names = typeof subject.namespaces === 'string' ? [subject.namespaces] : namespaces.keys();
    for (const name of names) {
      if (coversNamespace(subject, name, labelsOf(name))) yield* ownPods.get(name, label);
    }
  }

  /** Updates the pods of this node that a policy selects or selected; null: the policy was deleted. */
  function refreshIsolation(policyKey: string, policy: Policy | null): void {
    const concerned = new Set(isolated.get(policyKey));
    if (policy) for (const entry of candidatesOf(policy)) concerned.add(entry);
    for (const entry of concerned) {
      const isSelected = policy !== null && inGroup(policy.subject, entry.pod, labelsOf(entry.pod.namespace));
      const listed = (direction: Direction): readonly string[] => {
        const others = entry.isolatedBy[direction].filter((one) => one !== policyKey);
        // A policy that stays may have got another priority.
        return isSelected && policy[direction] !== null ? [...others, policyKey].sort(byOrder) : others;
      };
      isolate(entry, { ingress: listed('ingress'), egress: listed('egress') });
    }
  }

  function putPolicy(key: string, next: Policy | null): void {
    const before = policies.get(key);
    if (before?.hash === next?.hash) return;
    const namespace = (next ?? before)?.namespace ?? '';
    const wasActive = isActive(key);
    if (next && before && wasActive) {
      // The peers of both versions are kept until the new version is complete.
      const [old, fresh] = [mentions(before), mentions(next)];
      for (const group of fresh.pods) retainGroup(group);
      for (const port of fresh.ports) countPortName(port, 1);
      policies.set(key, next);
      for (const group of old.pods) releaseGroup(group);
      for (const port of old.ports) countPortName(port, -1);
      dirtyPolicies.add(key);
      for (const entry of isolated.get(key) ?? []) podChanged(entry);
    } else if (next) policies.set(key, next);
    const forgetOrder = () => {
      sorted.delete(namespace);
      if (isOfCluster(next ?? before ?? undefined)) ofCluster = null;
    };
    forgetOrder();
    refreshIsolation(key, next);
    if (next) return;
    // Kept until here, so that its references could be released.
    policies.delete(key);
    forgetOrder();
    if (wasActive) dirtyPolicies.add(key);
  }

  function putNamespace(name: string, labels: Readonly<Record<string, string>> | null): void {
    if (isDeepStrictEqual(labelsOf(name), labels)) return;
    if (labels) namespaces.set(name, labels);
    else namespaces.delete(name);
    indexed.delete(name);
    groupIndex.deleteNamespace(name);
    for (const entry of podIndex.get(name, '')) refreshGroups(entry);
    if (clusterPolicies().length > 0) for (const entry of ownPods.get(name, '')) refreshPolicies(entry);
  }

  const memberAt = (address: string, isNode: boolean): PolicyPod | null => {
    const found = pods.get(ownerOf(address) ?? '')?.pod ?? null;
    return found !== null && (found.namespace === NODES) === isNode ? found : null;
  };

  return {
    podAt: (address) => memberAt(address, false),
    nodeAt: (address) => memberAt(address, true),
    policiesIn,
    clusterPolicies,
    namespaceLabels: labelsOf,
    setPolicy: (object) => putPolicy(keyOf(object), readPolicy(object)),
    setClusterPolicy: (policy) => putPolicy(policy.key, policy),
    deletePolicy: (key) => putPolicy(key, null),
    setNode: (object) => putPod(nodeKey(object.metadata?.name ?? ''), readNode(object)),
    deleteNode: (name) => putPod(nodeKey(name), null),
    setNamespace: ({ metadata }) => putNamespace(metadata?.name ?? '', metadata?.labels ?? {}),
    deleteNamespace: (name) => putNamespace(name, null),
    setPod(object) {
      const key = keyOf(object);
      objects.set(key, object);
      leaving.delete(key);
      refreshPod(key);
    },
    deletePod(key) {
      // The pod's processes may outlive its object: it stays isolated until its network is removed.
      if (plugged.has(key)) {
        leaving.add(key);
        return;
      }
      objects.delete(key);
      refreshPod(key);
    },
    plugIn(key, owner, addresses) {
      plugged.set(key, { owner, addresses });
      refreshPod(key);
    },
    unplug(key, owner) {
      if (plugged.get(key)?.owner !== owner) return;
      plugged.delete(key);
      if (leaving.delete(key)) objects.delete(key);
      refreshPod(key);
    },
    commit() {
      const change = { pods: dirtyPods, policies: dirtyPolicies };
      dirtyPods = new Set();
      dirtyPolicies = new Set();
      generation++;
      return change;
    },
    get hasChanges() {
      return dirtyPods.size + dirtyPolicies.size > 0;
    },
    get policyCount() {
      return policies.size;
    },
    activePolicy: (key) => (isActive(key) ? (policies.get(key) ?? null) : null),
    all: () => ({
      pods: new Set(pods.keys()),
      policies: new Set(isolated.keys()),
    }),
    programmed(key) {
      const entry = pods.get(key);
      return (
        (entry && {
          pod: entry.pod,
          addresses: entry.pod.addresses.filter((address) => ownerOf(address) === key),
          groups: entry.groups,
          isolatedBy: entry.isolatedBy,
        }) ??
        null
      );
    },
    usesPortName: (port) => portNames.has(port),
    isolatesPods(family) {
      for (const { pod } of isolatedPods)
        if (pod.addresses.some((one) => familyOf(one) === family)) return true;
      return false;
    },
  };
}

const isOfCluster = (policy: Policy | undefined): boolean =>
  policy !== undefined && policy.kind !== 'NetworkPolicy';

const labelsIn = ({ labels }: PolicyPod): string[] =>
  Object.entries(labels).map(([key, value]) => `${key}=${value}`);

const union = ({ ingress, egress }: Readonly<Record<Direction, readonly string[]>>): Set<string> =>
  new Set([...ingress, ...egress]);
