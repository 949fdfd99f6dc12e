/** CustomResourceDefinitions of policy.networking.k8s.io, with the fields of upstream's (network-policy-api). */

const SELECTOR = {
  type: 'object',
  properties: {
    matchLabels: { type: 'object', additionalProperties: { type: 'string' } },
    matchExpressions: {
      type: 'array',
      items: {
        type: 'object',
        required: ['key', 'operator'],
        properties: {
          key: { type: 'string' },
          operator: { type: 'string' },
          values: { type: 'array', items: { type: 'string' } },
        },
      },
    },
  },
};
const PODS = {
  type: 'object',
  required: ['namespaceSelector', 'podSelector'],
  properties: { namespaceSelector: SELECTOR, podSelector: SELECTOR },
};
const oneOf = (properties: object) => ({ type: 'object', minProperties: 1, maxProperties: 1, properties });
const list = (items: object) => ({ type: 'array', minItems: 1, maxItems: 25, items });
const TEXT = { type: 'string' };
const PORT = { type: 'integer', minimum: 1, maximum: 65535 };
const SUBJECT = oneOf({ namespaces: SELECTOR, pods: PODS });
const INGRESS_PEER = oneOf({ namespaces: SELECTOR, pods: PODS });
const EGRESS_PEER = oneOf({
  namespaces: SELECTOR,
  pods: PODS,
  nodes: SELECTOR,
  networks: list({ type: 'string', maxLength: 43 }),
  domainNames: list(TEXT),
});
const RANGE = { type: 'object', required: ['start', 'end'], properties: { start: PORT, end: PORT } };
const DESTINATION = {
  type: 'object',
  properties: { destinationPort: oneOf({ number: PORT, range: RANGE }) },
};
const PROTOCOL = oneOf({ tcp: DESTINATION, udp: DESTINATION, sctp: DESTINATION, destinationNamedPort: TEXT });
const OLD_PORT = oneOf({
  portNumber: {
    type: 'object',
    required: ['protocol', 'port'],
    properties: { protocol: { type: 'string', default: 'TCP' }, port: PORT },
  },
  portRange: {
    type: 'object',
    required: ['start', 'end'],
    properties: { protocol: { type: 'string', default: 'TCP' }, start: PORT, end: PORT },
  },
  namedPort: TEXT,
});

interface Definition {
  readonly kind: string;
  readonly plural: string;
  readonly shortName: string;
  readonly version: string;
  readonly actions: readonly string[];
  readonly ports: object;
  /** Fields of the spec besides subject and rules. */
  readonly fields: object;
}

const PRIORITY = { type: 'integer', minimum: 0, maximum: 1000 };
const DEFINITIONS: readonly Definition[] = [
  {
    kind: 'ClusterNetworkPolicy',
    plural: 'clusternetworkpolicies',
    shortName: 'cnp',
    version: 'v1alpha2',
    actions: ['Accept', 'Deny', 'Pass'],
    ports: { protocols: list(PROTOCOL) },
    fields: { tier: { type: 'string', enum: ['Admin', 'Baseline'] }, priority: PRIORITY },
  },
  {
    kind: 'AdminNetworkPolicy',
    plural: 'adminnetworkpolicies',
    shortName: 'anp',
    version: 'v1alpha1',
    actions: ['Allow', 'Deny', 'Pass'],
    ports: { ports: list(OLD_PORT) },
    fields: { priority: PRIORITY },
  },
  {
    kind: 'BaselineAdminNetworkPolicy',
    plural: 'baselineadminnetworkpolicies',
    shortName: 'banp',
    version: 'v1alpha1',
    actions: ['Allow', 'Deny'],
    ports: { ports: list(OLD_PORT) },
    fields: {},
  },
];

function definitionOf({ kind, plural, shortName, version, actions, ports, fields }: Definition): object {
  const rule = (peers: object) => ({
    type: 'object',
    required: ['action', ...Object.keys(peers)],
    properties: { name: TEXT, action: { type: 'string', enum: actions }, ...peers, ...ports },
  });
  const group = 'policy.networking.k8s.io';
  return {
    apiVersion: 'apiextensions.k8s.io/v1',
    kind: 'CustomResourceDefinition',
    metadata: {
      name: `${plural}.${group}`,
      annotations: {
        'api-approved.kubernetes.io': 'https://github.com/kubernetes-sigs/network-policy-api/pull/30',
      },
    },
    spec: {
      group,
      scope: 'Cluster',
      names: {
        kind,
        listKind: `${kind}List`,
        plural,
        singular: kind.toLowerCase(),
        shortNames: [shortName],
      },
      versions: [
        {
          name: version,
          served: true,
          storage: true,
          subresources: { status: {} },
          schema: {
            openAPIV3Schema: {
              type: 'object',
              required: ['metadata', 'spec'],
              properties: {
                apiVersion: TEXT,
                kind: TEXT,
                metadata: { type: 'object' },
                spec: {
                  type: 'object',
                  required: ['subject', ...Object.keys(fields)],
                  properties: {
                    ...fields,
                    subject: SUBJECT,
                    ingress: { type: 'array', maxItems: 100, items: rule({ from: list(INGRESS_PEER) }) },
                    egress: { type: 'array', maxItems: 100, items: rule({ to: list(EGRESS_PEER) }) },
                  },
                },
                status: { type: 'object', 'x-kubernetes-preserve-unknown-fields': true },
              },
            },
          },
        },
      ],
    },
  };
}

/** The definitions of all kinds, as a List in JSON. */
export const CLUSTER_POLICY_DEFINITIONS = JSON.stringify({
  apiVersion: 'v1',
  kind: 'List',
  items: DEFINITIONS.map(definitionOf),
});
