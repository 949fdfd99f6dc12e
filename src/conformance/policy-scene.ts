import { type Pod, RESOURCES, type Service } from '../kube/types.ts';
import { addressAt, type IPFamily, parseCidr } from '../lib/address.ts';
import { labels, type RowPod, type RowScene } from '../policy/policy-row.ts';
import { ROW_NAMESPACES, ROW_PODS, ROW_PORTS } from '../policy/policy-rows.ts';
import {
  addressesOf,
  CHECK_NAMESPACE,
  type CheckedCluster,
  type CheckedServices,
  createPod,
  hostRoute,
  localServices,
  type OutsideRoute,
  removeNamespace,
  waitForPods,
} from './check-cluster.ts';
import type { Addresses, LocalPlace, Place } from './fixture.ts';
import { serveProbes } from './policy-servers.ts';

const namespaceOf = (name: string) => `${CHECK_NAMESPACE}-${name}`;
/** The namespaces of the check's network policies. */
export const POLICY_NAMESPACES: readonly string[] = Object.keys(ROW_NAMESPACES).map(namespaceOf);
/** Addresses for documentation (RFC 5737, RFC 3849). */
const NO_HOST: Readonly<Record<IPFamily, string>> = { ipv4: '192.0.2.9', ipv6: '2001:db8::9' };

/** A cluster whose network policies are checked. */
export interface CheckedPolicies<P extends Place>
  extends Pick<
    CheckedServices<P>,
    'client' | 'families' | 'nodes' | 'outsideAddresses' | 'place' | 'addRoutes' | 'removeRoutes' | 'signal'
  > {
  /** The containers of a pod, the first of which lists `ports`, and what else its specification has. */
  pod(ports: readonly ContainerPort[]): Pick<PodSpec, 'containers' | 'securityContext'>;
  /** Serves the ports of the rows in places whose pods do not; the result ends it. */
  serve(places: Iterable<P>): Promise<() => void>;
  /** The name with which the server of a place answers. */
  serverName(place: P): string;
}

type PodSpec = NonNullable<Pod['spec']>;
type ContainerPort = NonNullable<PodSpec['containers'][number]['ports']>[number];

/** Returns how the network policies of a local cluster are checked. */
export const localPolicies = (cluster: CheckedCluster): CheckedPolicies<LocalPlace> => ({
  ...localServices(cluster),
  pod: (ports) => ({
    containers: [{ name: 'main', image: 'host', command: ['sleep', 'infinity'], ports: [...ports] }],
  }),
  serve: serveProbes,
  serverName: ({ name }) => name,
});

/** The running pods and Services of the policy rows. */
export interface PolicyScene<P extends Place> {
  /** Places of the rows by their names: "x/a", "node-1", "outside". */
  readonly places: ReadonlyMap<string, P>;
  /** The cluster IPs of the Service of each pod. */
  readonly services: ReadonlyMap<string, Addresses>;
  readonly rows: RowScene;
  /** As of CheckedPolicies. */
  serverName(place: P): string;
  close(): Promise<void>;
}

/**
 * Creates the namespaces, pods and Services of the policy rows, servers in all places, and routes for the client outside.
 * In a cluster with one node all pods run on it, and there is no place "node-2"; without a client outside, no "outside".
 */
export async function setUpPolicyScene<P extends Place>(
  cluster: CheckedPolicies<P>,
): Promise<PolicyScene<P>> {
  const { client, families } = cluster;
  const nodes = new Map(cluster.nodes.slice(0, 2).map((node, index) => [`node-${index + 1}`, node]));
  const routes: OutsideRoute[] = [];
  let closeServers = () => {};
  const removeAll = () => Promise.all(POLICY_NAMESPACES.map((one) => removeNamespace(client, one)));
  const close = async () => {
    closeServers();
    cluster.removeRoutes(routes);
    await removeAll();
  };
  await removeAll();
  try {
    for (const [name, text] of Object.entries(ROW_NAMESPACES)) {
      await client.create(RESOURCES.namespaces, {
        metadata: { name: namespaceOf(name), labels: labels(text) },
      });
    }
    const nodeOf = ({ node }: RowPod) => (nodes.get(node) ?? cluster.nodes[0])?.name ?? '';
    for (const one of ROW_PODS) await createPod(client, podOf(cluster, one, nodeOf(one)));
    const services = new Map<string, Addresses>();
    for (const one of ROW_PODS) {
      const { spec } = await client.create(RESOURCES.services, serviceOf(one, families.length > 1));
      services.set(one.key, addressesOf(cluster, spec?.clusterIPs ?? []));
    }
    const places = await placesOf(cluster, nodes);
    for (const place of places.values()) {
      if (place.kind !== 'pod') continue;
      const node = cluster.nodes.find(({ name }) => name === place.node);
      const via = addressesOf(cluster, node?.addresses ?? []);
      for (const family of families) {
        const [address, gateway] = [place.addresses[family], via[family]];
        if (address && gateway) routes.push({ destination: hostRoute(address), via: gateway });
      }
    }
    cluster.addRoutes(routes);
    closeServers = await cluster.serve(places.values());
    const far = Object.values(places.get('z/c')?.addresses ?? {});
    const outside = addressesOf(cluster, cluster.outsideAddresses);
    return {
      places,
      services,
      rows: {
        namespace: namespaceOf,
        node: (name) => nodes.get(name)?.name ?? '',
        podNetworks: far.map(podNetwork),
        farNetworks: far.map(hostRoute),
        // A list without addresses would allow all.
        outside: places.has('outside') ? Object.values(outside) : families.map((family) => NO_HOST[family]),
      },
      serverName: cluster.serverName,
      close,
    };
  } catch (error) {
    await close();
    throw error;
  }
}

/** Waits for the pods. Returns the places of the rows. */
async function placesOf<P extends Place>(
  cluster: CheckedPolicies<P>,
  nodes: ReadonlyMap<string, CheckedPolicies<P>['nodes'][number]>,
): Promise<Map<string, P>> {
  const { client, signal } = cluster;
  const places = new Map<string, P>();
  for (const space of Object.keys(ROW_NAMESPACES)) {
    const count = ROW_PODS.filter(({ key }) => key.startsWith(`${space}/`)).length;
    for (const { metadata, spec, status } of await waitForPods(client, count, namespaceOf(space), signal)) {
      const place: Place = {
        name: `${namespaceOf(space)}/${metadata?.name}`,
        kind: 'pod',
        node: spec?.nodeName ?? '',
        addresses: addressesOf(
          cluster,
          (status?.podIPs ?? []).flatMap(({ ip }) => ip ?? []),
        ),
      };
      places.set(`${space}/${metadata?.name}`, cluster.place(place, metadata?.uid ?? ''));
    }
  }
  for (const [name, { name: node, addresses }] of nodes) {
    const ofNode = addressesOf(cluster, addresses);
    places.set(name, cluster.place({ name: `node/${node}`, kind: 'node', node, addresses: ofNode }, null));
  }
  if (cluster.outsideAddresses.length > 0) {
    const addresses = addressesOf(cluster, cluster.outsideAddresses);
    const node = cluster.nodes[0]?.name ?? '';
    places.set('outside', cluster.place({ name: 'outside', kind: 'outside', node, addresses }, null));
  }
  return places;
}

/** Returns a network that contains the addresses of the pods of all nodes: at least as large as a cluster's. */
function podNetwork(address: string): string {
  const length = address.includes(':') ? 32 : 8;
  const cidr = parseCidr(`${address}/${length}`);
  return cidr ? `${addressAt(cidr, 0)}/${length}` : hostRoute(address);
}

function podOf<P extends Place>(
  cluster: CheckedPolicies<P>,
  { key, labels: text, ports }: RowPod,
  nodeName: string,
): Pod {
  const [space = '', name = ''] = key.split('/');
  const named = ports.map((port) => {
    const [portName = '', number = '', protocol = 'TCP'] = port.split(/[=/]/);
    return { name: portName, protocol, containerPort: Number(number) };
  });
  return {
    metadata: { name, namespace: namespaceOf(space), labels: { ...labels(text), 'check-pod': name } },
    spec: {
      nodeName,
      hostname: `${space}-${name}`,
      terminationGracePeriodSeconds: 0,
      automountServiceAccountToken: false,
      ...cluster.pod(named),
    },
  };
}

function serviceOf({ key }: RowPod, isDual: boolean): Service {
  const [space = '', name = ''] = key.split('/');
  return {
    metadata: { name, namespace: namespaceOf(space) },
    spec: {
      ipFamilyPolicy: isDual ? 'RequireDualStack' : 'SingleStack',
      selector: { 'check-pod': name },
      ports: (['TCP', 'UDP'] as const).flatMap((protocol) =>
        ROW_PORTS[protocol].map((port) => ({ name: `${protocol.toLowerCase()}-${port}`, port, protocol })),
      ),
    },
  } as Service;
}
