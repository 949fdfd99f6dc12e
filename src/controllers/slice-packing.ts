import type { EndpointPort, EndpointSlice, SliceEndpoint } from '../kube/types.ts';
import { canonical, same } from './canonical.ts';

/** Endpoints with the same address type and ports, which share slices. */
export interface SliceGroup {
  readonly addressType: 'IPv4' | 'IPv6';
  readonly ports: readonly EndpointPort[];
  readonly endpoints: readonly SliceEndpoint[];
}

/** The metadata of every slice of one Service. */
export type SliceMetadata = Pick<
  NonNullable<EndpointSlice['metadata']>,
  'namespace' | 'generateName' | 'labels' | 'annotations' | 'ownerReferences'
>;

export interface SliceWrites {
  readonly create: EndpointSlice[];
  readonly update: EndpointSlice[];
  readonly delete: EndpointSlice[];
}

/** As upstream's default: watchers receive the whole slice at each change. */
export const MAX_ENDPOINTS = 100;

/**
 * Distributes the wanted endpoints over existing slices with few writes: an endpoint stays in its slice; space in
 * slices that are written anyway is used first, then the fullest slice with room for all the rest, then new slices.
 * Pure.
 */
export function packSlices(
  groups: readonly SliceGroup[],
  existing: readonly EndpointSlice[],
  metadata: SliceMetadata,
  maxEndpoints = MAX_ENDPOINTS,
): SliceWrites {
  const writes: SliceWrites = { create: [], update: [], delete: [] };
  const byGroup = new Map<string, EndpointSlice[]>();
  for (const slice of existing) {
    const key = groupKey(slice.addressType as SliceGroup['addressType'], slice.ports ?? []);
    const slices = byGroup.get(key);
    if (slices) slices.push(slice);
    else byGroup.set(key, [slice]);
  }
  for (const group of groups) {
    const key = groupKey(group.addressType, group.ports);
    packGroup(group, byGroup.get(key) ?? [], metadata, maxEndpoints, writes);
    byGroup.delete(key);
  }
  for (const slices of byGroup.values()) writes.delete.push(...slices);
  return writes;
}

function packGroup(
  group: SliceGroup,
  existing: readonly EndpointSlice[],
  metadata: SliceMetadata,
  maxEndpoints: number,
  writes: SliceWrites,
): void {
  const missing = new Map(group.endpoints.map((endpoint) => [identityOf(endpoint), endpoint]));
  const drafts = existing.map((slice) => {
    const endpoints: SliceEndpoint[] = [];
    let changed = !carries(slice, metadata);
    for (const endpoint of slice.endpoints ?? []) {
      const identity = identityOf(endpoint);
      const wanted = missing.get(identity);
      if (!wanted) {
        changed = true;
        continue;
      }
      missing.delete(identity);
      if (!same(endpoint, wanted)) changed = true;
      endpoints.push(wanted);
    }
    return { slice, endpoints, changed };
  });
  const rest = [...missing.values()];
  for (const draft of drafts) {
    // An emptied slice is deleted rather than refilled, unless it is the only one.
    if (!draft.changed || (draft.endpoints.length === 0 && drafts.length > 1)) continue;
    draft.endpoints.push(...rest.splice(0, maxEndpoints - draft.endpoints.length));
  }
  if (rest.length > 0 && rest.length < maxEndpoints) {
    const fitting = drafts
      .filter(({ changed, endpoints }) => !changed && endpoints.length + rest.length <= maxEndpoints)
      .sort((a, b) => b.endpoints.length - a.endpoints.length)[0];
    if (fitting) {
      fitting.endpoints.push(...rest.splice(0));
      fitting.changed = true;
    }
  }
  while (rest.length > 0) {
    writes.create.push({
      metadata: { ...metadata },
      addressType: group.addressType,
      ports: [...group.ports],
      endpoints: rest.splice(0, maxEndpoints),
    });
  }
  // A Service without endpoints has one empty slice: readers see that it was processed.
  const filled = drafts.some(({ endpoints }) => endpoints.length > 0) || writes.create.length > 0;
  const placeholder = filled ? undefined : drafts[0];
  for (const draft of drafts) {
    if (draft.endpoints.length === 0 && draft !== placeholder) writes.delete.push(draft.slice);
    else if (draft.changed) {
      const own = draft.slice.metadata;
      writes.update.push({
        ...draft.slice,
        metadata: {
          ...own,
          ...metadata,
          annotations: { ...own?.annotations, ...metadata.annotations },
        },
        ports: [...group.ports],
        endpoints: draft.endpoints,
      });
    }
  }
  if (drafts.length === 0 && group.endpoints.length === 0) {
    writes.create.push({
      metadata: { ...metadata },
      addressType: group.addressType,
      ports: [...group.ports],
      endpoints: [],
    });
  }
}

/** Reports whether labels and owner are up to date. Annotations are written only along with other changes. */
function carries(slice: EndpointSlice, metadata: SliceMetadata): boolean {
  return (
    same(slice.metadata?.labels ?? {}, metadata.labels ?? {}) &&
    same(slice.metadata?.ownerReferences ?? [], metadata.ownerReferences ?? [])
  );
}

function groupKey(addressType: string, ports: readonly EndpointPort[]): string {
  const keys = ports.map((port) =>
    canonical({ ...port, name: port.name ?? '', protocol: port.protocol ?? 'TCP' }),
  );
  return `${addressType} ${keys.sort().join(' ')}`;
}

function identityOf(endpoint: SliceEndpoint): string {
  return `${endpoint.addresses[0]} ${endpoint.targetRef?.uid ?? ''} ${endpoint.hostname ?? ''}`;
}
