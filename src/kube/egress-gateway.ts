import type { KubeObject, LabelSelector, Resource } from './types.ts';

/** Pods of which connections to hosts outside the cluster leave by one node, from an address of their own. */
export interface EgressGatewayObject extends KubeObject {
  spec?: {
    readonly namespaceSelector?: LabelSelector;
    readonly podSelector?: LabelSelector;
    readonly destinationCIDRs?: readonly string[];
    readonly exceptCIDRs?: readonly string[];
    readonly addresses?: readonly string[];
    readonly nodeSelector?: LabelSelector;
  };
  status?: EgressGatewayStatus;
}

export interface EgressGatewayCondition {
  readonly type: string;
  readonly status: 'True' | 'False' | 'Unknown';
  readonly reason: string;
  readonly message: string;
  readonly lastTransitionTime: string;
  readonly observedGeneration?: number;
}

/** An address, the node that has it, and since when; without a node, connections from it wait. */
export interface EgressGatewayAddress {
  readonly address: string;
  readonly node?: string;
  readonly since?: string;
}

export interface EgressGatewayStatus {
  readonly observedGeneration?: number;
  /** The nodes that have the addresses, separated by commas. */
  readonly nodes?: string;
  readonly pods?: number;
  readonly addresses?: readonly EgressGatewayAddress[];
  /** By address: the most ports that connections to one destination use, of about 64,000. Each node writes its own. */
  readonly portsInUse?: Readonly<Record<string, number>>;
  readonly conditions?: readonly EgressGatewayCondition[];
}

const GROUP = 'fairlead.dev';

export const EGRESS_GATEWAYS: Resource<EgressGatewayObject> = {
  group: GROUP,
  version: 'v1alpha1',
  plural: 'egressgateways',
  kind: 'EgressGateway',
  namespaced: false,
};

export const EGRESS_GATEWAY_DEFINITION = `${EGRESS_GATEWAYS.plural}.${GROUP}`;

/** More would make rules that every packet of a selected pod passes. */
export const MAX_NETWORKS = 256;
export const MAX_ADDRESSES = 16;

const labelSelector = (description: string) => ({
  type: 'object',
  description,
  properties: {
    matchLabels: { type: 'object', additionalProperties: { type: 'string' } },
    matchExpressions: {
      type: 'array',
      maxItems: 32,
      items: {
        type: 'object',
        required: ['key', 'operator'],
        properties: {
          key: { type: 'string' },
          operator: { type: 'string', enum: ['In', 'NotIn', 'Exists', 'DoesNotExist'] },
          values: { type: 'array', maxItems: 256, items: { type: 'string' } },
        },
      },
    },
  },
});

const networks = (description: string) => ({
  type: 'array',
  description,
  maxItems: MAX_NETWORKS,
  items: { type: 'string', maxLength: 49 },
  'x-kubernetes-list-type': 'set',
  'x-kubernetes-validations': [
    { rule: 'self.all(one, isCIDR(one))', message: 'each must be a network such as 203.0.113.0/24' },
  ],
});

const SPEC = {
  type: 'object',
  required: ['addresses'],
  properties: {
    namespaceSelector: labelSelector('Of the namespaces whose pods are selected. Default: all namespaces.'),
    podSelector: labelSelector(
      'Of the pods in these namespaces. Default: all pods. Pods of the node network are never selected.',
    ),
    destinationCIDRs: networks(
      'The destinations. Default: every address outside the cluster. Pods, Services and nodes are never included.',
    ),
    exceptCIDRs: networks('Destinations that are not included.'),
    addresses: {
      type: 'array',
      description:
        'The source addresses of the connections, of IPv4, IPv6 or both, in the network of the gateway nodes. A pod keeps one of each family. No node and no load balancer may have them.',
      minItems: 1,
      maxItems: MAX_ADDRESSES,
      items: { type: 'string', maxLength: 39 },
      'x-kubernetes-list-type': 'set',
      'x-kubernetes-validations': [
        { rule: 'self.all(one, isIP(one))', message: 'each must be an IP address' },
      ],
    },
    nodeSelector: labelSelector(
      'Of the nodes that may have the addresses, by their labels. Default: all nodes.',
    ),
  },
};

const STATUS = {
  type: 'object',
  properties: {
    observedGeneration: { type: 'integer', format: 'int64' },
    nodes: { type: 'string', description: 'The nodes that have the addresses.' },
    pods: { type: 'integer', description: 'The pods that are selected.' },
    addresses: {
      type: 'array',
      'x-kubernetes-list-type': 'map',
      'x-kubernetes-list-map-keys': ['address'],
      items: {
        type: 'object',
        required: ['address'],
        properties: {
          address: { type: 'string' },
          node: { type: 'string', description: 'The node that has it; absent: no node, connections wait.' },
          since: { type: 'string', format: 'date-time' },
        },
      },
    },
    portsInUse: {
      type: 'object',
      description: 'By address: the most ports that connections to one destination use.',
      additionalProperties: { type: 'integer' },
    },
    conditions: {
      type: 'array',
      'x-kubernetes-list-type': 'map',
      'x-kubernetes-list-map-keys': ['type'],
      items: {
        type: 'object',
        required: ['type', 'status', 'reason', 'message', 'lastTransitionTime'],
        properties: {
          type: { type: 'string', maxLength: 316 },
          status: { type: 'string', enum: ['True', 'False', 'Unknown'] },
          reason: { type: 'string', maxLength: 1024 },
          message: { type: 'string', maxLength: 32_768 },
          lastTransitionTime: { type: 'string', format: 'date-time' },
          observedGeneration: { type: 'integer', format: 'int64', minimum: 0 },
        },
      },
    },
  },
};

const column = (name: string, jsonPath: string, type = 'string') => ({ name, type, jsonPath });

/** Returns the CustomResourceDefinition. */
export const egressGatewayDefinition = () => ({
  apiVersion: 'apiextensions.k8s.io/v1',
  kind: 'CustomResourceDefinition',
  metadata: { name: EGRESS_GATEWAY_DEFINITION },
  spec: {
    group: GROUP,
    scope: 'Cluster',
    names: {
      plural: EGRESS_GATEWAYS.plural,
      singular: 'egressgateway',
      kind: EGRESS_GATEWAYS.kind,
      listKind: `${EGRESS_GATEWAYS.kind}List`,
      shortNames: ['egw'],
    },
    versions: [
      {
        name: EGRESS_GATEWAYS.version,
        served: true,
        storage: true,
        subresources: { status: {} },
        additionalPrinterColumns: [
          column('Addresses', '.spec.addresses'),
          column('Nodes', '.status.nodes'),
          column('Pods', '.status.pods', 'integer'),
          column('Ready', '.status.conditions[?(@.type=="Ready")].status'),
          column('Age', '.metadata.creationTimestamp', 'date'),
        ],
        schema: {
          openAPIV3Schema: {
            type: 'object',
            required: ['spec'],
            properties: {
              apiVersion: { type: 'string' },
              kind: { type: 'string' },
              metadata: { type: 'object' },
              spec: SPEC,
              status: STATUS,
            },
          },
        },
      },
    ],
  },
});
