import { isDeepStrictEqual } from 'node:util';
import { selects } from '../kube/selector.ts';
import type { Namespace, NetworkPolicy, Pod } from '../kube/types.ts';
import { keyOf } from '../kube/types.ts';
import { coversNamespace, inGroup } from './allows.ts';
import { createLabelIndex, labelOf } from './label-index.ts';
import {
  DIRECTIONS,
  type Direction,
  type PodGroup,
  type Policy,
  type PolicyMap,
  type PolicyPod,
} from './model.ts';
import { readPod } from './pod-reader.ts';
import { readPolicy } from './policy-reader.ts';

/** What has changed since the last commit: keys of pods and policies, which may be gone. */
export interface PolicyChange {
  readonly pods: ReadonlySet<string>;
  readonly policies: ReadonlySet<string>;
}

/** A pod as one node has to program it. */
export interface ProgrammedPod {
  /** Addresses that belong to it and to no later pod. */
  readonly addresses: readonly string[];
  readonly pod: PolicyPod;
  /** Ids of the groups in use that it is in. */
  readonly groups: ReadonlySet<string>;
  /** Keys of the policies that isolate it, if it runs on this node; by name. */
  readonly isolatedBy: Readonly<Record<Direction, readonly string[]>>;
}

/**
 * The policies of a cluster, its pods and namespaces, kept as one node needs them. A change costs what it touches: a
 * pod its own groups and policies; a policy the pods that it and its peers select.
 */
export interface PolicyTable extends PolicyMap {
  setPolicy(object: NetworkPolicy): void;
  deletePolicy(key: string): void;
  setNamespace(object: Namespace): void;
  deleteNamespace(name: string): void;
  setPod(object: Pod): void;
  deletePod(key: string): void;
  /** The node has given a pod these addresses: they count until `unplug`, whatever its object says. */
  plugIn(key: string, owner: string, addresses: readonly string[]): void;
  /** The pod's network is gone; another `owner` than the last one that was plugged in changes nothing. */
  unplug(key: string, owner: string): void;
  commit(): PolicyChange;
  readonly hasChanges: boolean;
  readonly policyCount: number;
  /** The policy, if it isolates a pod of this node. */
  activePolicy(key: string): Policy | null;
  /** Every key of a pod or policy that may have to be programmed. */
  all(): PolicyChange;
  programmed(podKey: string): ProgrammedPod | null;
  /** Whether rules in use name this port ("name/protocol"). */
  usesPortName(port: string): boolean;
  /** Whether any pod of this node is isolated. */
  readonly isolatesPods: boolean;
}

interface PodEntry {
  readonly pod: PolicyPod;
  readonly groups: Set<string>;
  isolatedBy: Record<Direction, string[]>;
}

interface GroupEntry {
  readonly group: PodGroup;
  /** Active policies that name it, one for each mention. */
  users: number;
  readonly members: Set<string>;
}

export function createPolicyTable(node: string): PolicyTable {
  const policies = new Map<string, Policy>();
  /** Policies by namespace, in the order of their names. */
  const sorted = new Map<string, Policy[]>();
  /** How many pods of this node a policy isolates. */
  const isolated = new Map<string, number>();
  const namespaces = new Map<string, Readonly<Record<string, string>>>();
  const objects = new Map<string, Pod>();
  /** Pods whose objects are gone while their networks are still there. */
  const leaving = new Set<string>();
  const plugged = new Map<string, { readonly owner: string; readonly addresses: readonly string[] }>();
  const pods = new Map<string, PodEntry>();
  /** Keys of pods, under '' and under each of their labels. */
  const podIndex = createLabelIndex<string>();
  /** Keys of this node's pods, by namespace. */
  const ownPods = new Map<string, Set<string>>();
  /** Who claims an address; the latest has it. */
  const claims = new Map<string, string[]>();
  const groups = new Map<string, GroupEntry>();
  /** The groups in use that cover a namespace, under a label that their pods have. */
  const groupIndex = createLabelIndex<GroupEntry>();
  /** Namespaces that `groupIndex` knows: those of which a pod was looked at. */
  const indexed = new Set<string>();
  const portNames = new Map<string, number>();
  let dirtyPods = new Set<string>();
  let dirtyPolicies = new Set<string>();

  const labelsOf = (namespace: string) => namespaces.get(namespace) ?? null;
  const policiesIn = (namespace: string): readonly Policy[] => {
    const known = sorted.get(namespace);
    if (known) return known;
    const list = [...policies.values()]
      .filter((policy) => policy.namespace === namespace)
      .sort((a, b) => (a.name < b.name ? -1 : 1));
    sorted.set(namespace, list);
    return list;
  };
  const ownerOf = (address: string): string | null => claims.get(address)?.at(-1) ?? null;

  /** The groups that may select a pod: all others do not. */
  function candidates({ namespace, labels }: PolicyPod): Iterable<GroupEntry> {
    if (!indexed.has(namespace)) {
      indexed.add(namespace);
      const namespaceLabels = labelsOf(namespace);
      for (const entry of groups.values()) {
        if (coversNamespace(entry.group, namespace, namespaceLabels))
          groupIndex.add(namespace, labelOf(entry.group.pods), entry);
      }
    }
    return groupIndex.of(namespace, labels);
  }

  function retainGroup(group: PodGroup): void {
    const known = groups.get(group.id);
    if (known) {
      known.users++;
      return;
    }
    const entry: GroupEntry = { group, users: 1, members: new Set() };
    groups.set(group.id, entry);
    const label = labelOf(group.pods);
    for (const namespace of indexed) {
      if (coversNamespace(group, namespace, labelsOf(namespace))) groupIndex.add(namespace, label, entry);
    }
    const names = typeof group.namespaces === 'string' ? [group.namespaces] : [...namespaces.keys()];
    for (const name of names) {
      if (!coversNamespace(group, name, labelsOf(name))) continue;
      for (const key of podIndex.get(name, label)) {
        const member = pods.get(key);
        if (!member || !selects(group.pods, member.pod.labels)) continue;
        entry.members.add(key);
        member.groups.add(group.id);
        dirtyPods.add(key);
      }
    }
  }

  function releaseGroup({ id }: PodGroup): void {
    const entry = groups.get(id);
    if (!entry || --entry.users > 0) return;
    groups.delete(id);
    for (const namespace of indexed) groupIndex.delete(namespace, labelOf(entry.group.pods), entry);
    for (const key of entry.members) {
      pods.get(key)?.groups.delete(id);
      dirtyPods.add(key);
    }
  }

  /** A port name that is first or last used concerns the pods that have it. */
  function countPortName(port: string, by: 1 | -1): void {
    const before = portNames.get(port) ?? 0;
    if (before + by > 0) portNames.set(port, before + by);
    else portNames.delete(port);
    if (before > 0 === before + by > 0) return;
    for (const [key, { pod }] of pods) {
      if (pod.ports.some(({ name, protocol }) => portKey(name, protocol) === port)) dirtyPods.add(key);
    }
  }

  function countIsolated(key: string, by: 1 | -1): void {
    const before = isolated.get(key) ?? 0;
    isolated.set(key, before + by);
    if (before > 0 === before + by > 0) return;
    dirtyPolicies.add(key);
    const policy = policies.get(key);
    if (!policy) return;
    const { pods: named, ports } = mentions(policy);
    for (const group of named)
      if (by > 0) retainGroup(group);
      else releaseGroup(group);
    for (const port of ports) countPortName(port, by);
  }

  /** Makes the policies of a pod equal to those that select it. */
  function refreshPolicies(key: string, entry: PodEntry): void {
    const selecting =
      entry.pod.node === node
        ? policiesIn(entry.pod.namespace).filter(({ selector }) => selects(selector, entry.pod.labels))
        : [];
    isolate(key, entry, {
      ingress: selecting.filter(({ ingress }) => ingress !== null).map((policy) => policy.key),
      egress: selecting.filter(({ egress }) => egress !== null).map((policy) => policy.key),
    });
  }

  function isolate(key: string, entry: PodEntry, next: PodEntry['isolatedBy']): void {
    const before = entry.isolatedBy;
    if (DIRECTIONS.every((one) => next[one].join() === before[one].join())) return;
    entry.isolatedBy = next;
    dirtyPods.add(key);
    for (const policy of union(next)) if (!union(before).has(policy)) countIsolated(policy, 1);
    for (const policy of union(before)) if (!union(next).has(policy)) countIsolated(policy, -1);
  }

  function refreshGroups(key: string, entry: PodEntry): void {
    const labels = labelsOf(entry.pod.namespace);
    for (const id of [...entry.groups]) {
      const group = groups.get(id);
      if (group && inGroup(group.group, entry.pod, labels)) continue;
      entry.groups.delete(id);
      group?.members.delete(key);
      dirtyPods.add(key);
    }
    for (const group of candidates(entry.pod)) {
      const { id, pods: selector } = group.group;
      if (entry.groups.has(id) || !selects(selector, entry.pod.labels)) continue;
      entry.groups.add(id);
      group.members.add(key);
      dirtyPods.add(key);
    }
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

  /** Looks at a pod again, after its object or its network has changed. */
  function refreshPod(key: string): void {
    const object = objects.get(key);
    const isHere = object?.spec?.nodeName === node;
    const next = object ? readPod(object, isHere ? (plugged.get(key)?.addresses ?? null) : null) : null;
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
    const { addresses, ports } = next;
    if (!before || !isDeepStrictEqual([before.pod.addresses, before.pod.ports], [addresses, ports])) {
      dirtyPods.add(key);
    }
    const entry: PodEntry = {
      pod: next,
      groups: before?.groups ?? new Set(),
      isolatedBy: before?.isolatedBy ?? { ingress: [], egress: [] },
    };
    pods.set(key, entry);
    if (before) unindex(key, before.pod);
    for (const label of ['', ...labelsIn(next)]) podIndex.add(next.namespace, label, key);
    if (next.node === node) {
      const own = ownPods.get(next.namespace);
      if (own) own.add(key);
      else ownPods.set(next.namespace, new Set([key]));
    }
    refreshGroups(key, entry);
    refreshPolicies(key, entry);
  }

  function unindex(key: string, pod: PolicyPod): void {
    for (const label of ['', ...labelsIn(pod)]) podIndex.delete(pod.namespace, label, key);
    ownPods.get(pod.namespace)?.delete(key);
  }

  function remove(key: string, entry: PodEntry): void {
    for (const policy of union(entry.isolatedBy)) countIsolated(policy, -1);
    for (const id of entry.groups) groups.get(id)?.members.delete(key);
    for (const address of entry.pod.addresses) disclaim(address, key);
    pods.delete(key);
    unindex(key, entry.pod);
    dirtyPods.add(key);
  }

  /** Looks at this node's pods in a namespace again, after one of its policies has changed; null: it is gone. */
  function refreshIsolation(namespace: string, policyKey: string, policy: Policy | null): void {
    for (const key of ownPods.get(namespace) ?? []) {
      const entry = pods.get(key);
      if (!entry) continue;
      const isSelected = policy !== null && selects(policy.selector, entry.pod.labels);
      const listed = (direction: Direction): string[] => {
        const others = entry.isolatedBy[direction].filter((one) => one !== policyKey);
        return isSelected && policy[direction] !== null ? [...others, policyKey].sort() : others;
      };
      isolate(key, entry, { ingress: listed('ingress'), egress: listed('egress') });
    }
  }

  function putPolicy(key: string, next: Policy | null): void {
    const before = policies.get(key);
    if (before?.hash === next?.hash) return;
    const namespace = (next ?? before)?.namespace ?? '';
    const wasActive = (isolated.get(key) ?? 0) > 0;
    if (next && before && wasActive) {
      // The peers of both versions are kept until the new one is in place.
      const [old, fresh] = [mentions(before), mentions(next)];
      for (const group of fresh.pods) retainGroup(group);
      for (const port of fresh.ports) countPortName(port, 1);
      policies.set(key, next);
      for (const group of old.pods) releaseGroup(group);
      for (const port of old.ports) countPortName(port, -1);
      dirtyPolicies.add(key);
      for (const pod of ownPods.get(namespace) ?? []) {
        const by = pods.get(pod)?.isolatedBy;
        if (by && union(by).has(key)) dirtyPods.add(pod);
      }
    } else if (next) policies.set(key, next);
    sorted.delete(namespace);
    refreshIsolation(namespace, key, next);
    if (next) return;
    // Until here it was known, so that its mentions were released.
    policies.delete(key);
    sorted.delete(namespace);
    isolated.delete(key);
    if (wasActive) dirtyPolicies.add(key);
  }

  function putNamespace(name: string, labels: Readonly<Record<string, string>> | null): void {
    if (isDeepStrictEqual(labelsOf(name), labels)) return;
    if (labels) namespaces.set(name, labels);
    else namespaces.delete(name);
    indexed.delete(name);
    groupIndex.deleteNamespace(name);
    for (const key of podIndex.get(name, '')) {
      const entry = pods.get(key);
      if (entry) refreshGroups(key, entry);
    }
  }

  const isActive = (key: string) => (isolated.get(key) ?? 0) > 0;
  return {
    podAt: (address) => pods.get(ownerOf(address) ?? '')?.pod ?? null,
    policiesIn,
    namespaceLabels: labelsOf,
    setPolicy: (object) => putPolicy(keyOf(object), readPolicy(object)),
    deletePolicy: (key) => putPolicy(key, null),
    setNamespace: ({ metadata }) => putNamespace(metadata?.name ?? '', metadata?.labels ?? {}),
    deleteNamespace: (name) => putNamespace(name, null),
    setPod(object) {
      const key = keyOf(object);
      objects.set(key, object);
      leaving.delete(key);
      refreshPod(key);
    },
    deletePod(key) {
      // Its processes may outlive its object: it stays isolated until its network is gone.
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
      policies: new Set([...policies.keys()].filter(isActive)),
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
    get isolatesPods() {
      return [...isolated.values()].some((count) => count > 0);
    },
  };
}

const labelsIn = ({ labels }: PolicyPod): string[] =>
  Object.entries(labels).map(([key, value]) => `${key}=${value}`);

/** "name/protocol" */
export const portKey = (name: string, protocol: string): string => `${name}/${protocol}`;

const union = ({ ingress, egress }: Readonly<Record<Direction, readonly string[]>>): Set<string> =>
  new Set([...ingress, ...egress]);

/** The groups and port names that a policy's rules name, one for each mention. */
function mentions({ ingress, egress }: Policy): { pods: PodGroup[]; ports: string[] } {
  const rules = [...(ingress ?? []), ...(egress ?? [])];
  return {
    pods: rules.flatMap(({ peers }) =>
      (peers ?? []).flatMap((peer) => (peer.kind === 'pods' ? [peer.group] : [])),
    ),
    ports: rules.flatMap(({ ports }) =>
      (ports ?? []).flatMap((port) => (port.kind === 'name' ? [portKey(port.name, port.protocol)] : [])),
    ),
  };
}
