import { type ReadGateway, readGateway } from '../egress/gateway-reader.ts';
import {
  byPrecedence,
  candidateNodes,
  type GatewayNode,
  selecting,
  selectsPod,
} from '../egress/gateway-table.ts';
import type { EgressPod, Gateway, SelectingGateway } from '../egress/model.ts';
import type { EgressGatewayObject } from '../kube/egress-gateway.ts';
import type { Node, Pod } from '../kube/types.ts';
import { type Cidr, cidrContains, hostCidr, parseCidr } from '../lib/address.ts';
import type { WantedAddress } from '../loadbalancer/candidates.ts';
import type { PeerNode } from '../network/peer-node.ts';

/** Further gateways are refused: each is a rule that every packet of a selected pod passes. */
export const MAX_GATEWAYS = 256;

/** What an agent computes from the cluster's objects. */
export interface EgressState {
  /** In the order of precedence. */
  readonly gateways: readonly (ReadGateway & { readonly object: EgressGatewayObject })[];
  readonly selecting: readonly SelectingGateway[];
  readonly cluster: readonly Cidr[];
  readonly podNetworks: readonly Cidr[];
  /** The addresses to have, with the nodes that may. */
  readonly wanted: ReadonlyMap<string, WantedAddress>;
  /** All nodes that may have an address. */
  readonly candidates: ReadonlySet<string>;
  /** The names of all nodes. */
  readonly nodes: readonly string[];
  /** Returns whether a gateway's selectors match a pod, also one in its node's network. */
  selects(gateway: Gateway, pod: Pod): boolean;
}

export interface EgressInputs {
  readonly objects: readonly EgressGatewayObject[];
  readonly pods: Iterable<EgressPod>;
  readonly labelsOf: (namespace: string) => Readonly<Record<string, string>> | null;
  readonly nodes: readonly Node[];
  readonly peers: readonly PeerNode[];
  readonly serviceNetworks: readonly Cidr[];
}

export function egressState(inputs: EgressInputs): EgressState {
  const { nodes, peers } = inputs;
  const podNetworks = peers.flatMap(({ podCidrs }) => podCidrs.flatMap((text) => parseCidr(text) ?? []));
  const nodeAddresses = peers.flatMap(({ name, addresses }) => addresses.map((one) => [one, name] as const));
  const cluster = [
    ...podNetworks,
    ...inputs.serviceNetworks,
    ...nodeAddresses.flatMap(([address]) => hostCidr(address) ?? []),
  ];
  const owners = new Map(nodeAddresses);
  const gateways = inputs.objects
    .map((object) => ({ object, ...refusing(readGateway(object), owners, cluster) }))
    .sort((a, b) => byPrecedence(a.gateway, b.gateway))
    .map((one, i) => (i < MAX_GATEWAYS ? one : { ...one, ...without(one.gateway, TOO_MANY) }));
  const pods = [...inputs.pods];
  const gatewayNodes = nodes.map(gatewayNode);
  const wanted = new Map<string, WantedAddress>();
  const candidates = new Set<string>();
  for (const { gateway } of gateways) {
    const able = candidateNodes(gateway, gatewayNodes);
    for (const name of able) candidates.add(name);
    for (const address of gateway.addresses) {
      const other = wanted.get(address)?.nodes;
      wanted.set(address, { services: [], nodes: other ? other.intersection(able) : able });
    }
  }
  return {
    gateways,
    selecting: gateways
      .slice(0, MAX_GATEWAYS)
      .map(({ gateway }) => selecting(gateway, pods, inputs.labelsOf)),
    ...{ cluster, podNetworks, wanted, candidates },
    nodes: gatewayNodes.map(({ name }) => name),
    selects: (gateway, { metadata, status }) =>
      status?.phase !== 'Succeeded' &&
      status?.phase !== 'Failed' &&
      selectsPod(
        gateway,
        {
          namespace: metadata?.namespace ?? '',
          labels: (metadata?.labels ?? {}) as Record<string, string>,
        },
        inputs.labelsOf,
      ),
  };
}

const TOO_MANY = `there are more than ${MAX_GATEWAYS} older EgressGateways`;

const without = (gateway: Gateway, problem: string): ReadGateway => ({
  gateway: { ...gateway, addresses: [] },
  problem,
});

/** Refuses the addresses that something else in the cluster has. */
function refusing(
  read: ReadGateway,
  owners: ReadonlyMap<string, string>,
  cluster: readonly Cidr[],
): ReadGateway {
  const taken = read.gateway.addresses.find((address) => cluster.some((one) => cidrContains(one, address)));
  if (taken === undefined) return read;
  const owner = owners.get(taken);
  const what = owner === undefined ? 'is in a network of pods or Services' : `is an address of node ${owner}`;
  return without(read.gateway, `spec.addresses: ${taken} ${what}`);
}

/** Reads a Node as gateways select it. */
export function gatewayNode({ metadata, spec, status }: Node): GatewayNode {
  return {
    name: metadata?.name ?? '',
    labels: (metadata?.labels ?? {}) as Record<string, string>,
    isReady:
      metadata?.deletionTimestamp === undefined &&
      status?.conditions?.find(({ type }) => type === 'Ready')?.status === 'True',
    isCordoned: spec?.unschedulable === true,
  };
}

/** Returns the state with the sources that pass a node: its own pods', and, where it may have the address, all. */
export function selectingAt(state: EgressState, node: string, own: ReadonlySet<string>): SelectingGateway[] {
  return state.selecting.map((one, i) => {
    const addresses = state.gateways[i]?.gateway.addresses ?? [];
    const isCandidate = addresses.some((address) => state.wanted.get(address)?.nodes?.has(node));
    if (isCandidate) return one;
    return { ...one, sources: new Map([...one.sources].filter(([source]) => own.has(source))) };
  });
}
