import type { EndpointSlice, Pod, Service, ServicePort } from '../kube/types.ts';
import { type IPFamily, parseCidr } from '../lib/address.ts';
import type { Verdict } from '../service/decide.ts';
import type { Packet, PortRef, ServiceMap } from '../service/model.ts';
import { SERVICE_NAME_LABEL } from '../service/objects.ts';
import { closest, familyName, nameOf, nodeAddresses } from './explain-places.ts';
import type { Cause, ExplainView } from './explain-view.ts';

/** Why a packet does not get through, the likeliest first. */
export function findCauses(view: ExplainView, map: ServiceMap, packet: Packet, verdict: Verdict): Cause[] {
  const owner = verdict.frontend?.owner ?? null;
  const service = owner ? serviceOf(view, owner) : serviceAt(view, packet.destination);
  const found = causesOf(view, map, packet, verdict, service);
  return [...found, ...findingsOf(map, service)];
}

/** The Service that has an address, by any of its fields, or null. */
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
          text: `${packet.destination} lies in the Services' network but belongs to no Service: it may have been deleted or made anew`,
          object: null,
          field: 'spec.clusterIPs',
          fix: 'use the name of the Service instead of its address',
        },
      ];
    case 'no-service':
      return service ? [wrongPort(service, packet)] : noService(view, packet);
    case 'martian':
      return [
        {
          text: 'loopback addresses are the node’s own: packets to them come from the node only',
          object: null,
          field: null,
          fix: 'use an address of the node',
        },
      ];
    default:
      return [];
  }
}

/** What the compiler had to say about the Service and its slices. */
function findingsOf(map: ServiceMap, service: Service | null): Cause[] {
  if (!service) return [];
  const { namespace, name = '' } = service.metadata ?? {};
  return map.findings
    .filter(({ object }) => {
      const mine = object.kind === 'Service' ? object.name === name : object.name.startsWith(`${name}-`);
      return object.namespace === namespace && mine;
    })
    .map(({ reason, object, message }) => ({
      text: `${reason}: ${message}`,
      object: `${object.kind} ${object.namespace}/${object.name}`,
      field: message.slice(0, message.indexOf(':')),
      fix: null,
    }));
}

function noEndpoints(view: ExplainView, service: Service, port: PortRef, family: IPFamily): Cause[] {
  const object = `Service ${nameOf(service)}`;
  const selector = Object.entries(service.spec?.selector ?? {});
  const slices = [...view.slices()].filter(
    ({ metadata }) =>
      metadata?.namespace === port.namespace && metadata.labels?.[SERVICE_NAME_LABEL] === port.name,
  );
  if (selector.length === 0) {
    return [
      {
        text: `${object} has no selector and no EndpointSlice with a ready ${familyName(family)} endpoint for it`,
        object,
        field: 'spec.selector',
        fix: 'set a selector, or make EndpointSlices by hand',
      },
    ];
  }
  const inNamespace = [...view.pods()].filter(({ metadata }) => metadata?.namespace === port.namespace);
  const selected = inNamespace.filter(({ metadata }) =>
    selector.every(([key, value]) => metadata?.labels?.[key] === value),
  );
  const selectorText = selector.map(([key, value]) => `${key}=${value}`).join(',');
  if (selected.length === 0)
    return [nothingSelected(object, port.namespace, selectorText, selector, inNamespace)];
  const ready = selected.filter(isReady);
  if (ready.length === 0) {
    const waiting = selected.slice(0, 3).map(whyNotReady);
    return selected.length > 3
      ? [
          ...waiting,
          { text: `${selected.length - 3} more pods are not ready`, object, field: null, fix: null },
        ]
      : waiting;
  }
  const servicePort = service.spec?.ports?.find(({ name = '' }) => name === port.portName);
  const unnamed = servicePort && ready.map((pod) => missingTargetPort(service, servicePort, pod));
  const missing = unnamed?.find((cause) => cause !== null);
  return [missing ?? otherFamily(object, slices, family, ready)];
}

function nothingSelected(
  object: string,
  namespace: string,
  selectorText: string,
  selector: readonly (readonly [string, string])[],
  pods: readonly Pod[],
): Cause {
  const base = { object, field: 'spec.selector' };
  const text = `selector ${selectorText} matches 0 pods in namespace ${namespace}`;
  const near = nearestPod(selector, pods);
  if (!near) return { ...base, text, fix: 'start pods with these labels, or correct the selector' };
  const { key, value, pod } = near;
  return {
    ...base,
    text: `${text}; closest: ${key}=${value} on pod ${nameOf(pod)}`,
    fix: `set spec.selector.${key} to ${value}, or label the pods ${selectorText}`,
  };
}

/** The pod that fails the selector by least: fewest labels differ, and the first that differs is most alike. */
function nearestPod(
  selector: readonly (readonly [string, string])[],
  pods: readonly Pod[],
): { key: string; value: string; pod: Pod } | null {
  let best: { key: string; value: string; pod: Pod; misses: number } | null = null;
  for (const pod of pods) {
    const labels = pod.metadata?.labels ?? {};
    const misses = selector.filter(([key, value]) => labels[key] !== value);
    const [key = '', wanted = ''] = misses[0] ?? [];
    const value = labels[key];
    if (value === undefined || closest(wanted, [value]) === null) continue;
    if (!best || misses.length < best.misses) best = { key, value, pod, misses: misses.length };
  }
  return best;
}

function isReady({ status }: Pod): boolean {
  return status?.conditions?.some(({ type, status: value }) => type === 'Ready' && value === 'True') ?? false;
}

function whyNotReady(pod: Pod): Cause {
  const object = `Pod ${nameOf(pod)}`;
  const { spec, status, metadata } = pod;
  if (metadata?.deletionTimestamp) {
    return {
      text: `${object} is terminating`,
      object,
      field: 'metadata.deletionTimestamp',
      fix: 'wait for its successor',
    };
  }
  for (const container of status?.containerStatuses ?? []) {
    const { waiting, terminated } = container.state ?? {};
    const stop = waiting?.reason ?? terminated?.reason;
    if (stop && stop !== 'ContainerCreating' && stop !== 'PodInitializing') {
      return {
        text: `${object}: container ${container.name} is ${stop}${waiting?.message ? `: ${waiting.message}` : ''}`,
        object,
        field: 'status.containerStatuses',
        fix: `kubectl -n ${metadata?.namespace} logs ${metadata?.name} -c ${container.name} --previous`,
      };
    }
  }
  const unready = status?.containerStatuses?.find(({ ready, state }) => !ready && state?.running)?.name;
  const at = spec?.containers.findIndex(({ name }) => name === unready) ?? -1;
  const probe = spec?.containers[at]?.readinessProbe;
  if (probe) {
    return {
      text: `${object} is not ready: readiness probe of container ${unready} (${probeText(probe)}) has not succeeded`,
      object,
      field: `spec.containers[${at}].readinessProbe`,
      fix: 'make the container answer the probe, or correct the probe',
    };
  }
  const gate = status?.conditions?.find(({ type, status: value }) => type === 'Ready' && value !== 'True');
  const said = gate?.message ?? gate?.reason;
  return {
    text: `${object} is not ready: phase ${status?.phase ?? 'unknown'}${said ? `, ${said}` : ''}`,
    object,
    field: 'status.conditions',
    fix: `kubectl -n ${metadata?.namespace} describe pod ${metadata?.name}`,
  };
}

function probeText(
  probe: NonNullable<NonNullable<Pod['spec']>['containers'][number]['readinessProbe']>,
): string {
  if (probe.httpGet) return `httpGet :${probe.httpGet.port}${probe.httpGet.path ?? '/'}`;
  if (probe.tcpSocket) return `tcpSocket :${probe.tcpSocket.port}`;
  if (probe.exec) return `exec ${probe.exec.command?.join(' ') ?? ''}`;
  return 'grpc';
}

function missingTargetPort(service: Service, port: ServicePort, pod: Pod): Cause | null {
  const { targetPort, protocol = 'TCP' } = port;
  if (typeof targetPort !== 'string') return null;
  const named = (pod.spec?.containers ?? []).flatMap(({ ports }) => ports ?? []);
  if (named.some((entry) => entry.name === targetPort && (entry.protocol ?? 'TCP') === protocol)) return null;
  const known = named.flatMap(({ name, containerPort }) => (name ? `${name} (${containerPort})` : []));
  const at = service.spec?.ports?.indexOf(port) ?? 0;
  return {
    text: `targetPort ${targetPort} is no ${protocol} port name in pod ${nameOf(pod)}: ${known.join(', ') || 'it names none'}`,
    object: `Service ${nameOf(service)}`,
    field: `spec.ports[${at}].targetPort`,
    fix: 'name a port of the containers, or give its number',
  };
}

function otherFamily(
  object: string,
  slices: readonly EndpointSlice[],
  family: IPFamily,
  ready: readonly Pod[],
): Cause {
  const others = slices.filter(({ addressType, endpoints }) => {
    return addressType !== familyName(family) && (endpoints?.length ?? 0) > 0;
  });
  if (others.length > 0 && !slices.some(({ addressType }) => addressType === familyName(family))) {
    const label = familyName(family);
    return {
      text: `pods of ${object} have no ${label} address`,
      object,
      field: 'spec.ipFamilies',
      fix: `connect over ${others[0]?.addressType}, or give the pods ${label} addresses`,
    };
  }
  return {
    text: `${ready.length} pods are ready, but no EndpointSlice lists them with this port yet`,
    object,
    field: 'EndpointSlice endpoints',
    fix: 'wait a moment; if it stays so, look whether the EndpointSlice controller runs',
  };
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
  const where = nodes.size > 0 ? `; there are on ${[...nodes].sort().join(', ')}` : '';
  return {
    text: `${field}: Local and no endpoint on ${map.node.name}${where}`,
    object: `Service ${nameOf(service)}`,
    field: `spec.${field}`,
    fix: internal
      ? `set it to Cluster, or run a pod of the Service on ${map.node.name}`
      : `enter by a node that has one, run a pod on ${map.node.name}, or set it to Cluster`,
  };
}

function sourceRange(service: Service, { source }: Packet): Cause {
  const ranges = service.spec?.loadBalancerSourceRanges ?? [];
  const broken = ranges.filter((range) => parseCidr(range.trim()) === null);
  return {
    text:
      `${source} is in none of the source ranges ${ranges.join(', ')}` +
      (broken.length > 0 ? ` (of which ${broken.join(', ')} cannot be read)` : ''),
    object: `Service ${nameOf(service)}`,
    field: 'spec.loadBalancerSourceRanges',
    fix: `add ${source}/${source.includes(':') ? 128 : 32}, or use the cluster IP from inside the cluster`,
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

/** To an address of a node: perhaps a node port was meant. */
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
        text: `port ${port} is no node port; Service ${nameOf(service)} has node port ${entry.nodePort} for it`,
        object: `Service ${nameOf(service)}`,
        field: 'spec.ports[].nodePort',
        fix: `connect to port ${entry.nodePort}`,
      },
    ];
  }
  return [];
}

function serviceOf(view: ExplainView, { namespace, name }: PortRef): Service | null {
  for (const service of view.services()) {
    if (service.metadata?.namespace === namespace && service.metadata.name === name) return service;
  }
  return null;
}
