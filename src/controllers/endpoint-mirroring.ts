import {
  type EndpointAddress,
  type EndpointPort,
  type EndpointSlice,
  type Endpoints,
  keyOf,
  RESOURCES,
  type Service,
  type SliceEndpoint,
  splitKey,
} from '../kube/types.ts';
import { MANAGED_BY_LABEL, SERVICE_NAME_LABEL } from '../kube/well-known-labels.ts';
import { plainAddress } from '../lib/address.ts';
import { canonical } from './canonical.ts';
import { all, type ControllerContext, controllerQueue } from './context.ts';
import { ENDPOINTS_MANAGED_BY } from './endpoints.ts';
import { controllerReference } from './ownership.ts';
import { hasSelector } from './pod-services.ts';
import { packSlices, type SliceGroup, type SliceWrites } from './slice-packing.ts';

const MIRRORER = 'endpointslicemirroring-controller.k8s.io';
const SKIP = 'endpointslice.kubernetes.io/skip-mirror';
const LEADER = 'control-plane.alpha.kubernetes.io/leader';
/** Upstream mirrors this many addresses of a subset. */
const MAX_PER_SUBSET = 1000;

/** Reports whether Endpoints were created manually and must be mirrored. */
export function isMirrored(
  endpoints: Endpoints | undefined,
  service: Service | undefined,
): endpoints is Endpoints {
  if (!endpoints || !service || hasSelector(service)) return false;
  const { labels = {}, annotations = {}, deletionTimestamp } = endpoints.metadata ?? {};
  return (
    deletionTimestamp === undefined &&
    labels[SKIP] !== 'true' &&
    labels[ENDPOINTS_MANAGED_BY] === undefined &&
    annotations[LEADER] === undefined
  );
}

/**
 * Computes the writes that update the mirrored slices of manual Endpoints; null Endpoints: all slices are removed.
 * Pure.
 */
export function reconcileMirror(endpoints: Endpoints | null, slices: readonly EndpointSlice[]): SliceWrites {
  if (!endpoints) return { create: [], update: [], delete: [...slices] };
  const groups = new Map<
    string,
    { addressType: 'IPv4' | 'IPv6'; ports: EndpointPort[]; endpoints: SliceEndpoint[] }
  >();
  const taken = new Set<string>();
  for (const subset of endpoints.subsets ?? []) {
    const ports = (subset.ports ?? []).map(
      (port): EndpointPort => ({
        name: port.name ?? '',
        port: port.port,
        protocol: port.protocol ?? 'TCP',
        ...(port.appProtocol ? { appProtocol: port.appProtocol } : {}),
      }),
    );
    let room = MAX_PER_SUBSET;
    const add = (address: EndpointAddress, ready: boolean) => {
      // The canonical form: slices have no other, but Endpoints may.
      const ip = plainAddress(address.ip);
      if (!ip || room-- <= 0) return;
      const addressType = ip.includes(':') ? 'IPv6' : 'IPv4';
      const key = `${addressType} ${canonical(ports)}`;
      // An address that occurs twice with the same ports: the first one, which is ready, counts.
      if (taken.has(`${key} ${ip}`)) return;
      taken.add(`${key} ${ip}`);
      const group = groups.get(key) ?? { addressType, ports, endpoints: [] };
      groups.set(key, group);
      group.endpoints.push({
        addresses: [ip],
        conditions: { ready },
        ...(address.hostname ? { hostname: address.hostname } : {}),
        ...(address.nodeName ? { nodeName: address.nodeName } : {}),
        ...(address.targetRef ? { targetRef: address.targetRef } : {}),
      });
    };
    for (const address of subset.addresses ?? []) add(address, true);
    for (const address of subset.notReadyAddresses ?? []) add(address, false);
  }
  const { name = '', namespace, labels } = endpoints.metadata ?? {};
  return packSlices([...groups.values()] satisfies SliceGroup[], slices, {
    ...(namespace ? { namespace } : {}),
    generateName: `${name}-`,
    labels: { ...labels, [SERVICE_NAME_LABEL]: name, [MANAGED_BY_LABEL]: MIRRORER },
    ownerReferences: [controllerReference(endpoints, RESOURCES.endpoints)],
  });
}

/** Mirrors manually created Endpoints into slices: proxies and DNS read only slices. */
export function startEndpointMirroring(context: ControllerContext): void {
  const { services, endpoints, endpointSlices } = context.caches;
  const INDEX = 'mirror of';
  const isOurs = (slice: EndpointSlice) => slice.metadata?.labels?.[MANAGED_BY_LABEL] === MIRRORER;
  const mirroredOf = (slice: EndpointSlice) =>
    `${slice.metadata?.namespace}/${slice.metadata?.labels?.[SERVICE_NAME_LABEL] ?? ''}`;
  endpointSlices.informer.addIndex(INDEX, (slice) => (isOurs(slice) ? [mirroredOf(slice)] : []));
  const queue = controllerQueue(context, 'endpointslicemirroring', async (key) => {
    const { namespace, name } = splitKey(key);
    const source = endpoints.get(namespace, name);
    const slices = endpointSlices.informer
      .byIndex(INDEX, key)
      .filter((slice) => !endpointSlices.isDeleting(slice));
    const mirrored = isMirrored(source, services.get(namespace, name));
    const writes = reconcileMirror(mirrored ? source : null, slices);
    await all([
      ...writes.create.map((slice) => endpointSlices.create(slice)),
      ...writes.update.map((slice) => endpointSlices.update(slice)),
    ]);
    await all(writes.delete.map((slice) => endpointSlices.delete(slice)));
  });
  const changed = { add: (object: Service | Endpoints) => queue.add(keyOf(object)) };
  services.informer.handle({ onAdd: changed.add, onUpdate: changed.add, onDelete: changed.add });
  endpoints.informer.handle({ onAdd: changed.add, onUpdate: changed.add, onDelete: changed.add });
  const sliceChanged = (slice: EndpointSlice) => {
    if (isOurs(slice)) queue.add(mirroredOf(slice));
  };
  endpointSlices.informer.handle({ onAdd: sliceChanged, onUpdate: sliceChanged, onDelete: sliceChanged });
}
