import { selects } from '../kube/selector.ts';
import { haveEqualMembers } from '../lib/list-equality.ts';
import { coversNamespace } from './allows.ts';
import { createLabelIndex, labelOf } from './label-index.ts';
import type { PodGroup, PolicyPod } from './model.ts';
import type { NamespaceLabels, PodIndex } from './pod-index.ts';

/** A pod and the ids of the groups in use that contain it, each once. */
export interface GroupMember {
  readonly pod: PolicyPod;
  groups: string[];
}

/** The groups of pods that active policies mention, and their members. */
export interface GroupMembers<T extends GroupMember> {
  /** Counts a reference to a group; the first one adds the group to its members. */
  retain(group: PodGroup): void;
  /** Counts a reference less; the last one removes the group from its members. */
  release(group: PodGroup): void;
  /** Updates the groups of a pod, which is new or was changed. */
  refresh(member: T): void;
  /** Forgets which groups cover a namespace, whose labels have changed. */
  forgetNamespace(name: string): void;
}

interface GroupEntry {
  readonly group: PodGroup;
  /** Number of references by active policies. */
  users: number;
}

/** `changed`: called with each pod whose groups have changed. */
export function createGroupMembers<T extends GroupMember>(
  pods: PodIndex<T>,
  namespaces: NamespaceLabels,
  changed: (member: T) => void,
): GroupMembers<T> {
  const groups = new Map<string, GroupEntry>();
  /** The groups in use that cover a namespace, by a label that their pods have. */
  const index = createLabelIndex<GroupEntry>();
  /** Namespaces in `index`: those with a pod that was matched. */
  const indexed = new Set<string>();

  const eachMember = (group: PodGroup, use: (member: T) => void): void =>
    pods.eachCandidate(group, (entry) => {
      if (selects(group.pods, entry.pod.labels)) use(entry);
    });

  function indexNamespace(namespace: string): void {
    indexed.add(namespace);
    const labels = namespaces.of(namespace);
    for (const entry of groups.values()) {
      if (coversNamespace(entry.group, namespace, labels))
        index.add(namespace, labelOf(entry.group.pods), entry);
    }
  }

  /** Returns the ids of the groups in use that contain a pod. */
  function groupsOf({ namespace, labels }: PolicyPod): string[] {
    if (!indexed.has(namespace)) indexNamespace(namespace);
    const ids: string[] = [];
    index.forEach(namespace, labels, ({ group }) => {
      if (selects(group.pods, labels)) ids.push(group.id);
    });
    return ids;
  }

  return {
    retain(group) {
      const known = groups.get(group.id);
      if (known) {
        known.users++;
        return;
      }
      const entry: GroupEntry = { group, users: 1 };
      groups.set(group.id, entry);
      const label = labelOf(group.pods);
      for (const namespace of indexed) {
        if (coversNamespace(group, namespace, namespaces.of(namespace))) index.add(namespace, label, entry);
      }
      eachMember(group, (member) => {
        member.groups.push(group.id);
        changed(member);
      });
    },
    release({ id }) {
      const entry = groups.get(id);
      if (!entry || --entry.users > 0) return;
      groups.delete(id);
      for (const namespace of indexed) index.delete(namespace, labelOf(entry.group.pods), entry);
      eachMember(entry.group, (member) => {
        member.groups = member.groups.filter((one) => one !== id);
        changed(member);
      });
    },
    refresh(member) {
      const next = groupsOf(member.pod);
      if (haveEqualMembers(next, member.groups)) return;
      member.groups = next;
      changed(member);
    },
    forgetNamespace(name) {
      indexed.delete(name);
      index.deleteNamespace(name);
    },
  };
}
