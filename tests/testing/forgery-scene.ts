import { getLink, openRouteSocket } from '../../src/kernel/rtnetlink/links.ts';
import type { Pod } from '../../src/kube/types.ts';
import { addressAt, parseCidr } from '../../src/lib/address.ts';
import type { Cluster } from './cluster.ts';
import { clusterPlaces } from './cluster-places.ts';
import {
  type Family,
  type ForgeryScene,
  type NodeStation,
  stationOf,
  TUNNEL_NODE_PORT,
} from './forged-packets.ts';
import { pod } from './policy-traffic.ts';
import { IMAGE, type RealCluster } from './real-cluster.ts';

/** A pod of the scene: its name, its node, its role, and whether it serves. */
type PodText = (name: string, node: string, role: string, serves: boolean) => string;

/** Returns pods, by name, on two nodes, with the policies of their roles. */
const manifestOf = (text: PodText, [first, second]: readonly [string, string]): string =>
  [
    text('near', first, 'server', true),
    text('far', second, 'server', true),
    text('friend', first, 'friend', false),
    text('far-friend', second, 'friend', false),
    text('foe', first, 'foe', false),
    text('walled', first, 'walled', false),
    `
apiVersion: networking.k8s.io/v1
kind: NetworkPolicy
metadata: {name: servers}
spec:
  podSelector: {matchLabels: {role: server}}
  policyTypes: [Ingress]
  ingress: [{from: [{podSelector: {matchLabels: {role: friend}}}]}]`,
    `
apiVersion: networking.k8s.io/v1
kind: NetworkPolicy
metadata: {name: walled}
spec:
  podSelector: {matchLabels: {role: walled}}
  policyTypes: [Egress]
  egress: []`,
  ].join('\n---');

/** The pods and policies of a local cluster. */
export const FORGERY_MANIFEST = manifestOf(
  (name, node, role, serves) =>
    pod(name, node, `role: ${role}`, serves ? 'fairlead, echo, --port=8080' : 'sleep, infinity'),
  ['node-1', 'node-2'],
);

/** Applies the manifest and returns its scene when the pods run. */
export async function forgeryScene(cluster: Cluster): Promise<ForgeryScene> {
  const [address = ''] = cluster.state().nodes[0]?.addresses ?? [];
  await cluster.apply([FORGERY_MANIFEST, tunnelService(address)].join('\n---'));
  await cluster.ask('wait', '--for=condition=Ready', 'pod', '--all', '--timeout=120s');
  return readScene(cluster);
}

/** A Service whose endpoint is the first node's tunnel: who may write EndpointSlices can make it. */
function tunnelService(address: string): string {
  const family = address.includes(':') ? 'IPv6' : 'IPv4';
  return `
apiVersion: v1
kind: Service
metadata: {name: tunnel}
spec:
  type: NodePort
  ipFamilies: [${family}]
  ports: [{protocol: UDP, port: 4789, nodePort: ${TUNNEL_NODE_PORT}}]
---
apiVersion: discovery.k8s.io/v1
kind: EndpointSlice
metadata: {name: tunnel, labels: {kubernetes.io/service-name: tunnel}}
addressType: ${family}
ports: [{protocol: UDP, port: 4789}]
endpoints: [{addresses: ["${address}"], conditions: {ready: true}}]`;
}

/** Returns the scene of pods that run. */
export async function readScene(cluster: Cluster): Promise<ForgeryScene> {
  const pods = await listed<Pod>(cluster, 'pods');
  const places = clusterPlaces(cluster, pods);
  const netnsOf = (name: string) => places.find((one) => one.name === name)?.netns ?? '';
  const state = cluster.state();
  return sceneOf({
    pods,
    nodes: await listed<Node>(cluster, 'nodes'),
    names: ['node-1', 'node-2'],
    families: state.ipFamily === 'dual' ? [4, 6] : state.ipFamily === 'ipv6' ? [6] : [4],
    netnsOfPod: (name) => netnsOf(`pod default/${name}`),
    prefix: '',
    netnsOf,
    addressesOf: (node) => state.nodes.find(({ name }) => name === node)?.addresses ?? [],
    outsideAddresses: state.outsideAddresses,
  });
}

/** Applies the manifest to a cluster of real kubelets, whose pods containerd makes, and returns its scene when they run. */
export async function realForgeryScene(
  cluster: RealCluster,
): Promise<{ readonly scene: ForgeryScene; readonly remove: () => Promise<void> }> {
  const [first = '', second = ''] = cluster.nodes;
  const text: PodText = (name, node, role, serves) => realPod(name, node, `role: ${role}`, serves);
  const manifest = [manifestOf(text, [first, second]), tunnelService(cluster.nodeAddress(first))].join(
    '\n---',
  );
  await cluster.apply(manifest);
  const ours = ['pod', '-l', 'forgery=', '--for=condition=Ready', '--timeout=120s'];
  await cluster.ask('wait', ...ours);
  const pods = (await listed<Pod>(cluster, 'pods')).filter(
    ({ metadata }) => metadata?.labels?.['forgery'] === '',
  );
  const netns = new Map<string, string>();
  for (const pod of pods) netns.set(pod.metadata?.name ?? '', await cluster.netnsOfPod(pod));
  const scene = sceneOf({
    pods,
    nodes: await listed<Node>(cluster, 'nodes'),
    names: [first, second],
    families: [4],
    netnsOfPod: (name) => netns.get(name) ?? '',
    prefix: PREFIX,
    netnsOf: (name) => cluster.netnsOf(name),
    addressesOf: (node) => [cluster.nodeAddress(node)],
    outsideAddresses: [cluster.addressOf(2)],
  });
  return { scene, remove: async () => void (await cluster.remove(manifest)) };
}

/** The cluster has other pods. */
const PREFIX = 'forgery-';

const realPod = (name: string, node: string, labels: string, serves: boolean) => `
apiVersion: v1
kind: Pod
metadata: {name: ${PREFIX}${name}, labels: {forgery: "", ${labels}}}
spec:
  nodeSelector: {kubernetes.io/hostname: ${node}}
  terminationGracePeriodSeconds: 0
  containers:
    - name: main
      image: ${IMAGE}
      ${serves ? 'args: [echo]' : 'command: [/opt/fairlead/node, -e, "setInterval(() => {}, 1e9)"]'}`;

interface Node {
  readonly metadata: { readonly name: string };
  readonly spec: { readonly podCIDRs: readonly string[] };
}

async function listed<T>({ ask }: Pick<Cluster, 'ask'>, kind: string): Promise<T[]> {
  return (JSON.parse(await ask('get', kind, '-o', 'json')) as { readonly items: T[] }).items;
}

/** A cluster's pods and nodes, and the files of their network namespaces. */
interface SceneParts {
  readonly pods: readonly Pod[];
  readonly nodes: readonly Node[];
  readonly names: readonly [string, string];
  readonly families: readonly Family[];
  readonly netnsOfPod: (name: string) => string;
  /** Of the pods' names. */
  readonly prefix: string;
  /** Of a node, or "outside". */
  readonly netnsOf: (name: string) => string;
  readonly addressesOf: (node: string) => readonly string[];
  readonly outsideAddresses: readonly string[];
}

function sceneOf(parts: SceneParts): ForgeryScene {
  const station = (role: string) => {
    const name = `${parts.prefix}${role}`;
    const found = parts.pods.find(({ metadata }) => metadata?.name === name);
    const ips = (found?.status?.podIPs ?? []).flatMap(({ ip }) => ip ?? []);
    return stationOf(parts.netnsOfPod(name), 'eth0', ips);
  };
  const nodeStation = (name: string): NodeStation => {
    const netns = parts.netnsOf(name);
    using socket = openRouteSocket({ path: netns });
    const node = parts.nodes.find(({ metadata }) => metadata.name === name);
    const cidrs = (node?.spec.podCIDRs ?? []).flatMap((text) => parseCidr(text) ?? []);
    const at = (number: number) =>
      Object.fromEntries(
        cidrs.map((cidr) => [cidr.family === 'ipv4' ? 4 : 6, addressAt(cidr, number)]),
      ) as Partial<Record<Family, string>>;
    return {
      ...stationOf(netns, 'eth0', parts.addressesOf(name)),
      name,
      gatewayMac: getLink(socket, 'fl0').mac ?? '',
      gateway: at(1),
      unused: at(200),
    };
  };
  return {
    families: parts.families,
    walled: station('walled'),
    foe: station('foe'),
    friend: station('friend'),
    farFriend: station('far-friend'),
    near: station('near'),
    far: station('far'),
    outside: stationOf(parts.netnsOf('outside'), 'eth0', parts.outsideAddresses),
    nodes: [nodeStation(parts.names[0]), nodeStation(parts.names[1])],
  };
}
