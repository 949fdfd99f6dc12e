import type { Packet } from '../kernel/packet.ts';
import type { EndpointSlice, Pod, Service } from '../kube/types.ts';
import { SERVICE_NAME_LABEL } from '../kube/well-known-labels.ts';
import { canonicalAddress } from '../lib/address.ts';
import { closestName } from '../lib/closest-name.ts';
import { FairleadError } from '../lib/errors.ts';
import { parseTarget } from '../observe/explain-target.ts';
import type { TracedPlace } from '../trace/recorder.ts';
import { createPlaceFinder, ownAddresses, podName } from './observed-places.ts';
import type { ClusterState } from './state.ts';

/** The objects that a capture looks up. */
export interface CaptureObjects {
  readonly pods: readonly Pod[];
  readonly services: readonly Service[];
  readonly slices: readonly EndpointSlice[];
}

/** The hosts of a cluster and their addresses. */
export interface CaptureHosts extends Pick<ClusterState, 'outsideAddresses' | 'controlPlaneAddresses'> {
  readonly nodes: readonly { readonly name: string; readonly addresses: readonly string[] }[];
}

/** The packets that a capture records, and the places. */
export interface CaptureTarget {
  readonly places: readonly TracedPlace[];
  /** Whether a frame is recorded; null packet: not IP. */
  readonly wants: (packet: Packet | null) => boolean;
}

/**
 * Finds what to capture: "all", "node/NAME" (all frames there), "pod/NAME" or "svc/NAME" (packets of its addresses,
 * everywhere). Throws FairleadError "not-found" and "bad-argument".
 */
export function findCaptureTarget(state: ClusterState, objects: CaptureObjects, text: string): CaptureTarget {
  const { node, addresses } = readCaptureTarget(state.nodes, objects, text);
  const finder = createPlaceFinder(state, objects.pods);
  if (node !== null) return { places: [finder.node(node)], wants: () => true };
  const places = [
    ...state.nodes.map(({ name }) => finder.node(name)),
    finder.outside(),
    finder.controlPlane(),
    ...withNetwork(objects.pods).flatMap((pod) => finder.pod(pod) ?? []),
  ];
  return { places, wants: addresses === null ? () => true : hasAddress(addresses) };
}

/** The subject of a capture: packets of one node, of some addresses, or (both null) all packets. */
export interface CaptureSubject {
  readonly node: string | null;
  readonly addresses: readonly string[] | null;
}

const withNetwork = (pods: readonly Pod[]) =>
  pods.filter((pod) => pod.status?.phase === 'Running' && ownAddresses(pod).length > 0);

/** Reads "all", "node/NAME", "pod/NAME" or "svc/NAME". Throws FairleadError "not-found" and "bad-argument". */
export function readCaptureTarget(
  nodes: readonly { readonly name: string }[],
  objects: CaptureObjects,
  text: string,
): CaptureSubject {
  const running = withNetwork(objects.pods);
  if (text === 'all') return { node: null, addresses: null };
  const { kind, namespace: given, name } = parseTarget(text);
  const namespace = given ?? 'default';
  const named = <T extends Pod | Service>(list: readonly T[], what: string): T => {
    const isHere = ({ metadata }: T) => metadata?.namespace === namespace;
    const found = list.find((one) => isHere(one) && one.metadata?.name === name);
    const begun = list.find(
      (one) => isHere(one) && what === 'pod' && one.metadata?.name?.startsWith(`${name}-`),
    );
    const one = found ?? begun;
    if (one) return one;
    throw notFound(what, `${namespace}/${name}`, list.map(podName));
  };
  switch (kind) {
    case 'node': {
      if (!nodes.some((node) => node.name === name))
        throw notFound(
          'node',
          name,
          nodes.map((node) => node.name),
        );
      return { node: name, addresses: null };
    }
    case 'dns':
    case 'pod':
      return { node: null, addresses: ownAddresses(named(running, 'pod')) };
    case 'service': {
      const service = named(objects.services, 'Service');
      return { node: null, addresses: serviceAddresses(service, objects.slices) };
    }
    default:
      throw new FairleadError(`${JSON.stringify(text)} cannot be captured`, {
        op: 'capture',
        code: 'bad-argument',
        hint: 'use pod/NAME, svc/NAME, node/NAME or all',
      });
  }
}

/**
 * Returns the addresses of an end of a filter: "pod/NAME", "svc/NAME" (also of its endpoints), "node/NAME", "outside".
 * Throws FairleadError "not-found" and "bad-argument".
 */
export function filterAddresses(
  state: CaptureHosts,
  { pods, services, slices }: CaptureObjects,
  text: string,
): readonly string[] {
  const { kind, namespace, name } = parseTarget(text);
  const full = `${namespace ?? 'default'}/${name}`;
  const named = <T extends Pod | Service>(list: readonly T[], what: string): T => {
    const found = list.find((one) => podName(one) === full);
    if (found) return found;
    throw notFound(what, full, list.map(podName));
  };
  switch (kind) {
    case 'pod':
    case 'dns':
      return ownAddresses(named(pods, 'pod'));
    case 'service':
      return serviceAddresses(named(services, 'Service'), slices);
    case 'node': {
      const node = state.nodes.find((one) => one.name === name);
      if (node) return node.addresses;
      throw notFound(
        'node',
        name,
        state.nodes.map((one) => one.name),
      );
    }
    case 'outside':
      return state.outsideAddresses;
    default:
      throw new FairleadError(`${JSON.stringify(text)} has no addresses`, {
        op: 'read filter',
        code: 'bad-argument',
        hint: 'use an address, pod/NAME, svc/NAME, node/NAME or outside',
      });
  }
}

/** Returns names of addresses: of pods, nodes and Services. */
export function captureNames(state: CaptureHosts, { pods, services }: CaptureObjects): Map<string, string> {
  const names = new Map<string, string>();
  for (const { name, addresses } of state.nodes) for (const ip of addresses) names.set(ip, name);
  for (const ip of state.outsideAddresses) names.set(ip, 'outside');
  for (const ip of state.controlPlaneAddresses) names.set(ip, 'control-plane');
  for (const pod of pods) for (const ip of ownAddresses(pod)) names.set(ip, `${podName(pod)}.pod`);
  for (const service of services)
    for (const ip of frontendAddresses(service)) names.set(ip, `${podName(service)}.svc`);
  return names;
}

function hasAddress(addresses: Iterable<string>): CaptureTarget['wants'] {
  const wanted = new Set(addresses);
  return (packet) => packet !== null && (wanted.has(packet.source) || wanted.has(packet.destination));
}

function frontendAddresses({ spec, status }: Service): string[] {
  const balancers = status?.loadBalancer?.ingress?.flatMap(({ ip }) => ip ?? []) ?? [];
  const all = [...(spec?.clusterIPs ?? []), ...balancers, ...(spec?.externalIPs ?? [])];
  return all.flatMap((ip) => canonicalAddress(ip) ?? []);
}

/** The addresses of a Service and of its endpoints. */
export function serviceAddresses(service: Service, slices: readonly EndpointSlice[]): string[] {
  const { namespace, name } = service.metadata ?? {};
  const own = slices.filter(
    ({ metadata }) => metadata?.namespace === namespace && metadata?.labels?.[SERVICE_NAME_LABEL] === name,
  );
  const endpoints = own.flatMap((slice) => (slice.endpoints ?? []).flatMap(({ addresses }) => addresses));
  return [...frontendAddresses(service), ...endpoints.flatMap((ip) => canonicalAddress(ip) ?? [])];
}

/** Returns the error for an object that does not exist, with the one that may be meant. */
export function notFound(what: string, name: string, known: readonly string[]): FairleadError {
  const like = closestName(name, known);
  return new FairleadError(`no such ${what}: ${name}`, {
    op: 'capture',
    code: 'not-found',
    object: `${what} ${name}`,
    hint: like ? `did you mean ${like}?` : `there are: ${known.slice(0, 5).join(', ') || 'none'}`,
  });
}
