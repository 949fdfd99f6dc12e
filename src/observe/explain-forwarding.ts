import type { Mode } from '../dataplane/dataplane.ts';
import { modeDiffers } from '../dataplane/mode-differences.ts';
import { SERVICE_NAME_LABEL } from '../kube/well-known-labels.ts';
import { FAMILY_NAMES, familyOf, hostPort } from '../lib/address.ts';
import type { Verdict } from '../service/decide.ts';
import type { Endpoint, Frontend, Packet, ServiceMap } from '../service/model.ts';
import type { Destined } from './explain-arrival.ts';
import { nameOf, nodeAddresses, nodeAt } from './explain-places.ts';
import { keepsHairpinSource } from './explain-source.ts';
import type { ExplainView } from './explain-view.ts';
import type { ExplainedEndpoint, ExplainStep } from './explanation.ts';

/** In the step `endpoints`, if an endpoint was taken out of use. */
export const EJECTED_BY_FAILOVER = 'ejected by failover';

/** Describes the table entry that the packet matches, and the kernel objects that implement it in the node's mode. */
export function kernelSteps(
  view: ExplainView,
  node: string,
  map: ServiceMap,
  packet: Packet,
  { frontend, reason }: Verdict,
): ExplainStep[] {
  const { destination, port, protocol } = packet;
  if (!frontend) {
    const rail = {
      'wrong-port': `${destination} is the cluster IP of ${map.clusterIPs.get(destination)}, which has no port ${port}/${protocol}`,
      'unallocated-cluster-ip': `${destination} is in the Service network ${map.node.serviceCidrs.map(({ text }) => text).join(', ')}`,
    };
    const text = reason === 'wrong-port' || reason === 'unallocated-cluster-ip' ? rail[reason] : null;
    return [
      {
        subject: 'rule',
        object: null,
        ruleOrKey: `no entry for ${destination} port ${port}/${protocol}`,
        text: text ?? `${destination} port ${port}/${protocol} belongs to no Service`,
      },
    ];
  }
  const matched: ExplainStep = {
    subject: 'rule',
    object: ownerOf(frontend),
    ruleOrKey: frontend.key,
    text: `${kindText(frontend)} ${frontend.address ?? destination} port ${port}/${protocol} belongs to ${ownerOf(frontend)}${frontend.owner.portName ? `, port ${frontend.owner.portName}` : ''}`,
  };
  const kernel = view.locate(node, frontend, packet).map(({ object, effect, to }): ExplainStep => {
    const step = { subject: 'rule', object: ownerOf(frontend), ruleOrKey: object, text: effect } as const;
    return to ? { ...step, to: to.map(({ ip, port }) => ({ ip, port })) } : step;
  });
  return [matched, ...kernel];
}

/** Describes the endpoints that may receive the packet, and the reason for the choice. */
export function endpointStep(
  view: ExplainView,
  map: ServiceMap,
  packet: Packet,
  verdict: Verdict,
): ExplainStep {
  const subject = 'endpoints';
  const { frontend, candidates, affinitySeconds } = verdict;
  const object = frontend && ownerOf(frontend);
  const route = frontend?.routes[packet.sourceClass];
  if (!frontend || route?.action !== 'forward')
    return { subject, object, ruleOrKey: null, text: 'no endpoints' };
  const isInternal = frontend.kind === 'ClusterIP';
  const field = isInternal ? 'internalTrafficPolicy' : 'externalTrafficPolicy';
  const count = `${candidates.length} endpoint${candidates.length === 1 ? '' : 's'}`;
  const odds = candidates.length === 1 ? '' : `, each with probability 1/${candidates.length}`;
  const affinity =
    affinitySeconds === null
      ? ''
      : `; a client keeps its endpoint until ${affinitySeconds} s after its last new connection (sessionAffinity)`;
  const local = route.pool.id.endsWith('/local');
  const ready = readyEndpoints(view, frontend, local ? map.node.name : null);
  const ejected = route.pool.ejected ?? [];
  const why: string[] = [];
  let ruleOrKey = `EndpointSlices, ${FAMILY_NAMES[frontend.family]}`;
  if (local) {
    ruleOrKey = `spec.${field}: Local`;
    why.push(`on ${map.node.name} only`);
  } else if (!isInternal && hasLocalPolicy(frontend)) {
    ruleOrKey = 'spec.externalTrafficPolicy: Local';
    why.push('of the whole cluster: externalTrafficPolicy applies only to clients outside the cluster');
  } else why.push('of the whole cluster');
  if (candidates.some(({ endpoint }) => endpoint.terminating)) {
    why.push('none is ready, so terminating endpoints that still serve are used');
  } else if (candidates.length + ejected.length < ready) {
    const zone = map.node.zone === null ? '' : ` (this node: zone ${map.node.zone})`;
    why.push(`selected from ${ready} ready ones by topology hints${zone}`);
  }
  if (ejected.length > 0) {
    const names = ejected.map(hostPort);
    why.push(`without ${names.join(', ')}: ${EJECTED_BY_FAILOVER} after recent failures`);
  }
  return { subject, object, ruleOrKey, text: `${count} ${why.join('; ')}${odds}${affinity}` };
}

/** Describes the source address that the servers see; null `mode`: unknown, which most modes treat alike. */
export function sourceStep(
  mode: Mode | null,
  map: ServiceMap,
  packet: Packet,
  { frontend, candidates }: Verdict,
  endpoints: readonly ExplainedEndpoint[],
): ExplainStep {
  const subject = 'source';
  const object = `Node ${map.node.name}`;
  const seen = [...new Set(endpoints.flatMap(({ clientSeen }) => clientSeen ?? []))];
  const isKept = seen.length === 1 && seen[0] === packet.source;
  const whom = seen.length === 0 ? `node ${map.node.name}` : seen.join(' or ');
  if (mode && modeDiffers(mode, 'server-sees-node')) {
    const text = `the server sees ${whom}: its connection comes from the proxy on ${map.node.name}`;
    return { subject, object, ruleOrKey: `${mode} mode`, text };
  }
  const hairpin = candidates.find((candidate) => candidate.hairpin);
  if (hairpin && keepsHairpinSource(mode, frontend, packet)) {
    const text = `source kept: ${packet.source} sees itself as the client if it is chosen as the endpoint`;
    return { subject, object, ruleOrKey: `${mode} mode`, text };
  }
  if (!hairpin && candidates.every(({ masquerade }) => masquerade) && !isKept) {
    const why =
      frontend?.kind !== 'ClusterIP'
        ? 'so that replies return through this node'
        : packet.sourceClass === 'pod'
          ? 'masqueradeAll'
          : 'a client outside the pod network';
    const text = `source rewritten: the server sees ${whom}; ${why}`;
    return { subject, object, ruleOrKey: `mark bit ${map.node.masqueradeBit}`, text };
  }
  if (hairpin) {
    return {
      subject,
      object,
      ruleOrKey: `hairpin address ${packet.source}`,
      text: `source rewritten to the node's if ${packet.source} is chosen as the endpoint`,
    };
  }
  return {
    subject,
    object,
    ruleOrKey: null,
    text: `source kept: the server sees ${seen.length === 0 ? packet.source : whom}`,
  };
}

/** Returns the pod and the node of an endpoint: as its EndpointSlice names them, else by its address. */
export function endpointOwner(
  view: ExplainView,
  { ip, target, nodeName }: Endpoint,
): { readonly pod: string | null; readonly node: string | null } {
  const pod = view.podAt(ip);
  const node = nodeName ?? pod?.spec?.nodeName ?? nodeAt(view, ip)?.metadata?.name ?? null;
  return { pod: target ?? (pod && nameOf(pod)), node };
}

/** Describes the way of a packet to no Service: to a pod, a node, a host port, or by the routes. */
export function passStep(
  view: ExplainView,
  map: ServiceMap,
  { destination, port, destinationIsLocal: isOwnAddress }: Packet,
  hostPort: Destined | null,
): ExplainStep {
  const base = { subject: 'route', ruleOrKey: null } as const;
  if (hostPort) {
    const pod = view.podAt(hostPort.address);
    const text = `host port ${port} of ${destination} is forwarded to ${hostPort.address} port ${hostPort.port}`;
    return {
      ...base,
      object: pod && `Pod ${nameOf(pod)}`,
      ruleOrKey: 'spec.containers[].ports[].hostPort',
      text,
    };
  }
  const pod = view.podAt(destination);
  if (pod) {
    const text = `${destination} is pod ${nameOf(pod)}: ${nextHop(view, map, destination, pod.spec?.nodeName ?? null)}`;
    return { ...base, object: `Pod ${nameOf(pod)}`, text };
  }
  if (map.node.ownServiceAddresses.includes(destination)) {
    const service = serviceName(view, destination);
    const text = `${destination} is ${service ? `Service ${service}, ` : ''}answered by this node itself`;
    return { ...base, object: `Node ${map.node.name}`, text };
  }
  const node = nodeAt(view, destination);
  if (node)
    return { ...base, object: `Node ${nameOf(node)}`, text: `${destination} is node ${nameOf(node)}` };
  if (isOwnAddress)
    return {
      ...base,
      object: `Node ${map.node.name}`,
      text: `${destination} is an address of ${map.node.name} itself`,
    };
  const text = `${destination} is not the address of a pod or a node: the packet is routed`;
  return { ...base, object: null, ruleOrKey: 'routes of the node', text };
}

/** Returns the name of the Service with a cluster IP; null if none has it. */
export function serviceName(view: ExplainView, address: string): string | null {
  for (const service of view.services()) {
    if (service.spec?.clusterIPs?.includes(address)) return nameOf(service);
  }
  return null;
}

/** Describes the next hop of a node's packets to an endpoint. */
export function nextHop(view: ExplainView, map: ServiceMap, ip: string, nodeName: string | null): string {
  const owner = nodeAt(view, ip)?.metadata?.name;
  if (owner === map.node.name) return 'this node itself';
  if (owner !== undefined) return `node ${owner} itself`;
  if (nodeName === map.node.name) return `bridge of ${nodeName}`;
  if (nodeName === null) return "by the node's routes";
  const known = [...view.nodes()].find(({ metadata }) => metadata?.name === nodeName);
  const address = known && nodeAddresses(known).find((candidate) => familyOf(candidate) === familyOf(ip));
  return `route to ${nodeName}${address ? ` (${address})` : ''}`;
}

function kindText({ kind }: Frontend): string {
  return {
    ClusterIP: 'cluster IP',
    NodePort: 'node port',
    LoadBalancer: 'load balancer address',
    ExternalIP: 'external IP',
  }[kind];
}

function ownerOf({ owner }: Frontend): string {
  return `Service ${owner.namespace}/${owner.name}`;
}

/** Only this node's endpoints are used for clients outside the cluster. */
function hasLocalPolicy({ routes }: Frontend): boolean {
  const { external } = routes;
  return external.action === 'forward'
    ? external.pool.id.endsWith('/local')
    : external.reason === 'no-local-endpoints';
}

/** Counts the distinct ready endpoints in the slices for the frontend's port, on one node or all nodes. */
function readyEndpoints(view: ExplainView, { owner, family }: Frontend, node: string | null): number {
  const ready = new Set<string>();
  for (const { metadata, addressType, ports, endpoints } of view.slices()) {
    if (metadata?.namespace !== owner.namespace || addressType !== FAMILY_NAMES[family]) continue;
    if (metadata.labels?.[SERVICE_NAME_LABEL] !== owner.name) continue;
    for (const port of ports ?? []) {
      if ((port.name ?? '') !== owner.portName || (port.protocol ?? 'TCP') !== owner.protocol) continue;
      for (const { addresses, conditions, nodeName } of endpoints ?? []) {
        if (conditions?.ready !== false && (node === null || nodeName === node))
          ready.add(`${addresses[0]} ${port.port}`);
      }
    }
  }
  return ready.size;
}
