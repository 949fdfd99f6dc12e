import { quantityNano } from '../../kube/quantity-text.ts';
import { at, isObject, type JsonObject, listAt } from '../object.ts';
import { PREFERRED_TERMS, REQUIRED_TERMS } from './scheduling.ts';

/** Labels of nodes that have a successor. */
const OLD_LABELS: Readonly<Record<string, string>> = {
  'beta.kubernetes.io/arch': 'deprecated since v1.14; use "kubernetes.io/arch" instead',
  'beta.kubernetes.io/os': 'deprecated since v1.14; use "kubernetes.io/os" instead',
  'beta.kubernetes.io/instance-type':
    'deprecated since v1.17; use "node.kubernetes.io/instance-type" instead',
  'failure-domain.beta.kubernetes.io/region':
    'deprecated since v1.17; use "topology.kubernetes.io/region" instead',
  'failure-domain.beta.kubernetes.io/zone':
    'deprecated since v1.17; use "topology.kubernetes.io/zone" instead',
};

const NO_SELECTOR = 'a null labelSelector results in matching no pod';
const WHOLE = 10n ** 9n;

/** Returns what is valid in a pod or its template, but hardly intended; `path` is that of its spec. */
export function podWarnings(spec: JsonObject, path: string): string[] {
  return [
    ...labelWarnings(spec, path),
    ...selectorWarnings(spec, path),
    ...volumeWarnings(spec, path),
    ...duplicateWarnings(spec, path),
    ...containersOf(spec, path).flatMap(([container, field]) => containerWarnings(container, field)),
    ...portWarnings(spec, path),
    ...(Number(spec['terminationGracePeriodSeconds'] ?? 0) < 0
      ? [
          `${path}.terminationGracePeriodSeconds: must be >= 0; negative values are invalid and will be treated as 1`,
        ]
      : []),
  ];
}

function containersOf(spec: JsonObject, path: string): [container: JsonObject, field: string][] {
  return ['initContainers', 'containers', 'ephemeralContainers'].flatMap((list) =>
    listAt(spec, list).map((one, i): [JsonObject, string] => [one, `${path}.${list}[${i}]`]),
  );
}

function labelWarnings(spec: JsonObject, path: string): string[] {
  const chosen = isObject(spec['nodeSelector']) ? Object.keys(spec['nodeSelector']) : [];
  const affinity = `${path}.affinity.nodeAffinity`;
  const terms: [term: unknown, field: string][] = [
    ...listAt(spec, 'affinity', 'nodeAffinity', REQUIRED_TERMS, 'nodeSelectorTerms').map(
      (term, i): [unknown, string] => [term, `${affinity}.${REQUIRED_TERMS}.nodeSelectorTerms[${i}]`],
    ),
    ...listAt(spec, 'affinity', 'nodeAffinity', PREFERRED_TERMS).map((one, i): [unknown, string] => [
      one['preference'],
      `${affinity}.${PREFERRED_TERMS}[${i}].preference`,
    ]),
  ];
  return [
    ...chosen.flatMap((key) => (OLD_LABELS[key] ? [`${path}.nodeSelector[${key}]: ${OLD_LABELS[key]}`] : [])),
    ...terms.flatMap(([term, field]) =>
      listAt(isObject(term) ? term : {}, 'matchExpressions').flatMap(({ key }, i) => {
        const old = OLD_LABELS[String(key)];
        return old ? [`${field}.matchExpressions[${i}].key: ${key} is ${old}`] : [];
      }),
    ),
    ...listAt(spec, 'topologySpreadConstraints').flatMap(({ topologyKey }, i) => {
      const old = OLD_LABELS[String(topologyKey)];
      return old ? [`${path}.topologySpreadConstraints[${i}].topologyKey: ${topologyKey} is ${old}`] : [];
    }),
  ];
}

function selectorWarnings(spec: JsonObject, path: string): string[] {
  const without = (terms: readonly JsonObject[], field: (i: number) => string) =>
    terms.flatMap(({ labelSelector }, i) =>
      labelSelector === undefined ? [`${field(i)}.labelSelector: ${NO_SELECTOR}`] : [],
    );
  return [
    ...without(listAt(spec, 'topologySpreadConstraints'), (i) => `${path}.topologySpreadConstraints[${i}]`),
    ...['podAffinity', 'podAntiAffinity'].flatMap((kind) => {
      const terms = listAt(spec, 'affinity', kind, PREFERRED_TERMS).map((one) =>
        isObject(one['podAffinityTerm']) ? one['podAffinityTerm'] : {},
      );
      const field = `${path}.affinity.${kind}`;
      return [
        ...without(listAt(spec, 'affinity', kind, REQUIRED_TERMS), (i) => `${field}.${REQUIRED_TERMS}[${i}]`),
        ...without(terms, (i) => `${field}.${PREFERRED_TERMS}[${i}].podAffinityTerm`),
      ];
    }),
  ];
}

function volumeWarnings(spec: JsonObject, path: string): string[] {
  return listAt(spec, 'volumes').flatMap((volume, i) => [
    ...pathWarnings(volume),
    ...(isObject(volume['gitRepo']) ? [`${path}.volumes[${i}].gitRepo: deprecated in v1.11`] : []),
    ...listAt(volume, 'projected', 'sources').flatMap((source) =>
      Object.values(source).some(isObject)
        ? []
        : [`volume ${JSON.stringify(volume['name'])} (Projected) has no sources provided`],
    ),
  ]);
}

/** Warns of files of one volume of which the second one replaces the first. */
function pathWarnings(volume: JsonObject): string[] {
  const name = JSON.stringify(volume['name']);
  return FILE_SOURCES.flatMap(([source, title, key]) => {
    const files = listAt(volume, source, 'items').map(({ path }) => String(path ?? ''));
    const object = key === null ? '' : ` ${JSON.stringify(at(volume, source, key))}`;
    return files.flatMap((file, i) =>
      files
        .slice(0, i)
        .filter((other) => `${file}/`.startsWith(`${other}/`) || other.startsWith(`${file}/`))
        .map((other) => `volume ${name} (${title}${object}): overlapping paths: "${file}" with "${other}"`),
    );
  });
}

const FILE_SOURCES = [
  ['configMap', 'ConfigMap', 'name'],
  ['secret', 'Secret', 'secretName'],
  ['downwardAPI', 'DownwardAPI', null],
] as const;

function duplicateWarnings(spec: JsonObject, path: string): string[] {
  const warnings: string[] = [];
  for (const [list, key, what] of [
    ['hostAliases', 'ip', 'ip'],
    ['imagePullSecrets', 'name', 'name'],
  ] as const) {
    const seen = new Set<unknown>();
    listAt(spec, list).forEach((item, i) => {
      const value = String(item[key] ?? '');
      const field = `${path}.${list}[${i}].${key}`;
      if (seen.has(value)) warnings.push(`${field}: duplicate ${what} ${JSON.stringify(value)}`);
      if (list === 'imagePullSecrets' && value === '') warnings.push(`${field}: invalid empty name ""`);
      seen.add(value);
    });
  }
  return warnings;
}

function containerWarnings(container: JsonObject, path: string): string[] {
  const warnings: string[] = [];
  for (const part of ['limits', 'requests']) {
    for (const name of ['memory', 'ephemeral-storage']) {
      const value = at(container, 'resources', part, name);
      if ((quantityNano(value) ?? 0n) % WHOLE === 0n) continue;
      const field = `${path}.resources.${part}[${name}]`;
      warnings.push(
        `${field}: fractional byte value ${JSON.stringify(value)} is invalid, must be an integer`,
      );
    }
  }
  const names = new Set<unknown>();
  listAt(container, 'env').forEach(({ name, value = '', valueFrom }, i) => {
    const own = `$(${name})`;
    const keeps = valueFrom === undefined && value !== own && String(value).includes(own);
    if (names.has(name) && !keeps) {
      const what = `hides previous definition of ${JSON.stringify(name)}`;
      warnings.push(`${path}.env[${i}]: ${what}, which may be dropped when using apply`);
    }
    names.add(name);
  });
  return warnings;
}

interface Port {
  readonly field: string;
  readonly key: string;
  readonly hostIP: string;
  readonly hostPort: number;
}

function portWarnings(spec: JsonObject, path: string): string[] {
  const warnings: string[] = [];
  const before: Port[] = [];
  for (const [container, field] of containersOf(spec, path)) {
    listAt(container, 'ports').forEach((port, i) => {
      const { name = '', containerPort = 0, protocol = '', hostIP = '', hostPort = 0 } = port;
      const own: Port = {
        field: `${field}.ports[${i}]`,
        key: `${containerPort}/${protocol}`,
        hostIP: String(hostIP),
        hostPort: Number(hostPort),
      };
      if (own.hostIP !== '' && own.hostPort === 0) {
        const text = `{Name:${name} HostPort:0 ContainerPort:${containerPort} Protocol:${protocol} HostIP:${hostIP}}`;
        warnings.push(`${own.field}: hostIP set without hostPort: ${text}`);
      }
      for (const other of before.filter(({ key }) => key === own.key)) {
        const what = overlap(own, other);
        if (what) warnings.push(`${own.field}: ${what} port definition with ${other.field}`);
      }
      before.push(own);
    });
  }
  return warnings;
}

/** Returns how two definitions of one port collide; null if they do not. */
function overlap(a: Port, b: Port): string | null {
  if (a.hostIP === b.hostIP && a.hostPort === b.hostPort) return 'duplicate';
  if (a.hostPort === 0 || b.hostPort === 0) return 'overlapping';
  const isOneOpen = (a.hostIP === '') !== (b.hostIP === '');
  return a.hostPort === b.hostPort && isOneOpen ? 'dangerously ambiguous' : null;
}
