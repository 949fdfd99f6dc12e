import { type GatewayObject, type GatewayObjects, noObjects } from './objects.ts';
import { findReferences } from './references.ts';

const COLLECTIONS = {
  'ingressclasses.networking.k8s.io': 'ingressClasses',
  'ingresses.networking.k8s.io': 'ingresses',
  'gatewayclasses.gateway.networking.k8s.io': 'gatewayClasses',
  'gateways.gateway.networking.k8s.io': 'gateways',
  'listenersets.gateway.networking.k8s.io': 'listenerSets',
  'referencegrants.gateway.networking.k8s.io': 'referenceGrants',
  'backendtlspolicies.gateway.networking.k8s.io': 'backendTlsPolicies',
} as const satisfies Record<string, keyof GatewayObjects>;

/** Which Secrets and ConfigMaps every node may read, because its gateways need them; see references.ts. */
export const GATEWAY_READS = {
  collections: Object.keys(COLLECTIONS),
  find(list: (collection: string) => readonly object[]): ReadonlySet<string> {
    const lists = Object.entries(COLLECTIONS).map(([collection, name]) => [
      name,
      list(collection) as readonly GatewayObject[],
    ]);
    const { certificates, authorities } = findReferences({ ...noObjects(), ...Object.fromEntries(lists) });
    return new Set([
      ...certificates.map((key) => `secrets ${key}`),
      ...authorities.map((key) => {
        const [namespace = '', kind = '', name = ''] = key.split('/');
        return `${kind === 'Secret' ? 'secrets' : 'configmaps'} ${namespace}/${name}`;
      }),
    ]);
  },
};
