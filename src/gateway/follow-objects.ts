import { type InformerOptions, startInformer } from '../kube/informer.ts';
import type { KubeObject, Resource, Service } from '../kube/types.ts';
import type { Handlers } from '../kube/followed-objects.ts';
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
}

const KINDS = {
  ingressClasses: ['networking.k8s.io', 'v1', 'ingressclasses', 'IngressClass', false],
  ingresses: ['networking.k8s.io', 'v1', 'ingresses', 'Ingress', true],
} as const;

/** Returns the resource of a kind of objects that gateways follow. */
export function gatewayResource(kind: keyof typeof KINDS): Resource<KubeObject> {
  const [group, version, plural, name, namespaced] = KINDS[kind];
  return { group, version, plural, kind: name, namespaced };
}

/**
 * Follows the objects that decide what gateways do. `onChange` is called for each change, also of the Services and namespaces
 * that other parts follow.
 */
export function followGatewayObjects(
  options: SharedOptions & {
    readonly services: Followed<Service>;
    readonly onChange: () => void;
  },
): FollowedGatewayObjects {
  const { services, onChange } = options;
  const handlers = { onAdd: onChange, onUpdate: onChange, onDelete: onChange };
  const follow = (kind: keyof typeof KINDS): Followed<KubeObject> => {
    const informer = startInformer({
      ...options,
      resource: gatewayResource(kind),
      transform: trimObject,
    });
    informer.handle(handlers);
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
  const ingressClasses = follow('ingressClasses');
  const ingresses = follow('ingresses');
  const all = [ingressClasses, ingresses, services];
  const listed = (followed: Followed<KubeObject>) => followed.list() as readonly GatewayObject[];
  return {
    synced: Promise.all(all.map(({ synced }) => synced)),
    objects: () => ({
      ...noObjects(),
      ingressClasses: listed(ingressClasses),
      ingresses: listed(ingresses),
      services: services.list() as readonly GatewayObject[],
    }),
  };
}

/** Drops what is not read: the field owners and kubectl's copy, half of an object's size. */
function trimObject(object: KubeObject): KubeObject {
  const { managedFields: _owners, ...metadata } = object.metadata ?? {};
  return { ...object, metadata };
}
