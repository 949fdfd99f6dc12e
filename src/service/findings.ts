import { FAMILY_NAMES } from '../lib/address.ts';
import type { ResolvedConflict } from './conflict-resolution.ts';
import type { Finding, Frontend, FrontendKind } from './model.ts';

const FIELD: Readonly<Record<FrontendKind, string>> = {
  ClusterIP: 'spec.clusterIPs',
  NodePort: 'spec.ports[].nodePort',
  LoadBalancer: 'status.loadBalancer.ingress',
  ExternalIP: 'spec.externalIPs',
};

/** Returns the finding on a Service that requested an address and port of another Service. */
export function conflictFinding({ winner, loser, value }: ResolvedConflict<Frontend>): Finding {
  const where = value.address === null ? `node port ${value.port}` : `${value.address} port ${value.port}`;
  const age = winner.createdAt === loser.createdAt ? 'comes first by name' : 'is older';
  return {
    severity: 'warning',
    reason: 'FrontendConflict',
    object: { kind: 'Service', namespace: value.owner.namespace, name: value.owner.name },
    message:
      `${FIELD[value.kind]}: ${where}/${value.protocol} (${FAMILY_NAMES[value.family]}) is in use by Service ${winner.owner}, ` +
      `which ${age}: use another address or port here`,
  };
}

/** Returns a key that is equal for equal findings. */
export function findingKey({ severity, reason, object, message }: Finding): string {
  return [object.namespace, object.name, object.kind, reason, severity, message].join('\n');
}

/** Sorts by object, reason and message: the order does not depend on the order of changes. */
export function sortFindings(findings: readonly Finding[]): readonly Finding[] {
  return findings
    .map((finding) => ({ finding, key: findingKey(finding) }))
    .sort((a, b) => (a.key < b.key ? -1 : a.key > b.key ? 1 : 0))
    .map(({ finding }) => finding);
}
