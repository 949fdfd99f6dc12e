import { parse, stringify } from 'yaml';
import type { JsonSchema } from '../lib/json-schema.ts';
import { schemaText } from '../lib/json-schema.ts';
import {
  asText,
  type Expression,
  expression,
  templateLines,
  type Variant,
  withFurther,
} from './chart-template.ts';
import {
  ANNOTATIONS,
  type ChartValue,
  chartValues,
  EXTENDED_LISTS,
  LABELS,
  POD_VALUES,
  UPDATE_STRATEGY,
  WORKLOAD_VALUES,
  type WorkloadValue,
} from './chart-values.ts';
import { DNS_REPLICAS, DNS_SERVICE } from './dns-objects.ts';
import { BOOTSTRAP_NOTE, installationObjects } from './installation-objects.ts';
import {
  CONFIGURATION_FILE,
  INSTALLATIONS,
  type Installation,
  type KubeObject,
  MONITORS,
} from './installation-shared.ts';
import { METRICS_SERVICE } from './monitor-objects.ts';
import { version } from './version.ts';

/** The workloads of the chart: the group of their values, and what they are. */
const WORKLOADS: readonly {
  readonly group: string;
  readonly kind: string;
  readonly name: string;
  readonly meaning: string;
  readonly values: readonly WorkloadValue[];
}[] = [
  {
    group: 'agent',
    kind: 'DaemonSet',
    name: 'fairlead',
    meaning: 'the agents, one on each node',
    values: [...WORKLOAD_VALUES, UPDATE_STRATEGY],
  },
  {
    group: 'dns',
    kind: 'Deployment',
    name: 'fairlead-dns',
    meaning: 'the pods of dnsReplicas',
    values: WORKLOAD_VALUES,
  },
  {
    group: 'addresses',
    kind: 'Deployment',
    name: 'fairlead-addresses',
    meaning: 'the pod that assigns addresses of the pool',
    values: WORKLOAD_VALUES,
  },
];

/** The dimensions in which installations differ in their objects, and the conditions on the chart's values. */
const CONDITIONS = {
  parts: (values: readonly string[]) =>
    values.length === 1
      ? `eq .Values.parts "${values[0]}"`
      : `has .Values.parts (list ${values.map((one) => `"${one}"`).join(' ')})`,
  pool: isSet('.Values.pool'),
  clusterCidr: isSet('.Values.clusterCIDRs'),
  dnsReplicas: isSet('(int .Values.dnsReplicas)'),
  uplink: isSet('.Values.uplink'),
  commands: isSet('.Values.commands'),
  privileged: isSet('.Values.privileged'),
  metrics: isSet('.Values.metricsAddress'),
  podMonitor: isSet('.Values.podMonitor'),
  serviceMonitor: isSet('.Values.serviceMonitor'),
};

function isSet(text: string) {
  return ([value]: readonly string[]) => (value === 'set' ? text : `not ${text}`);
}

type ChartVariant = Variant & { readonly parts: Installation };

/** Returns all combinations: each dimension doubles those of the ones before it. */
const combinations = (...dimensions: readonly (keyof typeof CONDITIONS)[]): readonly ChartVariant[] =>
  dimensions.reduce(
    (all: ChartVariant[], dimension) =>
      all.flatMap((variant) => ['set', ''].map((value) => ({ ...variant, [dimension]: value }))),
    INSTALLATIONS.map((parts) => ({ parts })),
  );

const VARIANTS = combinations(
  'pool',
  'clusterCidr',
  'dnsReplicas',
  'uplink',
  'commands',
  'privileged',
  'metrics',
);
/** Monitors depend on nothing else. */
const MONITOR_VARIANTS = combinations('podMonitor', 'serviceMonitor');

const NAMESPACE = '{{ .Release.Namespace }}';
/** Pods read the ConfigMap at their start: with this annotation of theirs, an upgrade that changes values replaces them. */
export const CONFIGURATION_HASH = 'checksum/configuration';

/** Returns the files of the Helm chart: path → text. */
export function chartFiles(): ReadonlyMap<string, string> {
  const byName = Map.groupBy(variantObjects(VARIANTS), ({ object }) => String(metadataOf(object)['name']));
  const monitors = variantObjects(MONITOR_VARIANTS).filter(({ object }) => isMonitor(object));
  return new Map([
    ['Chart.yaml', chartText()],
    ['values.yaml', valuesText()],
    ['values.schema.json', schemaText(valuesSchema())],
    ['templates/_validate.tpl', VALIDATION],
    ['templates/NOTES.txt', NOTES],
    ...[...byName].map(([name, objects]): [string, string] => [
      `templates/${name}.yaml`,
      `{{- include "fairlead.validate" . }}\n${unlessKept(name, objectsTemplate(objects, VARIANTS))}`,
    ]),
    ['templates/monitors.yaml', objectsTemplate(monitors, MONITOR_VARIANTS)],
  ]);
}

/** A Service of the cluster's DNS that another program made stays that program's, also when the release is removed. */
const unlessKept = (name: string, template: string): string =>
  name === DNS_SERVICE
    ? `{{- if not (include "fairlead.keptDnsService" .) }}\n${template}{{- end }}\n`
    : template;

interface VariantObject {
  readonly variant: Variant;
  readonly object: KubeObject;
}

function objectsTemplate(objects: readonly VariantObject[], variants: readonly ChartVariant[]): string {
  const identity = ({ object }: VariantObject) => {
    const { namespace = '', name } = metadataOf(object);
    return `${object['kind']}/${namespace}/${name}`;
  };
  return [...Map.groupBy(objects, identity).values()]
    .map((same) => {
      const lines = templateLines(
        same.map(({ variant, object }) => [variant, object] as const),
        variants,
        CONDITIONS,
      );
      const [first = ''] = lines;
      // The separator belongs to the object.
      const text = first.startsWith('{{- if') ? [first, '---', ...lines.slice(1)] : ['---', ...lines];
      return `${text.join('\n')}\n`;
    })
    .join('');
}

/** Returns the objects of all variants, with expressions in place of values. */
function variantObjects(variants: readonly ChartVariant[]): VariantObject[] {
  return variants.flatMap((variant) =>
    installationObjects({
      parts: variant.parts,
      namespace: NAMESPACE,
      image: '{{ .Values.image }}',
      mode: '{{ .Values.mode }}',
      server: '{{ required "apiServer: https://HOST:PORT of the API server" .Values.apiServer }}',
      servers: ['API-SERVERS'],
      clusterCidr: variant['clusterCidr'] === 'set' ? 'CLUSTER-CIDRS' : '',
      dnsAddress: '{{ .Values.dnsAddress }}',
      dnsReplicas: variant['dnsReplicas'] === 'set' ? DNS_REPLICAS : 0,
      clusterDomain: '{{ .Values.clusterDomain }}',
      uplink: variant['uplink'] === 'set' ? '{{ .Values.uplink }}' : '',
      pool: variant['pool'] === 'set' ? ['POOL'] : [],
      commands: variant['commands'] === 'set',
      privileged: variant['privileged'] === 'set',
      metricsAddress: variant['metrics'] === 'set' ? '{{ .Values.metricsAddress }}' : '',
      monitors: MONITORS.filter((kind) => variant[`${kind}Monitor`] === 'set'),
    }).map((object) => ({ variant, object: withExpressions(object) })),
  );
}

/** Prometheus selects monitors by labels. */
const MONITOR_LABELS = '(merge (dict) .Values.monitorLabels .Values.labels)';
const POOL = '(kindIs "string" .Values.pool | ternary (list .Values.pool) .Values.pool)';

function withExpressions(object: KubeObject): KubeObject {
  const changed = withUserMetadata(object);
  if (object['kind'] === 'ConfigMap') return withConfiguration(changed);
  if (isMonitor(object) && object['kind'] !== 'Service')
    return replace(changed, ['metadata', 'labels'], (labels) =>
      withFurther(labels as object, MONITOR_LABELS),
    );
  const workload = WORKLOADS.find(
    ({ kind, name }) => object['kind'] === kind && metadataOf(object)['name'] === name,
  );
  if (!workload) return changed;
  const { group, values } = workload;
  const replaced = [
    ...POD_VALUES.map((value) => [value, `.Values.${value.name}`] as const),
    ...values.map((value) => [value, `.Values.${group}.${value.name}`] as const),
  ].reduce((all, [{ field, form }, text]) => replace(all, field, () => expression(text, form)), changed);
  const extended = EXTENDED_LISTS.reduce(
    (all, { name, field }) =>
      replace(all, field, (present) =>
        expression(
          `(concat (fromJsonArray \`${JSON.stringify(present ?? [])}\`) .Values.${group}.${name})`,
          'yaml',
        ),
      ),
    replaced,
  );
  const further = (kind: 'Labels' | 'Annotations', own: object) => (present: unknown) =>
    withFurther({ ...((present ?? {}) as object), ...own }, `.Values.${group}.pod${kind}`);
  const withPods = replace(
    replace(extended, ['spec', 'template', 'metadata', 'labels'], further('Labels', {})),
    ['spec', 'template', 'metadata', 'annotations'],
    further('Annotations', { [CONFIGURATION_HASH]: '{{ include "fairlead.configurationHash" . }}' }),
  );
  return group === 'dns'
    ? replace(withPods, ['spec', 'replicas'], () => expression('.Values.dnsReplicas', 'number'))
    : withPods;
}

/** The configuration is a text in the ConfigMap; as a map, its fields can have conditions. */
function withConfiguration(object: KubeObject): KubeObject {
  const data = object['data'] as Record<string, string>;
  const configuration = parse(data[CONFIGURATION_FILE] ?? '') as KubeObject;
  const json =
    (text: string): (() => Expression) =>
    () =>
      expression(text, 'json');
  const fields: readonly (readonly [path: readonly string[], value: () => Expression])[] = [
    [['servers'], json('.Values.apiServers')],
    [['proxy', 'clusterCIDRs'], json('.Values.clusterCIDRs')],
    [['loadBalancer', 'pools', 'default'], json(POOL)],
  ];
  const replaced = fields.reduce(
    (all, [path, value]) => (has(all, path) ? replace(all, path, value) : all),
    configuration,
  );
  return { ...object, data: { [CONFIGURATION_FILE]: asText(replaced, BOOTSTRAP_NOTE) } };
}

/** Further labels and annotations of every object. */
const withUserMetadata = (object: KubeObject): KubeObject => ({
  ...object,
  metadata: {
    ...metadataOf(object),
    labels: withFurther(metadataOf(object)['labels'] as object, '.Values.labels'),
    annotations: withFurther({}, '.Values.annotations'),
  },
});

const isMonitor = (object: KubeObject): boolean =>
  ['PodMonitor', 'ServiceMonitor'].includes(String(object['kind'])) ||
  metadataOf(object)['name'] === METRICS_SERVICE;
const metadataOf = (object: KubeObject) => object['metadata'] as KubeObject;

function at(value: unknown, path: readonly string[]): unknown {
  return path.reduce<unknown>((one, name) => (one as Record<string, unknown> | undefined)?.[name], value);
}
const has = (value: unknown, path: readonly string[]): boolean => at(value, path) !== undefined;

/** Returns a copy with the value at a path replaced; a last field that is absent is added. */
function replace<T extends object>(
  value: T,
  [name = '', ...rest]: readonly string[],
  by: (present: unknown) => unknown,
): T {
  const present = (value as Record<string, unknown>)[name];
  const next = rest.length === 0 ? by(present) : replace(present as object, rest, by);
  if (Array.isArray(value)) return value.map((one, i) => (String(i) === name ? next : one)) as unknown as T;
  return { ...value, [name]: next };
}

/** All values with their defaults: those of workloads are what `fairlead manifests` prints. */
function allValues(): readonly ChartValue[] {
  const image = `fairlead:${version}`;
  const objects = installationObjects({
    parts: 'proxy-dns',
    namespace: 'kube-system',
    image,
    mode: 'nftables',
    server: '',
    servers: [],
    clusterCidr: '',
    dnsAddress: '',
    dnsReplicas: DNS_REPLICAS,
    clusterDomain: '',
    uplink: '',
    pool: ['192.0.2.0/24'],
    commands: false,
    privileged: true,
    metricsAddress: '',
    monitors: [],
  });
  const empty = ({ form, schema }: WorkloadValue) =>
    form === 'text' ? '' : schema.type === 'array' ? [] : {};
  return [
    ...chartValues({ image, dnsReplicas: DNS_REPLICAS }),
    ...POD_VALUES.map((value) => ({ ...value, path: value.name, fallback: empty(value) })),
    ...WORKLOADS.flatMap(({ group, kind, name, values }): ChartValue[] => {
      const object = objects.find((one) => one['kind'] === kind && metadataOf(one)['name'] === name);
      return [
        ...values.map((value) => ({
          ...value,
          path: `${group}.${value.name}`,
          fallback: at(object, value.field) ?? empty(value),
        })),
        ...EXTENDED_LISTS.map((value) => ({ ...value, path: `${group}.${value.name}`, fallback: [] })),
        { path: `${group}.podLabels`, fallback: {}, meaning: 'further labels of the pods', schema: LABELS },
        {
          path: `${group}.podAnnotations`,
          fallback: {},
          meaning: 'further annotations of the pods',
          schema: ANNOTATIONS,
        },
      ];
    }),
  ];
}

function valuesText(): string {
  const values = allValues();
  const entry = (name: string, { fallback, meaning }: ChartValue) =>
    `# ${meaning}\n${stringify({ [name]: fallback }, { aliasDuplicateObjects: false })}`;
  const groups = WORKLOADS.map(({ group, meaning }) => {
    const fields = values
      .filter(({ path }) => path.startsWith(`${group}.`))
      .map((value) => entry(value.path.slice(group.length + 1), value))
      .join('');
    return `# ${meaning}\n${group}:\n${fields.replace(/^(?=.)/gm, '  ')}`;
  });
  return [
    ...values.filter(({ path }) => !path.includes('.')).map((value) => entry(value.path, value)),
    ...groups,
  ].join('');
}

/** Helm 3 reads draft 7. */
function valuesSchema(): JsonSchema {
  const values = allValues();
  const properties = (prefix: string) =>
    Object.fromEntries(
      values
        .filter(({ path }) => path.startsWith(prefix) && !path.slice(prefix.length).includes('.'))
        .map(({ path, meaning, schema }) => [path.slice(prefix.length), { description: meaning, ...schema }]),
    );
  return {
    $schema: 'http://json-schema.org/draft-07/schema#',
    title: 'Values of the chart fairlead',
    type: 'object',
    properties: {
      ...properties(''),
      ...Object.fromEntries(
        WORKLOADS.map(({ group, meaning }) => [
          group,
          {
            description: meaning,
            type: 'object',
            properties: properties(`${group}.`),
            additionalProperties: false,
          },
        ]),
      ),
      // Of a chart that has this one as its dependency.
      global: { type: 'object' },
    },
    additionalProperties: false,
  };
}

const chartText = () =>
  stringify({
    apiVersion: 'v2',
    name: 'fairlead',
    description: 'Kubernetes Services, and optionally DNS and the pod network, in place of kube-proxy',
    type: 'application',
    version,
    appVersion: version,
    kubeVersion: '>=1.29.0-0',
  });

/** Holds for Helm before 3.0.1 and with --skip-schema-validation, too: an unknown part would render nothing. */
const VALIDATION = `{{- define "fairlead.validate" -}}
{{- $parts := list ${INSTALLATIONS.map((one) => `"${one}"`).join(' ')} }}
{{- if not (has .Values.parts $parts) }}
{{- fail (printf "parts: must be one of %s, not %q" (join ", " $parts) (toString .Values.parts)) }}
{{- end }}
{{- if and (or .Values.podMonitor .Values.serviceMonitor) (not .Values.metricsAddress) }}
{{- fail "podMonitor, serviceMonitor: need metricsAddress, such as 0.0.0.0; Prometheus does not reach 127.0.0.1 of the nodes" }}
{{- end }}
{{- end }}

{{- define "fairlead.configurationHash" -}}
{{- omit .Values "image" "imagePullPolicy" "imagePullSecrets" "labels" "annotations" "monitorLabels" "agent" "dns" "addresses" "global" | toJson | sha256sum -}}
{{- end }}

{{- define "fairlead.keptDnsService" -}}
{{- $release := .Release.Name }}
{{- $address := .Values.dnsAddress }}
{{- if has .Values.parts (list "proxy-dns" "all") }}
{{- with lookup "v1" "Service" "kube-system" "${DNS_SERVICE}" }}
{{- if ne (get (.metadata.annotations | default dict) "meta.helm.sh/release-name") $release }}
{{- if ne .spec.clusterIP $address }}
{{- fail (printf "dnsAddress: the Service kube-system/${DNS_SERVICE} of this cluster has %s, not %s" .spec.clusterIP $address) }}
{{- end -}}
kept
{{- end }}
{{- end }}
{{- end }}
{{- end }}
`;

const NOTES = `Fairlead {{ .Chart.AppVersion }} ({{ .Values.parts }}) is being started on the nodes:

  kubectl --namespace {{ .Release.Namespace }} rollout status daemonset/fairlead
`;
