import { type Pod, RESOURCES, type Service } from '../kube/types.ts';
import { addressAt, parseCidr } from '../lib/address.ts';
import {
  labels,
  ROW_NAMESPACES,
  ROW_PODS,
  ROW_PORTS,
  type RowPod,
  type RowScene,
} from '../policy/policy-rows.ts';
import {
  addOutsideRoutes,
  addressesOf,
  type CheckedCluster,
  createPod,
  hostRoute,
  type OutsideRoute,
  removeNamespace,
  removeOutsideRoutes,
  waitForPods,
} from './check-cluster.ts';
import type { Addresses, LocalPlace } from './fixture.ts';
import { serveProbes } from './policy-servers.ts';

const namespaceOf = (name: string) => `fairlead-check-${name}`;

/** The running pods and Services of the policy rows. */
export interface PolicyScene {
  /** Places of the rows by their names: "x/a", "node-1", "outside". */
  readonly places: ReadonlyMap<string, LocalPlace>;
  /** The cluster IPs of the Service of each pod. */
  readonly services: ReadonlyMap<string, Addresses>;
  readonly rows: RowScene;
  close(): Promise<void>;
}

/**
 * Creates the namespaces, pods and Services of the policy rows, servers in all places, and routes for the client outside.
 * In a cluster with one node all pods run on it, and there is no place "node-2".
 */
export async function setUpPolicyScene(cluster: CheckedCluster): Promise<PolicyScene> {
  const { client, families } = cluster;
  const nodes = new Map(cluster.nodes.slice(0, 2).map((node, index) => [`node-${index + 1}`, node]));
  const spaces = Object.keys(ROW_NAMESPACES);
  const routes: OutsideRoute[] = [];
  let closeServers = () => {};
  const removeAll = () => Promise.all(spaces.map((one) => removeNamespace(client, namespaceOf(one))));
  const close = async () => {
    closeServers();
    removeOutsideRoutes(cluster, routes);
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
    for (const one of ROW_PODS) await createPod(client, podOf(one, nodeOf(one)));
    const services = new Map<string, Addresses>();
    for (const one of ROW_PODS) {
      const { spec } = await client.create(RESOURCES.services, serviceOf(one, families.length > 1));
      services.set(one.key, addressesOf(cluster, spec?.clusterIPs ?? []));
    }
    const places = new Map<string, LocalPlace>();
    for (const space of spaces) {
      const count = ROW_PODS.filter(({ key }) => key.startsWith(`${space}/`)).length;
      for (const pod of await waitForPods(client, count, namespaceOf(space))) {
        const node = pod.spec?.nodeName ?? '';
        places.set(`${space}/${pod.metadata?.name}`, {
          name: `${namespaceOf(space)}/${pod.metadata?.name}`,
          kind: 'pod',
          node,
          controlGroup: cluster.controlGroup(node),
          netns: cluster.podNetns(node, pod.metadata?.uid ?? ''),
          addresses: addressesOf(
            cluster,
            (pod.status?.podIPs ?? []).flatMap(({ ip }) => ip ?? []),
          ),
        });
      }
    }
    for (const [name, { name: node, addresses }] of nodes) {
      places.set(name, {
        name: `node/${node}`,
        kind: 'node',
        node,
        controlGroup: cluster.controlGroup(node),
        netns: cluster.nodeNetns(node),
        addresses: addressesOf(cluster, addresses),
      });
    }
    const outside = addressesOf(cluster, cluster.outsideAddresses);
    places.set('outside', {
      name: 'outside',
      kind: 'outside',
      node: cluster.nodes[0]?.name ?? '',
      controlGroup: null,
      netns: cluster.outsideNetns,
      addresses: outside,
    });
    for (const place of places.values()) {
      if (place.kind !== 'pod') continue;
      const node = cluster.nodes.find(({ name }) => name === place.node);
      const via = addressesOf(cluster, node?.addresses ?? []);
      for (const family of families) {
        const [address, gateway] = [place.addresses[family], via[family]];
        if (address && gateway) routes.push({ destination: hostRoute(address), via: gateway });
      }
    }
    addOutsideRoutes(cluster, routes);
    closeServers = await serveProbes(places.values());
    const far = Object.values(places.get('z/c')?.addresses ?? {});
    return {
      places,
      services,
      rows: {
        namespace: namespaceOf,
        node: (name) => nodes.get(name)?.name ?? '',
        podNetworks: far.map(podNetwork),
        farNetworks: far.map(hostRoute),
        outside: Object.values(outside),
      },
      close,
    };
  } catch (error) {
    await close();
    throw error;
  }
}

/** Returns a network that contains the addresses of the pods of all nodes: at least as large as a cluster's. */
function podNetwork(address: string): string {
  const length = address.includes(':') ? 32 : 8;
  const cidr = parseCidr(`${address}/${length}`);
  return cidr ? `${addressAt(cidr, 0)}/${length}` : hostRoute(address);
}

function podOf({ key, labels: text, ports }: RowPod, nodeName: string): Pod {
  const [space = '', name = ''] = key.split('/');
  return {
    metadata: { name, namespace: namespaceOf(space), labels: { ...labels(text), 'check-pod': name } },
    spec: {
      nodeName,
      terminationGracePeriodSeconds: 0,
      automountServiceAccountToken: false,
      containers: [
        {
          name: 'main',
          image: 'host',
          command: ['sleep', 'infinity'],
          ports: ports.map((port) => {
            const [portName = '', number = '', protocol = 'TCP'] = port.split(/[=/]/);
            return { name: portName, protocol, containerPort: Number(number) };
          }),
        },
      ],
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
