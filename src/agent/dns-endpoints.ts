import type { Informer } from '../kube/informer.ts';
import { type EndpointSlice, keyOf, type Service, type SliceEndpoint } from '../kube/types.ts';
import { SERVICE_NAME_LABEL } from '../kube/well-known-labels.ts';
import { canonicalAddress } from '../lib/address.ts';
import type { OtherNameServer } from '../network/dns-fallback.ts';
import { DNS_PORT } from './dns-part.ts';

export interface DnsEndpointsOptions {
  readonly services: Pick<Informer<Service>, 'get' | 'handle'>;
  readonly slices: Pick<Informer<EndpointSlice>, 'list' | 'handle'>;
  /** The cluster DNS addresses. */
  readonly cluster: readonly string[];
  /**
   * "NAMESPACE/NAME" of the Service whose endpoints are taken, as long as it has some; otherwise, or if null, those of the
   * Service with a cluster DNS address are.
   */
  readonly service: string | null;
  /** The name of this node. */
  readonly node: string;
  readonly onChange: () => void;
}

/** Follows the endpoints of the cluster DNS Service; returns a function that lists them, sorted by address. */
export function followDnsEndpoints(options: DnsEndpointsOptions): () => OtherNameServer[] {
  const { services, slices, cluster, node, onChange } = options;
  const addresses = new Set(cluster.map(canonicalAddress));
  let withAddress: string | null = null;
  const hasAddress = ({ spec }: Service) =>
    [spec?.clusterIP, ...(spec?.clusterIPs ?? [])].some(
      (one) => one !== undefined && one !== 'None' && addresses.has(canonicalAddress(one)),
    );
  const isFollowed = (name: string) => name === options.service || name === withAddress;
  const setService = (service: Service) => {
    if (hasAddress(service)) withAddress = keyOf(service);
    if (isFollowed(keyOf(service))) onChange();
  };
  services.handle({ onAdd: setService, onUpdate: setService, onDelete: setService });
  const serviceOf = ({ metadata }: EndpointSlice) =>
    `${metadata?.namespace ?? ''}/${metadata?.labels?.[SERVICE_NAME_LABEL] ?? ''}`;
  const setSlice = (slice: EndpointSlice) => {
    if (isFollowed(serviceOf(slice))) onChange();
  };
  slices.handle({ onAdd: setSlice, onUpdate: setSlice, onDelete: setSlice });
  const serversOf = (name: string | null) => {
    const service = name === null ? undefined : services.get(name);
    if (service === undefined) return [];
    // An index of all slices would cost memory for each of them.
    return nameServersOf(
      service,
      slices.list().filter((slice) => serviceOf(slice) === name),
      node,
    );
  };
  return () => {
    const chosen = serversOf(options.service);
    // An uninstallation deletes the configured Service while agents still run.
    return chosen.length > 0 ? chosen : serversOf(withAddress);
  };
}

/** Returns the name servers behind a Service: those that are ready; if none is, those that still serve. */
export function nameServersOf(
  service: Service,
  slices: readonly EndpointSlice[],
  node: string,
): OtherNameServer[] {
  const portIn = (slice: EndpointSlice, protocol: 'UDP' | 'TCP'): number | null => {
    const wanted = service.spec?.ports?.find(
      (one) => one.port === DNS_PORT && (one.protocol ?? 'TCP') === protocol,
    );
    const port = slice.ports?.find(
      (one) => (one.protocol ?? 'TCP') === protocol && (one.name ?? '') === (wanted?.name ?? ''),
    );
    return wanted ? (port?.port ?? null) : null;
  };
  const servers = (isUsable: (endpoint: SliceEndpoint) => boolean) =>
    slices.flatMap((slice) => {
      const ports = { UDP: portIn(slice, 'UDP'), TCP: portIn(slice, 'TCP') };
      return (slice.endpoints ?? [])
        .filter(isUsable)
        .flatMap(({ addresses, nodeName }) =>
          addresses.map((address): OtherNameServer => ({ address, ports, isHere: nodeName === node })),
        );
    });
  const ready = servers(({ conditions }) => conditions?.ready !== false);
  const usable = ready.length > 0 ? ready : servers(({ conditions }) => conditions?.serving === true);
  return usable
    .filter(({ ports }) => ports.UDP !== null || ports.TCP !== null)
    .sort((a, b) => (a.address < b.address ? -1 : 1));
}
