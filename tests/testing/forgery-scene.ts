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

/** Pods, by name, with the policies of their labels. */
export const FORGERY_MANIFEST = [
  pod('near', 'node-1', 'role: server', 'fairlead, echo, --port=8080'),
  pod('far', 'node-2', 'role: server', 'fairlead, echo, --port=8080'),
  pod('friend', 'node-1', 'role: friend', 'sleep, infinity'),
  pod('far-friend', 'node-2', 'role: friend', 'sleep, infinity'),
  pod('foe', 'node-1', 'role: foe', 'sleep, infinity'),
  pod('walled', 'node-1', 'role: walled', 'sleep, infinity'),
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

/** Applies the manifest and returns its scene when the pods run. */
export async function forgeryScene(cluster: Cluster): Promise<ForgeryScene> {
  await cluster.apply([FORGERY_MANIFEST, tunnelService(cluster)].join('\n---'));
  await cluster.ask('wait', '--for=condition=Ready', 'pod', '--all', '--timeout=120s');
  return readScene(cluster);
}

/** A Service whose endpoint is the first node's tunnel: who may write EndpointSlices can make it. */
function tunnelService(cluster: Cluster): string {
  const [address = ''] = cluster.state().nodes[0]?.addresses ?? [];
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
  const { items: pods } = JSON.parse(await cluster.ask('get', 'pods', '-o', 'json')) as { items: Pod[] };
  const { items: nodes } = JSON.parse(await cluster.ask('get', 'nodes', '-o', 'json')) as {
    items: { metadata: { name: string }; spec: { podCIDRs: string[] } }[];
  };
  const places = clusterPlaces(cluster, pods);
  const state = cluster.state();
  const netnsOf = (name: string) => places.find((one) => one.name === name)?.netns ?? '';
  const station = (name: string) => {
    const found = pods.find(({ metadata }) => metadata?.name === name);
    const ips = (found?.status?.podIPs ?? []).flatMap(({ ip }) => ip ?? []);
    return stationOf(netnsOf(`pod default/${name}`), 'eth0', ips);
  };
  const nodeStation = (name: string): NodeStation => {
    const netns = netnsOf(name);
    using socket = openRouteSocket({ path: netns });
    const cidrs = (nodes.find(({ metadata }) => metadata.name === name)?.spec.podCIDRs ?? []).flatMap(
      (text) => parseCidr(text) ?? [],
    );
    const addresses = state.nodes.find((one) => one.name === name)?.addresses ?? [];
    const at = (number: number) =>
      Object.fromEntries(
        cidrs.map((cidr) => [cidr.family === 'ipv4' ? 4 : 6, addressAt(cidr, number)]),
      ) as Partial<Record<Family, string>>;
    return {
      ...stationOf(netns, 'eth0', addresses),
      name,
      gatewayMac: getLink(socket, 'fl0').mac ?? '',
      gateway: at(1),
      unused: at(200),
    };
  };
  const families: Family[] = state.ipFamily === 'dual' ? [4, 6] : state.ipFamily === 'ipv6' ? [6] : [4];
  return {
    families,
    walled: station('walled'),
    foe: station('foe'),
    friend: station('friend'),
    farFriend: station('far-friend'),
    near: station('near'),
    far: station('far'),
    outside: stationOf(netnsOf('outside'), 'eth0', state.outsideAddresses),
    nodes: [nodeStation('node-1'), nodeStation('node-2')],
  };
}
