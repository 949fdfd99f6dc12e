import type {
  Container,
  EndpointPort,
  Node,
  Pod,
  Service,
  ServicePort,
  SliceEndpoint,
} from '../kube/types.ts';
import { ZONE_LABEL } from '../kube/well-known-labels.ts';
import { familyOf } from '../lib/address.ts';
import { canonical } from './canonical.ts';
import { isFinished, isReady } from './pods.ts';
import type { SliceGroup } from './slice-packing.ts';

/** Returns the address types of a Service's slices, primary first. */
export function addressTypesOf(service: Service): ('IPv4' | 'IPv6')[] {
  const families = service.spec?.ipFamilies ?? [];
  if (families.length > 0) return families.map((family) => (family === 'IPv6' ? 'IPv6' : 'IPv4'));
  // A server without dual stack, or a headless Service without defaults.
  return [familyOf(service.spec?.clusterIP ?? '') === 'ipv6' ? 'IPv6' : 'IPv4'];
}

export function isHeadless(service: Service): boolean {
  return service.spec?.clusterIP === 'None';
}

/** Returns the pod's address of a type, or undefined. */
export function podAddress(pod: Pod, addressType: string): string | undefined {
  const addresses = pod.status?.podIPs?.flatMap(({ ip }) => ip ?? []) ?? [];
  if (addresses.length === 0 && pod.status?.podIP) addresses.push(pod.status.podIP);
  const family = addressType === 'IPv6' ? 'ipv6' : 'ipv4';
  return addresses.find((address) => familyOf(address) === family);
}

/** Returns the target port of a Service's port at this pod; null if the pod has no port of that name. */
export function targetPort(pod: Pod, port: ServicePort): number | null {
  const target = port.targetPort ?? port.port;
  if (typeof target === 'number') return target;
  const protocol = port.protocol ?? 'TCP';
  const sidecars = (pod.spec?.initContainers ?? []).filter(
    (container: Container) => container.restartPolicy === 'Always',
  );
  for (const container of [...(pod.spec?.containers ?? []), ...sidecars]) {
    for (const candidate of container.ports ?? []) {
      if (candidate.name === target && (candidate.protocol ?? 'TCP') === protocol) {
        return candidate.containerPort;
      }
    }
  }
  return null;
}

/** Returns a Service's ports for slices, resolved at this pod; ports that the pod does not have are omitted. */
function portsAt(service: Service, pod: Pod): EndpointPort[] {
  return (service.spec?.ports ?? []).flatMap((port) => {
    const number = targetPort(pod, port);
    if (number === null) return [];
    return [
      {
        name: port.name ?? '',
        protocol: port.protocol ?? 'TCP',
        port: number,
        ...(port.appProtocol ? { appProtocol: port.appProtocol } : {}),
      },
    ];
  });
}

/**
 * Computes the endpoints of a Service with a selector, grouped for slices: one group per address type and set of ports,
 * at least one (empty) group per type. `nodeOf` returns the pod's node for its zone. Pure.
 */
export function serviceGroups(
  service: Service,
  pods: readonly Pod[],
  nodeOf: (name: string) => Node | undefined,
): SliceGroup[] {
  return addressTypesOf(service).flatMap((addressType) => {
    const groups = new Map<
      string,
      { addressType: typeof addressType; ports: EndpointPort[]; endpoints: SliceEndpoint[] }
    >();
    for (const pod of pods) {
      const address = podAddress(pod, addressType);
      if (isFinished(pod) || address === undefined) continue;
      const node = nodeOf(pod.spec?.nodeName ?? '');
      // A pod whose node is gone counts as gone.
      if (!node && !service.spec?.publishNotReadyAddresses) continue;
      const ports = portsAt(service, pod);
      if (ports.length === 0 && (service.spec?.ports ?? []).length > 0) continue;
      const key = canonical(ports);
      const group = groups.get(key) ?? { addressType, ports, endpoints: [] };
      groups.set(key, group);
      group.endpoints.push(endpointOf(service, pod, address, node));
    }
    if (groups.size === 0) return [{ addressType, ports: [], endpoints: [] }];
    return [...groups.values()];
  });
}

function endpointOf(service: Service, pod: Pod, address: string, node: Node | undefined): SliceEndpoint {
  const serving = isReady(pod);
  const terminating = pod.metadata?.deletionTimestamp !== undefined;
  const ready = service.spec?.publishNotReadyAddresses === true || (serving && !terminating);
  const { name = '', namespace = '', uid = '' } = pod.metadata ?? {};
  const zone = node?.metadata?.labels?.[ZONE_LABEL];
  const hostname = pod.spec?.subdomain === service.metadata?.name ? pod.spec?.hostname : undefined;
  return {
    addresses: [address],
    conditions: { ready, serving, terminating },
    ...(hostname ? { hostname } : {}),
    targetRef: { kind: 'Pod', namespace, name, uid },
    ...(pod.spec?.nodeName ? { nodeName: pod.spec.nodeName } : {}),
    ...(zone ? { zone } : {}),
  };
}
