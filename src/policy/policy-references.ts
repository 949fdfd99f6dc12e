import type { PodGroup, Policy } from './model.ts';

/** Returns "name/protocol". */
export const portKey = (name: string, protocol: string): string => `${name}/${protocol}`;

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
