import { MODE_ANNOTATION } from '../agent/mode-switch.ts';
import type { EndpointSlice, Node, Pod, Service } from '../kube/types.ts';
import { canonicalAddress } from '../lib/address.ts';
import type { EndpointView, NodeView, PodView, ServiceView } from './view.ts';

type ServicePort = NonNullable<NonNullable<Service['spec']>['ports']>[number];

/** The parts of API objects that the page shows. Addresses are canonical text. */

export function viewNode({ metadata, spec, status }: Node): NodeView {
  return {
    name: metadata?.name ?? '',
    isReady: (status?.conditions ?? []).some((one) => one.type === 'Ready' && one.status === 'True'),
    isDrained: spec?.unschedulable === true,
    addresses: canonical((status?.addresses ?? []).map(({ address }) => address)),
    mode: (metadata?.annotations as Record<string, string> | undefined)?.[MODE_ANNOTATION] ?? null,
  };
}

export function viewPod({ metadata, spec, status }: Pod): PodView {
  return {
    name: `${metadata?.namespace}/${metadata?.name}`,
    node: spec?.nodeName ?? null,
    addresses: canonical((status?.podIPs ?? []).map(({ ip }) => ip)),
    phase: metadata?.deletionTimestamp ? 'Terminating' : (status?.phase ?? 'Pending'),
    isReady: (status?.conditions ?? []).some((one) => one.type === 'Ready' && one.status === 'True'),
    isHostNetwork: spec?.hostNetwork === true,
    containers: [...(spec?.containers ?? []), ...(spec?.ephemeralContainers ?? [])].map(({ name }) => name),
  };
}

/** `slices`: those of this Service; `nodeAnswers`: cluster IPs for which each node answers itself. */
export function viewService(
  { metadata, spec, status }: Service,
  slices: readonly EndpointSlice[],
  nodeAnswers: readonly string[],
): ServiceView {
  const ingress = (status?.loadBalancer?.ingress ?? []).map(({ ip }) => ip);
  return {
    name: `${metadata?.namespace}/${metadata?.name}`,
    type: spec?.type ?? 'ClusterIP',
    addresses: spec?.type === 'ExternalName' ? [spec.externalName ?? ''] : (spec?.clusterIPs ?? []),
    externalAddresses: [...new Set(canonical([...ingress, ...(spec?.externalIPs ?? [])]))],
    ports: (spec?.ports ?? []).map(
      ({ port, nodePort, protocol }) => `${port}${nodePort ? `:${nodePort}` : ''}/${protocol ?? 'TCP'}`,
    ),
    httpPorts: (spec?.ports ?? []).filter(speaksHttp).map(({ port }) => port),
    hasSelector: Object.keys(spec?.selector ?? {}).length > 0,
    isOnNodes: (spec?.clusterIPs ?? []).some((address) => nodeAnswers.includes(address)),
    endpoints: joinFamilies(slices.flatMap(viewEndpoints)),
  };
}

const HTTP_PROTOCOLS: ReadonlySet<string> = new Set(['http', 'kubernetes.io/ws']);
const HTTP_NAME = /^(?:http|web|www)(?:$|-)/;
/** The numbers that servers of HTTP usually have. */
const HTTP_NUMBERS: ReadonlySet<number> = new Set([80, 3000, 8000, 8080, 8888]);

/** Guesses whether a port answers HTTP: what its author says counts before its name, and that before its number. */
function speaksHttp({ appProtocol, name, port, protocol, targetPort }: ServicePort): boolean {
  if ((protocol ?? 'TCP') !== 'TCP') return false;
  if (appProtocol !== undefined) return HTTP_PROTOCOLS.has(appProtocol.toLowerCase());
  return HTTP_NAME.test(name ?? '') || HTTP_NAME.test(String(targetPort)) || HTTP_NUMBERS.has(port);
}

function viewEndpoints({ endpoints }: EndpointSlice): EndpointView[] {
  return (endpoints ?? []).flatMap(({ addresses, conditions, nodeName, targetRef }) =>
    canonical(addresses).map((address) => ({
      addresses: [address],
      pod: targetRef?.kind === 'Pod' ? `${targetRef.namespace}/${targetRef.name}` : null,
      node: nodeName ?? null,
      // Absent means ready (discovery/v1).
      state:
        conditions?.ready !== false
          ? ('ready' as const)
          : conditions.terminating && conditions.serving !== false
            ? ('terminating' as const)
            : ('not-ready' as const),
    })),
  );
}

/** The slices of each IP family list the same pods. */
function joinFamilies(endpoints: readonly EndpointView[]): EndpointView[] {
  const joined = new Map<string, EndpointView>();
  for (const one of endpoints.toSorted((a, b) => orderOf(a) - orderOf(b) || (first(a) < first(b) ? -1 : 1))) {
    const key = one.pod === null ? first(one) : `${one.pod} ${one.state}`;
    const before = joined.get(key);
    const addresses = [...new Set([...(before?.addresses ?? []), ...one.addresses])];
    joined.set(key, { ...one, addresses });
  }
  return [...joined.values()];
}

const first = ({ addresses }: EndpointView): string => addresses[0] ?? '';
const orderOf = (one: EndpointView): number => Number(first(one).includes(':'));

const canonical = (addresses: readonly (string | undefined)[]): string[] =>
  addresses.flatMap((address) => (address === undefined ? [] : (canonicalAddress(address) ?? [])));
