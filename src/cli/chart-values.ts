import type { JsonSchema } from '../lib/json-schema.ts';
import { INSTALLATIONS } from './installation-shared.ts';

/** A value of the Helm chart. */
export interface ChartValue {
  /** "agent.tolerations" */
  readonly path: string;
  readonly fallback: unknown;
  readonly meaning: string;
  readonly schema: JsonSchema;
}

/** A value that replaces a field of a workload; its default is the field of the object that `fairlead manifests` prints. */
export interface WorkloadValue {
  readonly name: string;
  /** The path of the field in the workload, "0" for the first container. */
  readonly field: readonly string[];
  readonly form: 'yaml' | 'text';
  readonly meaning: string;
  readonly schema: JsonSchema;
}

const POD = ['spec', 'template', 'spec'];
const CONTAINER = [...POD, 'containers', '0'];

const TEXT: JsonSchema = { type: 'string' };
const TEXTS: JsonSchema = { type: 'array', items: TEXT };
const NUMBER_OR_TEXT: JsonSchema = { type: ['integer', 'string'] };
const closed = (
  properties: Readonly<Record<string, JsonSchema>>,
  required: readonly string[] = [],
): JsonSchema => ({
  type: 'object',
  properties,
  ...(required.length === 0 ? {} : { required }),
  additionalProperties: false,
});
const QUANTITIES: JsonSchema = { type: 'object', additionalProperties: { type: ['string', 'number'] } };
/** Labels that selectors use, and annotations that the agent reads, are not a user's. */
const ownEntries = (...names: readonly string[]): JsonSchema => ({
  type: 'object',
  additionalProperties: TEXT,
  propertyNames: { not: { enum: names } },
});
export const LABELS = ownEntries('app.kubernetes.io/name', 'k8s-app');
export const ANNOTATIONS = ownEntries('fairlead.dev/commands-port');

/** Values that each workload of the chart has. */
export const WORKLOAD_VALUES: readonly WorkloadValue[] = [
  {
    name: 'resources',
    field: [...CONTAINER, 'resources'],
    form: 'yaml',
    meaning: 'what a pod reserves, and its limits (docs/install.md, Sizing)',
    schema: closed({ requests: QUANTITIES, limits: QUANTITIES }),
  },
  {
    name: 'nodeSelector',
    field: [...POD, 'nodeSelector'],
    form: 'yaml',
    meaning: 'labels of the nodes on which the pods run',
    schema: { type: 'object', additionalProperties: TEXT },
  },
  {
    name: 'tolerations',
    field: [...POD, 'tolerations'],
    form: 'yaml',
    meaning: 'taints that the pods tolerate',
    schema: {
      type: 'array',
      items: closed({
        key: TEXT,
        operator: { enum: ['Exists', 'Equal', 'Lt', 'Gt'] },
        value: TEXT,
        effect: { enum: ['NoSchedule', 'PreferNoSchedule', 'NoExecute'] },
        tolerationSeconds: { type: 'integer' },
      }),
    },
  },
  {
    name: 'affinity',
    field: [...POD, 'affinity'],
    form: 'yaml',
    meaning: 'affinity of the pods',
    schema: closed({
      nodeAffinity: { type: 'object' },
      podAffinity: { type: 'object' },
      podAntiAffinity: { type: 'object' },
    }),
  },
  {
    name: 'priorityClassName',
    field: [...POD, 'priorityClassName'],
    form: 'text',
    meaning: 'priority class of the pods',
    schema: TEXT,
  },
];

/** Lists of the first container to which a user adds elements. */
export const EXTENDED_LISTS: readonly Omit<WorkloadValue, 'form'>[] = [
  {
    name: 'extraArgs',
    field: [...CONTAINER, 'args'],
    meaning: 'further arguments of the program, such as "-v", "4"',
    schema: TEXTS,
  },
  {
    name: 'extraEnv',
    field: [...CONTAINER, 'env'],
    meaning: 'further variables of the environment, such as HTTPS_PROXY',
    schema: {
      type: 'array',
      items: closed({ name: { ...TEXT, minLength: 1 }, value: TEXT, valueFrom: { type: 'object' } }, [
        'name',
      ]),
    },
  },
];

const rollingUpdate = (...fields: readonly string[]) =>
  closed(Object.fromEntries(fields.map((name) => [name, NUMBER_OR_TEXT])));

/** How a DaemonSet replaces its pods. */
export const UPDATE_STRATEGY: WorkloadValue = {
  name: 'updateStrategy',
  field: ['spec', 'updateStrategy'],
  form: 'yaml',
  meaning: 'how the pods are replaced',
  schema: closed({
    type: { enum: ['RollingUpdate', 'OnDelete'] },
    rollingUpdate: rollingUpdate('maxUnavailable', 'maxSurge'),
  }),
};

/** Values of all workloads at once. */
export const POD_VALUES: readonly WorkloadValue[] = [
  {
    name: 'imagePullPolicy',
    field: [...CONTAINER, 'imagePullPolicy'],
    form: 'text',
    meaning: "when nodes pull the image; empty: Kubernetes' default",
    schema: { enum: ['', 'Always', 'IfNotPresent', 'Never'] },
  },
  {
    name: 'imagePullSecrets',
    field: [...POD, 'imagePullSecrets'],
    form: 'yaml',
    meaning: 'Secrets for the registry of the image',
    schema: { type: 'array', items: closed({ name: TEXT }, ['name']) },
  },
];

const HTTPS = 'https://[^/?#@\\s]+(/[^?#\\s]*)?';

/** Values of the chart as a whole: the options of `fairlead manifests`. */
export const chartValues = (fallbacks: {
  readonly image: string;
  readonly dnsReplicas: number;
}): readonly ChartValue[] => [
  {
    path: 'parts',
    fallback: 'proxy',
    meaning: 'proxy, proxy-dns, all or policy: the functions of the agents',
    schema: { enum: INSTALLATIONS },
  },
  {
    path: 'image',
    fallback: fallbacks.image,
    meaning: 'the image of the agent',
    schema: { type: 'string', pattern: '^[^\\s]+$' },
  },
  {
    path: 'mode',
    fallback: 'nftables',
    meaning: 'nftables, ebpf, iptables, ipvs or userspace',
    schema: { enum: ['nftables', 'ebpf', 'iptables', 'ipvs', 'userspace'] },
  },
  {
    path: 'apiServer',
    fallback: '',
    meaning: 'https://HOST:PORT of the API server for nodes; required',
    schema: { type: 'string', pattern: `^(${HTTPS})?$` },
  },
  {
    path: 'apiServers',
    fallback: [],
    meaning: 'further https://HOST:PORT of API servers, which the agents use if the first one fails',
    schema: { type: 'array', items: { type: 'string', pattern: `^${HTTPS}$` } },
  },
  {
    path: 'clusterCIDRs',
    fallback: [],
    meaning: "networks of pods; empty: each Node's podCIDRs",
    schema: { type: 'array', items: { type: 'string', pattern: '^[0-9a-fA-F.:]+/[0-9]+$' } },
  },
  {
    path: 'clusterDomain',
    fallback: 'cluster.local',
    meaning: 'the domain of DNS names',
    schema: { type: 'string', pattern: '^[A-Za-z0-9_]([A-Za-z0-9_.-]*[A-Za-z0-9_])?\\.?$' },
  },
  {
    path: 'dnsAddress',
    fallback: '10.96.0.10',
    meaning: 'the cluster IP of DNS, with proxy-dns and all',
    schema: { type: 'string', pattern: '^[0-9a-fA-F.:]+$' },
  },
  {
    path: 'dnsReplicas',
    fallback: fallbacks.dnsReplicas,
    meaning: 'pods that answer DNS while the agent of a node is replaced, with proxy-dns; 0: none',
    schema: { type: 'integer', minimum: 0, maximum: 100 },
  },
  {
    path: 'uplink',
    fallback: '',
    meaning: "the interface towards the other nodes, with all; empty: the one with the node's address",
    schema: { type: 'string', pattern: '^[^\\s/]{0,15}$' },
  },
  {
    path: 'pool',
    fallback: [],
    meaning: 'ranges of load-balancer addresses; empty: another program assigns addresses',
    schema: { anyOf: [TEXT, TEXTS] },
  },
  {
    path: 'commands',
    fallback: false,
    meaning:
      'true: opens port 10268 of the nodes for commands from other machines (docs/remote-commands.md), for users that you bind to its Roles',
    schema: { type: 'boolean' },
  },
  {
    path: 'privileged',
    fallback: true,
    meaning:
      "false: the agents' container has only the capabilities of its parts, and writes only /proc/sys/net (docs/operating.md)",
    schema: { type: 'boolean' },
  },
  {
    path: 'metricsAddress',
    fallback: '',
    meaning:
      'address of the nodes at which agents serve /metrics, such as 0.0.0.0 or [::]; empty: 127.0.0.1, for programs on the node only',
    schema: { type: 'string', pattern: '^([0-9.]+|\\[[0-9a-fA-F.:]+\\])?$' },
  },
  {
    path: 'podMonitor',
    fallback: false,
    meaning: 'true: a PodMonitor of the Prometheus Operator; needs metricsAddress',
    schema: { type: 'boolean' },
  },
  {
    path: 'serviceMonitor',
    fallback: false,
    meaning: 'true: a ServiceMonitor of the Prometheus Operator, and a Service for it; needs metricsAddress',
    schema: { type: 'boolean' },
  },
  {
    path: 'monitorLabels',
    fallback: {},
    meaning: 'further labels of these monitors, by which a Prometheus selects them',
    schema: LABELS,
  },
  { path: 'labels', fallback: {}, meaning: 'further labels of all objects', schema: LABELS },
  { path: 'annotations', fallback: {}, meaning: 'further annotations of all objects', schema: ANNOTATIONS },
];
