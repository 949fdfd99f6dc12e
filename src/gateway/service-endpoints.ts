import type { EndpointSlice, Service } from '../kube/types.ts';
import { SERVICE_NAME_LABEL } from '../kube/well-known-labels.ts';
import type { Followed } from './follow-objects.ts';
import type { Backend } from './route-map.ts';

export interface BackendEndpoint {
  readonly address: string;
  readonly port: number;
}

/** EndpointSlices by their Service, "NAMESPACE/NAME". */
export interface SliceIndex {
  of(service: string): readonly EndpointSlice[];
}

/** Indexes the slices of an informer; `onChange` is called with the Service of each that changes. */
export function indexSlices(
  slices: Followed<EndpointSlice>,
  onChange: (service: string) => void,
): SliceIndex & { close(): void } {
  const byService = new Map<string, Map<string, EndpointSlice>>();
  const set = (slice: EndpointSlice, isThere: boolean) => {
    const service = serviceOf(slice);
    const known = byService.get(service) ?? new Map<string, EndpointSlice>();
    const name = slice.metadata?.name ?? '';
    if (isThere) known.set(name, slice);
    else known.delete(name);
    if (known.size > 0) byService.set(service, known);
    else byService.delete(service);
    onChange(service);
  };
  const close = slices.handle({
    onAdd: (slice) => set(slice, true),
    onUpdate(slice, before) {
      if (serviceOf(slice) !== serviceOf(before)) set(before, false);
      set(slice, true);
    },
    onDelete: (slice) => set(slice, false),
  });
  return { of: (service) => [...(byService.get(service)?.values() ?? [])], close };
}

function serviceOf({ metadata }: EndpointSlice): string {
  const labels = metadata?.labels as Record<string, string> | undefined;
  return `${metadata?.namespace ?? ''}/${labels?.[SERVICE_NAME_LABEL] ?? ''}`;
}

/**
 * Returns the endpoints of a backend, ordered: those that are ready, or, if there are none, those that end and still serve, as for
 * Services. Of a Service with both families, those of its first one.
 */
export function backendEndpoints(
  { port }: Pick<Backend, 'port'>,
  service: Service | undefined,
  slices: readonly EndpointSlice[],
): readonly BackendEndpoint[] {
  const spec = service?.spec;
  if (!spec || spec.type === 'ExternalName') return [];
  const servicePort = spec.ports?.find((one) => one.port === port && (one.protocol ?? 'TCP') === 'TCP');
  if (!servicePort) return [];
  const families = [...((spec.ipFamilies ?? []) as readonly string[]), 'IPv4', 'IPv6'];
  const family = families.find((one) =>
    slices.some((slice) => slice.addressType === one && slice.endpoints?.length),
  );
  const ready = new Map<string, BackendEndpoint>();
  const ending = new Map<string, BackendEndpoint>();
  for (const slice of slices) {
    if (slice.addressType !== family) continue;
    const target = slice.ports?.find(
      ({ name, protocol }) => (name ?? '') === (servicePort.name ?? '') && (protocol ?? 'TCP') === 'TCP',
    )?.port;
    if (typeof target !== 'number') continue;
    for (const { addresses, conditions } of slice.endpoints ?? []) {
      const address = addresses?.[0];
      if (typeof address !== 'string') continue;
      const endpoint = { address, port: target };
      const isReady = conditions?.ready ?? true;
      if (isReady) ready.set(`${address} ${target}`, endpoint);
      else if (conditions?.serving && conditions.terminating) ending.set(`${address} ${target}`, endpoint);
    }
  }
  const chosen = ready.size > 0 ? ready : ending;
  return [...chosen].sort(([a], [b]) => (a < b ? -1 : 1)).map(([, endpoint]) => endpoint);
}
