import {
  EGRESS_GATEWAY_DEFINITION,
  EGRESS_GATEWAYS,
  egressGatewayDefinition,
} from '../kube/egress-gateway.ts';
import { ANNOUNCEMENT_NAMESPACE } from '../kube/load-balancer.ts';
import {
  DEFAULT_CLASS_ANNOTATION,
  DEFAULT_INGRESS_CLASS_ANNOTATION,
  SERVICE_NAME_LABEL,
} from '../kube/well-known-labels.ts';
import { addressAt, FAMILY_NAMES, familyOf, parseCidr } from '../lib/address.ts';
import { apiVersionOf, type Kind } from './kind.ts';
import { type ApiObject, at, equal, type JsonObject } from './object.ts';
import type { ResourceStore } from './resource-store.ts';
import type { Store } from './store.ts';

/** The namespaces that every cluster has from its start: upstream's, and that of the agents' Leases. */
const NAMESPACES = ['default', 'kube-system', 'kube-public', 'kube-node-lease', ANNOUNCEMENT_NAMESPACE];

/** Priority classes that the cluster needs (upstream's values). */
const PRIORITY_CLASSES = { 'system-cluster-critical': 2_000_000_000, 'system-node-critical': 2_000_001_000 };

/** Creates the namespaces, the default ServiceCIDR, the definition of EgressGateways, and the Service through which pods reach this server. */
export function installBuiltins(
  resources: ResourceStore,
  store: Store,
  kinds: readonly Kind[],
  options: {
    readonly serviceCidrs: readonly string[];
    /** Provisioner of the default StorageClass, which is created if the cluster has none. */
    readonly storageProvisioner?: string;
    /** Controller of the default IngressClass, which is created if the cluster has none. */
    readonly ingressController?: string;
    readonly advertise: { readonly addresses: readonly string[]; readonly port: number };
  },
): void {
  const kindOf = (collection: string): Kind => {
    const found = kinds.find((kind) => kind.collection === collection);
    if (!found) throw new Error(`no kind is stored in ${collection}`);
    return found;
  };
  /** Creates the object, or updates the existing one to this state. */
  const ensure = (
    collection: string,
    namespace: string,
    name: string,
    fields: Omit<ApiObject, 'metadata' | 'apiVersion' | 'kind'>,
    labels?: Record<string, string>,
    annotations?: Record<string, string>,
  ) => {
    const kind = kindOf(collection);
    const metadata = { name, ...(labels ? { labels } : {}), ...(annotations ? { annotations } : {}) };
    const existing = store.get(collection, `${namespace}/${name}`)?.object;
    if (!existing) {
      resources.create(kind, namespace, {
        ...fields,
        apiVersion: apiVersionOf(kind),
        kind: kind.kind,
        metadata,
      });
      return;
    }
    if (Object.entries(fields).every(([field, value]) => equal(existing[field], value))) return;
    resources.update(kind, namespace, name, (current) => ({ ...current, ...fields }));
  };

  for (const name of NAMESPACES) {
    if (!store.get('namespaces', `/${name}`)) ensure('namespaces', '', name, {});
  }
  for (const [name, value] of Object.entries(PRIORITY_CLASSES)) {
    ensure('priorityclasses.scheduling.k8s.io', '', name, { value });
  }
  installDefinition(resources, store, kindOf(DEFINITIONS));
  const { storageProvisioner } = options;
  if (storageProvisioner !== undefined && store.list('storageclasses.storage.k8s.io').length === 0) {
    ensure(
      'storageclasses.storage.k8s.io',
      '',
      'standard',
      { provisioner: storageProvisioner, reclaimPolicy: 'Delete', volumeBindingMode: 'WaitForFirstConsumer' },
      {},
      { [DEFAULT_CLASS_ANNOTATION]: 'true' },
    );
  }
  const { ingressController } = options;
  if (ingressController !== undefined && store.list('ingressclasses.networking.k8s.io').length === 0) {
    ensure(
      'ingressclasses.networking.k8s.io',
      '',
      'fairlead',
      { spec: { controller: ingressController } },
      {},
      { [DEFAULT_INGRESS_CLASS_ANNOTATION]: 'true' },
    );
  }
  const cidrs = options.serviceCidrs;
  if (!store.get('servicecidrs.networking.k8s.io', '/kubernetes')) {
    ensure('servicecidrs.networking.k8s.io', '', 'kubernetes', { spec: { cidrs: [...cidrs] } });
  }
  const { addresses, port } = options.advertise;
  const primary = parseCidr(cidrs[0] ?? '');
  if (!primary || addresses.length === 0) return;
  if (!store.get('services', 'default/kubernetes')) {
    ensure(
      'services',
      'default',
      'kubernetes',
      {
        spec: {
          type: 'ClusterIP',
          clusterIP: addressAt(primary, 1),
          ports: [{ name: 'https', port: 443, protocol: 'TCP', targetPort: port }],
        },
      },
      { component: 'apiserver', provider: 'kubernetes' },
    );
  }
  const family =
    at(store.get('services', 'default/kubernetes')?.object, 'spec', 'ipFamilies', 0) === 'IPv6'
      ? 'ipv6'
      : 'ipv4';
  const own = addresses.filter((address) => familyOf(address) === family);
  ensure(
    'endpoints',
    'default',
    'kubernetes',
    {
      subsets: [{ addresses: own.map((ip) => ({ ip })), ports: [{ name: 'https', port, protocol: 'TCP' }] }],
    },
    { 'endpointslice.kubernetes.io/skip-mirror': 'true' },
  );
  ensure(
    'endpointslices.discovery.k8s.io',
    'default',
    'kubernetes',
    {
      addressType: FAMILY_NAMES[family],
      endpoints: own.map((address) => ({ addresses: [address], conditions: { ready: true } })),
      ports: [{ name: 'https', port, protocol: 'TCP' }],
    },
    { [SERVICE_NAME_LABEL]: 'kubernetes' },
  );
}

const DEFINITIONS = 'customresourcedefinitions.apiextensions.k8s.io';

/** Creates the definition of EgressGateways; updates that of an earlier version of the program. */
function installDefinition(resources: ResourceStore, store: Store, kind: Kind): void {
  const definition = egressGatewayDefinition();
  const spec: JsonObject = { ...definition.spec, conversion: { strategy: 'None' } };
  const existing = store.get(DEFINITIONS, `/${EGRESS_GATEWAY_DEFINITION}`)?.object;
  if (!existing) {
    const status = { storedVersions: [EGRESS_GATEWAYS.version] };
    resources.create(kind, '', { ...definition, spec, status });
  } else if (!equal(existing['spec'], spec))
    resources.update(kind, '', EGRESS_GATEWAY_DEFINITION, (current) => ({ ...current, spec }));
}
