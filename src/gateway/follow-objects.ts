import type { Handlers } from '../kube/followed-objects.ts';
import { type InformerOptions, startInformer } from '../kube/informer.ts';
import { type KubeObject, type Namespace, RESOURCES, type Resource, type Service } from '../kube/types.ts';
import { type GatewayObject, type GatewayObjects, noObjects } from './objects.ts';

type SharedOptions = Pick<InformerOptions<KubeObject>, 'client' | 'clock' | 'random' | 'logger' | 'signal'>;

/** The part of an informer that is read here; other parts of the process have it already. */
export interface Followed<T> {
  list(): T[];
  handle(handlers: Handlers<T>): () => void;
  readonly synced: Promise<void>;
}

export interface FollowedGatewayObjects {
  /** Resolves when all objects that exist now are known. */
  readonly synced: Promise<unknown>;
  /** Returns the objects, without certificates, authorities and addresses. */
  objects(): GatewayObjects;
  /** Returns the resource of a kind of the Gateway API in the version that is followed; null: the cluster does not serve it. */
  resourceOf(kind: string): Resource<KubeObject> | null;
}

export const INGRESSES: Resource<KubeObject> = {
  ...{ group: 'networking.k8s.io', version: 'v1', plural: 'ingresses', kind: 'Ingress', namespaced: true },
};
export const INGRESS_CLASSES: Resource<KubeObject> = {
  ...{
    group: 'networking.k8s.io',
    version: 'v1',
    plural: 'ingressclasses',
    kind: 'IngressClass',
    namespaced: false,
  },
};
const DEFINITIONS: Resource<Definition> = {
  group: 'apiextensions.k8s.io',
  version: 'v1',
  plural: 'customresourcedefinitions',
  kind: 'CustomResourceDefinition',
  namespaced: false,
};

interface Definition extends KubeObject {
  spec?: { versions?: readonly { name?: string; served?: boolean }[] };
  status?: { conditions?: readonly { type?: string; status?: string }[] };
}

const GROUP = 'gateway.networking.k8s.io';
/** The kinds of the Gateway API, by the plural of their definition. */
export const GATEWAY_KINDS = {
  gatewayclasses: ['gatewayClasses', 'GatewayClass'],
  gateways: ['gateways', 'Gateway'],
  listenersets: ['listenerSets', 'ListenerSet'],
  httproutes: ['httpRoutes', 'HTTPRoute'],
  grpcroutes: ['grpcRoutes', 'GRPCRoute'],
  tlsroutes: ['tlsRoutes', 'TLSRoute'],
  tcproutes: ['tcpRoutes', 'TCPRoute'],
  udproutes: ['udpRoutes', 'UDPRoute'],
  referencegrants: ['referenceGrants', 'ReferenceGrant'],
  backendtlspolicies: ['backendTlsPolicies', 'BackendTLSPolicy'],
} as const satisfies Record<string, readonly [keyof GatewayObjects, string]>;
/** In the order in which they are preferred. */
export const GATEWAY_VERSIONS = ['v1', 'v1beta1', 'v1alpha3', 'v1alpha2'];

interface FollowedKind {
  readonly resource: Resource<KubeObject>;
  readonly objects: Followed<KubeObject>;
  readonly end: AbortController;
}

/**
 * Follows the objects that decide what gateways do: Ingresses, and those of the Gateway API while their definitions are
 * installed. `onChange` is called for each change, also of the Services that another part follows.
 */
export function followGatewayObjects(
  options: SharedOptions & { readonly services: Followed<Service>; readonly onChange: () => void },
): FollowedGatewayObjects {
  const { services, onChange, signal } = options;
  const handlers = { onAdd: onChange, onUpdate: onChange, onDelete: onChange };
  const follow = <T extends KubeObject>(resource: Resource<T>, ending: AbortSignal): Followed<T> => {
    const informer = startInformer({ ...options, resource, signal: ending, transform: trimObject<T> });
    informer.handle(handlers);
    informer.synced.catch(() => {});
    return informer;
  };
  services.handle({
    onAdd: onChange,
    onDelete: onChange,
    // Their status, and that of load balancers, changes nothing here.
    onUpdate: (service, before) => {
      if (JSON.stringify(service.spec) !== JSON.stringify(before.spec)) onChange();
    },
  });
  const ingressClasses = follow(INGRESS_CLASSES, signal);
  const ingresses = follow(INGRESSES, signal);
  const kinds = new Map<string, FollowedKind>();
  let namespaces: Followed<Namespace> | null = null;
  const definitions = startInformer({ ...options, resource: DEFINITIONS, transform: trimDefinition });
  const look = (definition: Definition) => {
    const plural = pluralOf(definition);
    if (plural === null) return;
    const version = servedVersion(definition);
    const known = kinds.get(plural);
    if (known?.resource.version === version) return;
    known?.end.abort();
    kinds.delete(plural);
    onChange();
    if (version === null) return;
    namespaces ??= follow(RESOURCES.namespaces, signal);
    const end = new AbortController();
    const resource: Resource<KubeObject> = {
      ...{
        group: GROUP,
        version,
        plural,
        kind: GATEWAY_KINDS[plural][1],
        namespaced: plural !== 'gatewayclasses',
      },
    };
    kinds.set(plural, { resource, end, objects: follow(resource, AbortSignal.any([signal, end.signal])) });
  };
  definitions.handle({ onAdd: look, onUpdate: look, onDelete: (one) => look({ ...one, spec: {} }) });
  const listed = (followed: Followed<KubeObject> | null) =>
    (followed?.list() ?? []) as readonly GatewayObject[];
  const all = async () => {
    await Promise.all([ingresses, ingressClasses, services, definitions].map(({ synced }) => synced));
    await Promise.all([...kinds.values()].map(({ objects }) => objects.synced));
    await namespaces?.synced;
  };
  const synced = all();
  synced.catch(() => {});
  return {
    synced,
    objects: () => ({
      ...noObjects(),
      ingressClasses: listed(ingressClasses),
      ingresses: listed(ingresses),
      services: services.list() as readonly GatewayObject[],
      namespaces: listed(namespaces),
      ...Object.fromEntries(
        [...kinds].map(([plural, { objects }]) => [
          GATEWAY_KINDS[plural as keyof typeof GATEWAY_KINDS][0],
          listed(objects),
        ]),
      ),
    }),
    resourceOf: (kind) =>
      [...kinds.values()].find(({ resource }) => resource.kind === kind)?.resource ?? null,
  };
}

function pluralOf({ metadata }: Definition): keyof typeof GATEWAY_KINDS | null {
  const [plural = '', ...group] = (metadata?.name ?? '').split('.');
  return group.join('.') === GROUP && Object.hasOwn(GATEWAY_KINDS, plural)
    ? (plural as keyof typeof GATEWAY_KINDS)
    : null;
}

function servedVersion({ spec, status }: Definition): string | null {
  const isEstablished = status?.conditions?.some(
    (one) => one.type === 'Established' && one.status === 'True',
  );
  if (!isEstablished) return null;
  const served = (spec?.versions ?? []).flatMap(({ name, served: isServed }) =>
    isServed && name ? [name] : [],
  );
  return GATEWAY_VERSIONS.find((version) => served.includes(version)) ?? null;
}

/** Drops what is not read: the field owners and kubectl's copy, half of an object's size. */
function trimObject<T extends KubeObject>(object: T): T {
  const { managedFields: _owners, ...metadata } = object.metadata ?? {};
  return { ...object, metadata };
}

/** Keeps names of versions only: the schemas of many definitions take megabytes. */
function trimDefinition({ metadata, spec, status }: Definition): Definition {
  const { name = '', resourceVersion = '' } = metadata ?? {};
  const versions = (spec?.versions ?? []).map(({ name: version, served }) => ({
    ...(version === undefined ? {} : { name: version }),
    served: served === true,
  }));
  return {
    metadata: { name, resourceVersion },
    spec: { versions },
    status: { conditions: status?.conditions ?? [] },
  };
}
