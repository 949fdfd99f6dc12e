import { endpointKey } from '../endpoint-key.ts';
import type { NodeView, Packet, Protocol, ServiceMap } from '../model.ts';
import type { EndpointSliceObject, ServiceObject, SliceEndpoint } from '../objects.ts';
import { createServiceTable, type ServiceTable } from '../service-table.ts';
import { nastyService, nastySlice } from './nasty-objects.ts';
import { createRandom, type Random } from './random.ts';
import { randomEndpoint, randomNode, randomService, randomSlice } from './random-objects.ts';
import { testNode } from './test-node.ts';

/** One change to the objects of a cluster, as a watch or the agent would report it. */
export type Edit =
  | { readonly kind: 'set-service'; readonly object: ServiceObject }
  | { readonly kind: 'delete-service'; readonly namespace: string; readonly name: string }
  | { readonly kind: 'set-slice'; readonly object: EndpointSliceObject }
  | { readonly kind: 'delete-slice'; readonly namespace: string; readonly name: string }
  | { readonly kind: 'set-node'; readonly node: NodeView }
  | { readonly kind: 'set-ejected'; readonly ejected: ReadonlySet<string> };

/** A cluster that changes at random, and always the same way for the same seed. */
export interface RandomCluster {
  readonly node: NodeView;
  readonly services: ReadonlyMap<string, ServiceObject>;
  readonly slices: ReadonlyMap<string, EndpointSliceObject>;
  readonly ejected: ReadonlySet<string>;
  /** Makes and returns the next edit, already applied to the cluster's objects. */
  edit(): Edit;
  /**
   * Returns a packet that is likely to match a frontend of the map or one of its guard rails, or to
   * narrowly miss one.
   */
  packet(map: ServiceMap): Packet;
}

export interface RandomClusterOptions {
  /** Services at the start; default 20. */
  readonly services?: number;
  /** Whether edits include objects that no API server would accept; default true. */
  readonly nasty?: boolean;
  /** Whether edits change the node's settings; default true. Otherwise the view stays that of `node`. */
  readonly nodeEdits?: boolean;
  readonly node?: NodeView;
  /** The protocols to use; default all. */
  readonly protocols?: readonly Protocol[];
  /** IPv4 alone, or both. Default both. */
  readonly families?: 'ipv4' | 'dual';
}

const PROTOCOLS: readonly Protocol[] = ['TCP', 'TCP', 'TCP', 'UDP', 'UDP', 'SCTP'];
const NAMESPACES = ['default', 'shop'];

/**
 * Makes a cluster of Services of every kind and policy with their slices. Addresses and ports come from
 * small ranges, so that Services conflict, share and pass on addresses. Cluster IPs: 10.96.0.0/16 and
 * fd00:96::/112; pods: 10.244.NODE.0/24 and fd00:244:0:NODE::/64; load balancers and external IPs:
 * 203.0.113.0/24 and 2001:db8::/64.
 */
export function randomCluster(seed: number, options: RandomClusterOptions = {}): RandomCluster {
  const random = createRandom(seed);
  const protocols = options.protocols ?? PROTOCOLS;
  const dual = options.families !== 'ipv4';
  const services = new Map<string, ServiceObject>();
  const slices = new Map<string, EndpointSliceObject>();
  let node = options.node ?? testNode();
  let ejected: ReadonlySet<string> = new Set();
  let born = 0;

  const setService = (object: ServiceObject): Edit => {
    services.set(keyOf(object), object);
    return { kind: 'set-service', object };
  };
  const setSlice = (object: EndpointSliceObject): Edit => {
    slices.set(keyOf(object), object);
    return { kind: 'set-slice', object };
  };
  const serviceNames = () => [...services.values()].map(nameOf);
  const someService = () => random.pick(serviceNames());
  const newService = () => {
    const identity = { namespace: random.pick(NAMESPACES), name: `svc-${random.integer(30)}` };
    return randomService(random, identity, ++born, protocols, dual);
  };
  const newSlice = () => {
    const { namespace, name } = services.size > 0 ? someService() : { namespace: 'default', name: 'svc-0' };
    const family = dual && random.chance(0.4) ? 'ipv6' : 'ipv4';
    return randomSlice(random, namespace, name, family, protocols, services.get(`${namespace}/${name}`));
  };

  const edits: readonly [weight: number, make: () => Edit | null][] = [
    [6, () => setService(newService())],
    [12, () => setSlice(newSlice())],
    [10, () => mutateSlice(random, slices, setSlice)],
    [
      3,
      () => {
        if (services.size < 2) return null;
        const { namespace, name } = someService();
        services.delete(`${namespace}/${name}`);
        return { kind: 'delete-service', namespace, name };
      },
    ],
    [
      3,
      () => {
        if (slices.size === 0) return null;
        const { namespace, name } = nameOf(random.pick([...slices.values()]));
        slices.delete(`${namespace}/${name}`);
        return { kind: 'delete-slice', namespace, name };
      },
    ],
    [
      options.nodeEdits === false ? 0 : 1,
      () => {
        node = randomNode(random);
        return { kind: 'set-node', node };
      },
    ],
    [
      2,
      () => {
        ejected = randomEjected(random, slices.values());
        return { kind: 'set-ejected', ejected };
      },
    ],
    [options.nasty === false ? 0 : 3, () => setService(nastyService(random, random.pick(NAMESPACES)))],
    [options.nasty === false ? 0 : 3, () => setSlice(nastySlice(random, random.pick(NAMESPACES)))],
  ];
  const total = edits.reduce((sum, [weight]) => sum + weight, 0);

  for (let i = 0; i < (options.services ?? 20); i++) {
    setService(newService());
    setSlice(newSlice());
    setSlice(newSlice());
  }
  return {
    get node() {
      return node;
    },
    services,
    slices,
    get ejected() {
      return ejected;
    },
    edit() {
      for (;;) {
        let at = random.integer(total);
        const entry = edits.find(([weight]) => {
          at -= weight;
          return at < 0;
        });
        const edit = entry?.[1]();
        if (edit) return edit;
      }
    },
    packet: (map) => randomPacket(random, map, dual),
  };
}

/** Returns a table with the cluster's present objects, not yet committed. */
export function serviceTableOf(cluster: RandomCluster): ServiceTable {
  const table = createServiceTable(cluster.node);
  for (const service of cluster.services.values()) table.setService(service);
  for (const slice of cluster.slices.values()) table.setSlice(slice);
  return table;
}

/** Applies an edit to a table, as the agent does with watched changes. */
export function applyEdit(table: ServiceTable, edit: Edit): void {
  switch (edit.kind) {
    case 'set-service':
      table.setService(edit.object);
      return;
    case 'delete-service':
      table.deleteService(edit.namespace, edit.name);
      return;
    case 'set-slice':
      table.setSlice(edit.object);
      return;
    case 'delete-slice':
      table.deleteSlice(edit.namespace, edit.name);
      return;
    case 'set-node':
      table.setNode(edit.node);
      return;
    case 'set-ejected':
      table.setEjected(edit.ejected);
      return;
  }
}

/** Adds, removes or changes an endpoint, the most frequent change in a running cluster. */
function mutateSlice(
  random: Random,
  slices: ReadonlyMap<string, EndpointSliceObject>,
  setSlice: (slice: EndpointSliceObject) => Edit,
): Edit | null {
  if (slices.size === 0) return null;
  const slice = random.pick([...slices.values()]);
  if (!Array.isArray(slice.endpoints)) return null;
  const endpoints: SliceEndpoint[] = [...slice.endpoints];
  const family = slice.addressType === 'IPv6' ? 'ipv6' : 'ipv4';
  const at = random.integer(Math.max(1, endpoints.length));
  const change = random.pick(['add', 'remove', 'replace']);
  if (change === 'add') endpoints.push(randomEndpoint(random, family, 'none'));
  else if (change === 'remove') endpoints.splice(at, 1);
  else if (endpoints.length > 0) endpoints[at] = randomEndpoint(random, family, 'none');
  return setSlice({ ...slice, endpoints });
}

function randomEjected(random: Random, slices: Iterable<EndpointSliceObject>): ReadonlySet<string> {
  const ejected = new Set<string>();
  for (const { endpoints, ports } of slices) {
    if (!Array.isArray(endpoints) || !Array.isArray(ports)) continue;
    for (const endpoint of endpoints as readonly (SliceEndpoint | null)[]) {
      const address: unknown = Array.isArray(endpoint?.addresses) ? endpoint.addresses[0] : null;
      const port = ports[0]?.port;
      if (typeof address !== 'string' || typeof port !== 'number' || !random.chance(0.1)) continue;
      ejected.add(endpointKey(address, port, random.pick(PROTOCOLS)));
    }
  }
  return ejected;
}

function randomPacket(random: Random, map: ServiceMap, dual: boolean): Packet {
  const frontends = [...map.frontends.values()];
  const frontend = frontends.length > 0 && random.chance(0.9) ? random.pick(frontends) : null;
  const family = frontend?.family ?? (dual && random.chance(0.4) ? 'ipv6' : 'ipv4');
  const sourceClass = random.pick(['pod', 'node', 'external'] as const);
  const nodeAddress = map.node[family] ?? (family === 'ipv4' ? '192.168.0.1' : 'fd00:168::1');
  const pods = family === 'ipv4' ? '10.244.1.' : 'fd00:244:0:1::';
  const outside = family === 'ipv4' ? ['198.51.100.7', '203.0.113.200'] : ['2001:db8:1::7', '2001:db8:ff::1'];
  const unallocated = family === 'ipv4' ? '10.96.200.1' : 'fd00:96::ff01';
  return {
    source: {
      pod: `${pods}${(random.integer(12) + 2).toString(family === 'ipv4' ? 10 : 16)}`,
      node: nodeAddress,
      external: random.pick(outside),
    }[sourceClass],
    sourceClass,
    destination: frontend ? (frontend.address ?? nodeAddress) : random.pick([unallocated, nodeAddress]),
    port: (frontend?.port ?? 80) + (random.chance(0.1) ? 1 : 0),
    protocol: frontend?.protocol ?? random.pick(PROTOCOLS),
  };
}

function nameOf(object: ServiceObject | EndpointSliceObject): { namespace: string; name: string } {
  const { namespace, name } = object.metadata ?? {};
  return { namespace: String(namespace ?? ''), name: String(name ?? '') };
}

function keyOf(object: ServiceObject | EndpointSliceObject): string {
  const { namespace, name } = nameOf(object);
  return `${namespace}/${name}`;
}
