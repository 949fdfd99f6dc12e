// Shared by the tests of deploy/: the shapes of the files, an installation, and mistakes in values.
import { parse } from 'yaml';

export interface Rule {
  readonly resources?: string[];
  readonly resourceNames?: string[];
  readonly nonResourceURLs?: string[];
  readonly verbs: string[];
}

export interface Role {
  readonly kind: string;
  readonly metadata: {
    readonly name: string;
    readonly namespace?: string;
    readonly labels?: Readonly<Record<string, string>>;
  };
  readonly rules?: readonly Rule[];
  readonly roleRef?: { readonly name: string };
  readonly data?: Record<string, string>;
}

export interface Workload {
  readonly kind: string;
  readonly metadata: { readonly name: string };
  readonly spec: {
    readonly updateStrategy?: object;
    readonly template: {
      readonly metadata: {
        readonly labels?: Readonly<Record<string, string>>;
        readonly annotations?: Readonly<Record<string, string>>;
      };
      readonly spec: Readonly<Record<string, unknown>> & {
        readonly containers: readonly {
          readonly imagePullPolicy?: string;
          readonly resources?: object;
          readonly ports?: readonly object[];
          readonly args?: readonly string[];
          readonly env?: readonly { readonly name: string }[];
        }[];
      };
    };
  };
}

/** The installation of the tests, as options of installationObjects. */
export const INSTALLATION = {
  namespace: 'kube-system',
  image: 'fairlead:1',
  mode: 'nftables',
  server: 'https://192.0.2.1:6443',
  servers: ['https://192.0.2.2:6443'],
  clusterCidr: '10.244.0.0/16',
  dnsAddress: '10.96.0.10',
  dnsReplicas: 2,
  clusterDomain: 'cluster.local',
  uplink: '',
  commands: false,
  privileged: true,
  metricsAddress: '',
  monitors: [],
} as const;

/** Mistakes in the values of the chart, as fields of its values file. */
export const WRONG_VALUES: readonly (readonly [what: string, values: Readonly<Record<string, unknown>>])[] = [
  ['an unknown part', { parts: 'proxy_dns' }],
  ['an unknown mode', { mode: 'nftable' }],
  ['an API server without https', { apiServer: 'http://192.0.2.1:6443' }],
  ['an API server without a scheme', { apiServer: '192.0.2.1:6443' }],
  ['a misspelt value', { apiserver: 'https://192.0.2.1:6443' }],
  ['a misspelt value of a workload', { agent: { toleration: [] } }],
  ['a toleration with a wrong effect', { agent: { tolerations: [{ key: 'a', effect: 'NoSchedul' }] } }],
  ['a misspelt field of a toleration', { dns: { tolerations: [{ keey: 'a' }] } }],
  ['a text for a number', { dnsReplicas: 'two' }],
  ['the label of the selector', { agent: { podLabels: { 'app.kubernetes.io/name': 'other' } } }],
  ['an annotation of our own', { agent: { podAnnotations: { 'fairlead.dev/commands-port': '1' } } }],
  ['a variable without a name', { agent: { extraEnv: [{ value: 'a' }] } }],
  ['an argument that is not a text', { dns: { extraArgs: [4] } }],
  ['a pull secret without a name', { imagePullSecrets: ['registry'] }],
  ['an IPv6 address without brackets', { metricsAddress: '::' }],
  ['a metrics address with a port', { metricsAddress: '0.0.0.0:9' }],
];

/** Sorts objects, and reads the configuration, in which the chart quotes values. */
export const byName = (all: readonly Role[]) =>
  all
    .map((one) => ({ ...one, ...(one.data ? { data: mapValues(one.data, parse) } : {}) }))
    .toSorted((a, b) => identity(a).localeCompare(identity(b)));

const identity = ({ kind, metadata }: Pick<Role, 'kind' | 'metadata'>) =>
  `${kind}/${metadata.name}/${metadata.namespace ?? ''}`;

const mapValues = (map: Readonly<Record<string, string>>, read: (text: string) => unknown) =>
  Object.fromEntries(Object.entries(map).map(([key, value]) => [key, read(value)]));
