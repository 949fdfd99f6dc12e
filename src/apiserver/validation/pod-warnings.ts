import { at, isObject, type JsonObject, listAt } from '../object.ts';
import { addressWarnings } from './addresses.ts';
import { annotationWarnings } from './annotation-warnings.ts';
import { labelValueProblems } from './names.ts';
import { claimWarnings, fractionWarnings, termWarnings } from './object-warnings.ts';
import { OLD_LABELS } from './old-labels.ts';
import { PREFERRED_TERMS, REQUIRED_TERMS } from './scheduling.ts';

const NO_SELECTOR = 'a null labelSelector results in matching no pod';

/**
 * Returns what is valid in a pod or its template, but hardly intended; `path` is that of its spec, and beside it that of
 * its metadata.
 */
export function podWarnings(
  spec: JsonObject,
  path: string,
  annotations: Readonly<Record<string, unknown>> = {},
): string[] {
  const containers = containersOf(spec, path).map(([container]) => container);
  return [
    ...labelWarnings(spec, path),
    ...selectorWarnings(spec, path),
    ...annotationWarnings(annotations, spec, containers, path.replace(/spec$/, 'metadata')),
    ...volumeWarnings(spec, path),
    ...duplicateWarnings(spec, path),
    ...BYTES.flatMap((name) => fractionWarnings(spec['overhead'], name, `${path}.overhead`)),
    ...listAt(spec, 'hostAliases').flatMap(({ ip }, i) =>
      addressWarnings(ip, `${path}.hostAliases[${i}].ip`),
    ),
    ...nameServersOf(spec).flatMap((ip, i) => addressWarnings(ip, `${path}.dnsConfig.nameservers[${i}]`)),
    ...containersOf(spec, path).flatMap(([container, field]) => containerWarnings(container, field)),
    ...portWarnings(spec, path),
    ...(Number(spec['terminationGracePeriodSeconds'] ?? 0) < 0
      ? [
          `${path}.terminationGracePeriodSeconds: must be >= 0; negative values are invalid and will be treated as 1`,
        ]
      : []),
  ];
}

const BYTES = ['memory', 'ephemeral-storage'];

function nameServersOf(spec: JsonObject): unknown[] {
  const given = at(spec, 'dnsConfig', 'nameservers');
  return Array.isArray(given) ? given : [];
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
    ...chosen.flatMap((key) =>
      Object.hasOwn(OLD_LABELS, key) ? [`${path}.nodeSelector[${key}]: ${OLD_LABELS[key]}`] : [],
    ),
    ...terms.flatMap(([term, field]) => termWarnings(term, field)),
    ...listAt(spec, 'affinity', 'nodeAffinity', PREFERRED_TERMS).flatMap((one, i) =>
      valueWarnings(one['preference'], `${affinity}.${PREFERRED_TERMS}[${i}].preference`),
    ),
    ...listAt(spec, 'topologySpreadConstraints').flatMap(({ topologyKey }, i) => {
      const old = OLD_LABELS[String(topologyKey)];
      return old ? [`${path}.topologySpreadConstraints[${i}].topologyKey: ${topologyKey} is ${old}`] : [];
    }),
  ];
}

/** Warns of values that no label has; a term that has to match must not have them. */
const valueWarnings = (term: unknown, path: string): string[] =>
  listAt(isObject(term) ? term : {}, 'matchExpressions').flatMap(({ operator, values }, i) => {
    if (operator === 'Gt' || operator === 'Lt' || !Array.isArray(values)) return [];
    return values.flatMap((value, j) =>
      labelValueProblems(String(value)).map((problem) => {
        const detail = problem.replace(/ characters$/, ' bytes');
        return `${path}.matchExpressions[${i}].values[${j}]: ${value} is invalid, ${detail}`;
      }),
    );
  });

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
    ...projectedWarnings(volume),
    ...Object.entries(OLD_VOLUMES).flatMap(([kind, text]) =>
      isObject(volume[kind]) ? [`${path}.volumes[${i}].${kind}: ${text}`] : [],
    ),
    ...claimWarnings(
      at(volume, 'ephemeral', 'volumeClaimTemplate', 'spec'),
      `${path}.volumes[${i}].ephemeral.volumeClaimTemplate.spec`,
    ),
    ...listAt(volume, 'projected', 'sources').flatMap((source) =>
      Object.values(source).some(isObject)
        ? []
        : [`volume ${JSON.stringify(volume['name'])} (Projected) has no sources provided`],
    ),
  ]);
}

const OLD_VOLUMES: Readonly<Record<string, string>> = {
  photonPersistentDisk: 'deprecated in v1.11, non-functional in v1.16+',
  gitRepo: 'deprecated in v1.11',
  scaleIO: 'deprecated in v1.16, non-functional in v1.22+',
  flocker: 'deprecated in v1.22, non-functional in v1.25+',
  storageos: 'deprecated in v1.22, non-functional in v1.25+',
  quobyte: 'deprecated in v1.22, non-functional in v1.25+',
  glusterfs: 'deprecated in v1.25, non-functional in v1.26+',
  cephfs: 'deprecated in v1.28, non-functional in v1.31+',
  rbd: 'deprecated in v1.28, non-functional in v1.31+',
};

const isOverlap = (a: string, b: string): boolean => `${a}/`.startsWith(`${b}/`) || b.startsWith(`${a}/`);

/** Warns of files of a projected volume of which the second one replaces the first. */
function projectedWarnings(volume: JsonObject): string[] {
  const files: { path: string; from: string }[] = [];
  for (const source of listAt(volume, 'projected', 'sources')) {
    for (const [field, title] of PROJECTED) {
      const one = source[field];
      if (!isObject(one)) continue;
      const from = one['name'] === undefined ? title : `${title} ${JSON.stringify(one['name'])}`;
      const paths = [...listAt(one, 'items').map(({ path }) => path), one['path']];
      for (const path of paths) if (typeof path === 'string') files.push({ path, from });
    }
  }
  return files.flatMap((file, i) =>
    files
      .slice(0, i)
      .filter((other) => isOverlap(file.path, other.path))
      .map(
        (other) =>
          `volume ${JSON.stringify(volume['name'])} (Projected): overlapping paths: "${file.path}" (${file.from}) with "${other.path}" (${other.from})`,
      ),
  );
}

const PROJECTED = [
  ['configMap', 'ConfigMap'],
  ['secret', 'Secret'],
  ['downwardAPI', 'DownwardAPI'],
  ['serviceAccountToken', 'ServiceAccountToken'],
] as const;

/** Warns of files of one volume of which the second one replaces the first. */
function pathWarnings(volume: JsonObject): string[] {
  const name = JSON.stringify(volume['name']);
  return FILE_SOURCES.flatMap(([source, title, key]) => {
    const files = listAt(volume, source, 'items').map(({ path }) => String(path ?? ''));
    const object = key === null ? '' : ` ${JSON.stringify(at(volume, source, key))}`;
    return files.flatMap((file, i) =>
      files
        .slice(0, i)
        .filter((other) => isOverlap(file, other))
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
    for (const name of BYTES) {
      warnings.push(...fractionWarnings(at(container, 'resources', part), name, `${path}.resources.${part}`));
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

/** Earlier definitions of one port with which a later one is compared. */
const MAX_COMPARED = 16;

function portWarnings(spec: JsonObject, path: string): string[] {
  const warnings: string[] = [];
  const before = new Map<string, Port[]>();
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
      const others = before.get(own.key) ?? [];
      for (const other of others) {
        const what = overlap(own, other);
        if (what) warnings.push(`${own.field}: ${what} port definition with ${other.field}`);
      }
      if (others.length < MAX_COMPARED) before.set(own.key, [...others, own]);
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
