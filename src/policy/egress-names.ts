import { EGRESS_NAMES, parseEgressNames } from '../kube/egress-names.ts';
import type { PolicyPort, PolicyRule } from './model.ts';
import { nameGroup } from './name-group.ts';

/** Reads the annotation as rules, one for the names of each port; what is malformed allows nothing. */
export function egressNameRules(text: string): PolicyRule[] {
  /** By the text of the ports, in the order of the annotation. */
  const byPorts = new Map<string, { readonly ports: PolicyPort[] | null; readonly patterns: string[] }>();
  for (const { pattern, ports } of parseEgressNames(text).names) {
    const key = JSON.stringify(ports);
    const known = byPorts.get(key) ?? {
      ports: ports && [{ kind: 'range' as const, ...ports }],
      patterns: [],
    };
    known.patterns.push(pattern);
    byPorts.set(key, known);
  }
  return [...byPorts.values()].map(({ ports, patterns }) => ({
    action: 'Accept',
    peers: [{ kind: 'names', group: nameGroup(patterns) }],
    ports,
    field: `metadata.annotations[${EGRESS_NAMES}]`,
  }));
}
