import type { Direction, PodGroup, Policy } from './model.ts';
import type { NameGroup } from './name-group.ts';

/** Returns "name/protocol". */
export const portKey = (name: string, protocol: string): string => `${name}/${protocol}`;

/** Returns the groups of names that a policy's rules of a direction refer to, each once. */
export function namesOf(policy: Policy, direction: Direction = 'egress'): NameGroup[] {
  const groups = (policy[direction] ?? []).flatMap(({ peers }) =>
    (peers ?? []).flatMap((peer) => (peer.kind === 'names' ? [peer.group] : [])),
  );
  return [...new Map(groups.map((group) => [group.id, group])).values()];
}

/** Returns the groups and port names that a policy's rules refer to, once for each reference. */
export function mentions({ ingress, egress }: Policy): { pods: PodGroup[]; ports: string[] } {
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
