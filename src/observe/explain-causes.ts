import type { Service, ServicePort } from '../kube/types.ts';
import { SERVICE_NAME_LABEL } from '../kube/well-known-labels.ts';
import { parseCidr } from '../lib/address.ts';
import type { Verdict } from '../service/decide.ts';
import type { Packet, PortRef, ServiceMap } from '../service/model.ts';
import { EXAMPLE_CLIENTS, nameOf, nodeAddresses } from './explain-places.ts';
import { noEndpoints } from './explain-pods.ts';
import type { ExplainView } from './explain-view.ts';
import type { Cause } from './explanation.ts';

/** Returns the possible reasons why a packet is not delivered, the most likely first. */
export function findCauses(view: ExplainView, map: ServiceMap, packet: Packet, verdict: Verdict): Cause[] {
  const owner = verdict.frontend?.owner ?? null;
  const service = owner ? serviceOf(view, owner) : serviceAt(view, packet.destination);
  const found = causesOf(view, map, packet, verdict, service);
  return [...found, ...findingsOf(view, map, service)];
}

/** Returns the Service that has an address in any of its fields, or null. */
export function serviceAt(view: ExplainView, address: string): Service | null {
  for (const service of view.services()) if (addressesOf(service).includes(address)) return service;
  return null;
}

/** Cluster IPs, load balancer addresses and external IPs, in this order. */
export function addressesOf({ spec, status }: Service): string[] {
  const ingress = status?.loadBalancer?.ingress?.flatMap(({ ip }) => ip ?? []) ?? [];
  const cluster = spec?.clusterIPs ?? (spec?.clusterIP ? [spec.clusterIP] : []);
  return [...cluster.filter((address) => address !== 'None'), ...ingress, ...(spec?.externalIPs ?? [])];
}

/** "80 (http), 443/UDP". */
export function portsText(ports: readonly ServicePort[] | undefined): string {
  const texts = (ports ?? []).map(({ port, name, protocol = 'TCP' }) => {
    return `${port}${protocol === 'TCP' ? '' : `/${protocol}`}${name ? ` (${name})` : ''}`;
  });
  return texts.join(', ') || 'none';
}

function causesOf(
  view: ExplainView,
  map: ServiceMap,
  packet: Packet,
  { reason, frontend }: Verdict,
  service: Service | null,
): Cause[] {
  switch (reason) {
    case 'no-endpoints':
      return service && frontend ? noEndpoints(view, service, frontend.owner, frontend.family) : [];
    case 'no-local-endpoints':
      return service && frontend ? [noLocalEndpoints(map, service, frontend.kind === 'ClusterIP')] : [];
    case 'source-range':
      return service ? [sourceRange(service, packet)] : [];
    case 'wrong-port':
      return service ? [wrongPort(service, packet)] : [];
    case 'unallocated-cluster-ip':
      return [
        {
          text: `${packet.destination} is in the Service network but not assigned to a Service: the Service may have been deleted or recreated`,
          object: null,
          field: 'spec.clusterIPs',
          fix: 'use the name of the Service instead of its address',
        },
      ];
    case 'no-service':
      // A headless Service has no cluster IP.
      return service ? [wrongPort(service, packet)] : noService(view, packet);
    case 'martian':
      return [
        {
          text: 'loopback addresses are reachable from the node only',
          object: null,
          field: null,
          fix: 'use an address of the node',
        },
      ];
    default:
      return [];
  }
}

/** Problems that the ServiceTable reported for the Service and its slices. */
function findingsOf(view: ExplainView, map: ServiceMap, service: Service | null): Cause[] {
  if (!service || map.findings.length === 0) return [];
  const { namespace, name } = service.metadata ?? {};
  const slices = [...view.slices()].flatMap(({ metadata }) =>
    metadata?.namespace === namespace && metadata?.labels?.[SERVICE_NAME_LABEL] === name
      ? metadata?.name
      : [],
  );
  return map.findings
    .filter(({ object }) => {
      const mine = object.kind === 'Service' ? object.name === name : slices.includes(object.name);
      return object.namespace === namespace && mine;
    })
    .map(({ reason, object, message }) => ({
      text: `${reason}: ${message}`,
      object: `${object.kind} ${object.namespace}/${object.name}`,
      field: message.slice(0, message.indexOf(':')),
      fix: null,
    }));
}

function noLocalEndpoints(map: ServiceMap, service: Service, internal: boolean): Cause {
  const field = internal ? 'internalTrafficPolicy' : 'externalTrafficPolicy';
  const nodes = new Set<string>();
  for (const { owner, routes } of map.frontends.values()) {
    if (owner.namespace !== service.metadata?.namespace || owner.name !== service.metadata.name) continue;
    for (const route of [routes.pod, routes.node]) {
      if (route.action !== 'forward') continue;
      for (const { nodeName } of route.pool.endpoints) if (nodeName) nodes.add(nodeName);
    }
  }
  const where = nodes.size > 0 ? `; endpoints are on ${[...nodes].sort().join(', ')}` : '';
  return {
    text: `${field}: Local, but there is no endpoint on ${map.node.name}${where}`,
    object: `Service ${nameOf(service)}`,
    field: `spec.${field}`,
    fix: internal
      ? `set it to Cluster, or run a pod of the Service on ${map.node.name}`
      : `send to a node that has an endpoint, run a pod on ${map.node.name}, or set it to Cluster`,
  };
}

function sourceRange(service: Service, { source }: Packet): Cause {
  const ranges = service.spec?.loadBalancerSourceRanges ?? [];
  const broken = ranges.filter((range) => parseCidr(range.trim()) === null);
  return {
    text:
      `${source} is not in the source ranges ${ranges.join(', ')}` +
      (broken.length > 0 ? ` (of which ${broken.join(', ')} are invalid)` : ''),
    object: `Service ${nameOf(service)}`,
    field: 'spec.loadBalancerSourceRanges',
    fix: EXAMPLE_CLIENTS.includes(source)
      ? 'write outside@ADDRESS with the address of a client'
      : `add ${source}/${source.includes(':') ? 128 : 32}, or use the cluster IP from inside the cluster`,
  };
}

function wrongPort(service: Service, { port, protocol }: Packet): Cause {
  const ports = service.spec?.ports ?? [];
  const cause = { object: `Service ${nameOf(service)}`, field: 'spec.ports' };
  const listed = `port ${port}${protocol === 'TCP' ? '' : `/${protocol}`} not in spec.ports: ${portsText(ports)}`;
  const otherProtocol = ports.find((entry) => entry.port === port);
  if (otherProtocol) return { ...cause, text: listed, fix: `use ${otherProtocol.protocol ?? 'TCP'}` };
  const target = ports.find((entry) => entry.targetPort === port);
  if (target) {
    return { ...cause, text: `${listed}; ${port} is the pods' port`, fix: `connect to port ${target.port}` };
  }
  const node = ports.find((entry) => entry.nodePort === port);
  if (node) {
    return {
      ...cause,
      text: `${listed}; ${port} is its node port`,
      fix: `connect to port ${node.port}, or to a node`,
    };
  }
  const only = ports[0];
  const fix = only ? `connect to port ${only.port}, or add port ${port} to spec.ports` : `add port ${port}`;
  return { ...cause, text: listed, fix };
}

/** The destination is a node: perhaps a node port was intended. */
function noService(view: ExplainView, { destination, port, protocol }: Packet): Cause[] {
  const node = [...view.nodes()].find((candidate) => nodeAddresses(candidate).includes(destination));
  if (!node) return [];
  const wanted = [...view.services()].flatMap((service) =>
    (service.spec?.ports ?? []).flatMap((entry) => (entry.nodePort ? [{ service, entry }] : [])),
  );
  const byServicePort = wanted.find(
    ({ entry }) => entry.port === port && (entry.protocol ?? 'TCP') === protocol,
  );
  if (byServicePort) {
    const { service, entry } = byServicePort;
    return [
      {
        text: `port ${port} is not a node port; Service ${nameOf(service)} has node port ${entry.nodePort} for it`,
        object: `Service ${nameOf(service)}`,
        field: 'spec.ports[].nodePort',
        fix: `connect to port ${entry.nodePort}`,
      },
    ];
  }
  return [];
}

/** Returns the Service of a port, or null. */
export function serviceOf(view: ExplainView, { namespace, name }: PortRef): Service | null {
  for (const service of view.services()) {
    if (service.metadata?.namespace === namespace && service.metadata.name === name) return service;
  }
  return null;
}
