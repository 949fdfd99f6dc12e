import type { Client } from '../kube/client.ts';
import { type Informer, startInformer } from '../kube/informer.ts';
import { type EndpointSlice, type KubeObject, keyOf, RESOURCES } from '../kube/types.ts';
import { SERVICE_NAME_LABEL } from '../kube/well-known-labels.ts';
import type { Clock } from '../lib/clock.ts';
import type { Logger } from '../lib/log.ts';
import { type AddressOwners, createAddressOwners } from './address-owners.ts';
import { viewNode, viewPod, viewService } from './object-view.ts';
import type { ObjectChanges } from './view.ts';

/** The cluster's objects as the page shows them. */
export interface ObjectFeed extends Pick<AddressOwners, 'ownerOf' | 'nodeOf'> {
  /** Rejects if the signal aborts before all objects are known. */
  readonly synced: Promise<void>;
  /** Returns all objects. */
  snapshot(): ObjectChanges;
  /** Returns the name of the Service with a cluster IP; null if there is none. */
  serviceOf(ip: string): string | null;
}

/** Changes are sent together at most this often. */
const COALESCE_MS = 200;
const BY_SERVICE = 'service';

type Kind = keyof ObjectChanges;

/** Follows the objects until the signal aborts, and reports changes after the first complete list. */
export function followObjects(options: {
  readonly client: Client;
  readonly clock: Clock;
  readonly random: () => number;
  readonly logger: Logger;
  readonly signal: AbortSignal;
  /** Cluster IPs for which each node answers itself. */
  readonly nodeAnswers: readonly string[];
  readonly onChanges: (changes: ObjectChanges) => void;
}): ObjectFeed {
  const { clock, onChanges } = options;
  const nodes = startInformer({ ...options, resource: RESOURCES.nodes });
  const namespaces = startInformer({ ...options, resource: RESOURCES.namespaces });
  const pods = startInformer({ ...options, resource: RESOURCES.pods });
  const services = startInformer({ ...options, resource: RESOURCES.services });
  const slices = startInformer({ ...options, resource: RESOURCES.endpointSlices });
  slices.addIndex(BY_SERVICE, (slice) => [serviceKeyOf(slice)]);

  const owners = createAddressOwners();
  const clusterIPs = new Map<string, string>();
  const views = {
    nodes: (key: string) => ofObject(nodes, key, viewNode),
    namespaces: (key: string) => ofObject(namespaces, key, () => true as const),
    pods: (key: string) => ofObject(pods, key, viewPod),
    services: (key: string) =>
      ofObject(services, key, (one) =>
        viewService(one, slices.byIndex(BY_SERVICE, key), options.nodeAnswers),
      ),
  };

  let dirty = emptySets();
  let cancel: (() => void) | null = null;
  options.signal.addEventListener('abort', () => cancel?.());
  let isSynced = false;
  const flush = () => {
    cancel = null;
    const changed = dirty;
    dirty = emptySets();
    onChanges({
      namespaces: readAll(changed.namespaces, views.namespaces),
      nodes: readAll(changed.nodes, views.nodes),
      services: readAll(changed.services, views.services),
      pods: readAll(changed.pods, views.pods),
    });
  };
  const mark = (kind: Kind, key: string) => {
    if (!isSynced) return;
    dirty[kind].add(key);
    cancel ??= clock.after(COALESCE_MS, flush);
  };
  const follow = <T extends KubeObject>(
    informer: Informer<T>,
    kind: Kind,
    key: (object: T) => string = keyOf,
  ) => {
    const onChange = (object: T) => mark(kind, key(object));
    informer.handle({ onAdd: onChange, onUpdate: onChange, onDelete: onChange });
  };
  const putNode = (node: Parameters<typeof viewNode>[0]) => {
    const { podCIDRs, podCIDR } = node.spec ?? {};
    owners.putNode(viewNode(node), podCIDRs ?? (podCIDR === undefined ? [] : [podCIDR]));
  };
  nodes.handle({ onAdd: putNode, onUpdate: putNode });
  const putPod = (pod: Parameters<typeof viewPod>[0]) => owners.putPod(viewPod(pod));
  pods.handle({ onAdd: putPod, onUpdate: putPod });
  const putService = (service: Parameters<typeof viewService>[0]) => {
    for (const ip of service.spec?.clusterIPs ?? []) clusterIPs.set(ip, keyOf(service));
  };
  services.handle({ onAdd: putService, onUpdate: putService });
  follow(nodes, 'nodes');
  follow(namespaces, 'namespaces');
  follow(pods, 'pods');
  follow(services, 'services');
  follow(slices, 'services', serviceKeyOf);
  const synced = Promise.all([nodes, namespaces, pods, services, slices].map((one) => one.synced)).then(
    () => {
      isSynced = true;
    },
  );
  return {
    synced,
    snapshot: () => ({
      namespaces: readAll(namespaces.list().map(keyOf), views.namespaces),
      nodes: readAll(nodes.list().map(keyOf), views.nodes),
      services: readAll(services.list().map(keyOf), views.services),
      pods: readAll(pods.list().map(keyOf), views.pods),
    }),
    ownerOf: owners.ownerOf,
    nodeOf: owners.nodeOf,
    serviceOf: (ip) => clusterIPs.get(ip) ?? null,
  };
}

const emptySets = (): Record<Kind, Set<string>> => ({
  namespaces: new Set(),
  nodes: new Set(),
  services: new Set(),
  pods: new Set(),
});

function ofObject<T, V>(informer: Informer<T>, key: string, view: (object: T) => V): V | null {
  const object = informer.get(key);
  return object === undefined ? null : view(object);
}

/** Keys come from users: the result has no prototype, so that an object may have any name. */
function readAll<V>(keys: Iterable<string>, view: (key: string) => V): Record<string, V> {
  const all: Record<string, V> = Object.create(null);
  for (const key of keys) all[key] = view(key);
  return all;
}

function serviceKeyOf({ metadata }: EndpointSlice): string {
  return `${metadata?.namespace}/${(metadata?.labels as Record<string, string> | undefined)?.[SERVICE_NAME_LABEL] ?? ''}`;
}
