import { isDeepStrictEqual } from 'node:util';
import { stringify } from 'yaml';
import { commandAccessYaml } from './command-access-objects.ts';
import { DNS_REPLICAS } from './dns-objects.ts';
import { installationObjects, objectsYaml } from './installation-objects.ts';
import { CONFIGURATION_FILE, INSTALLATIONS, type Installation } from './installation-shared.ts';
import { version } from './version.ts';

type KubeObject = Record<string, unknown>;

/** One operation of a JSON patch (RFC 6902). */
interface PatchOperation {
  readonly op: 'add' | 'remove' | 'replace';
  readonly path: string;
  readonly value?: unknown;
}

/**
 * Returns the files below deploy/kustomize, path → text: a base with the objects that all installations have, and for each
 * installation an overlay with its configuration, its further objects and its patches of the base.
 */
export function kustomizeFiles(): ReadonlyMap<string, string> {
  const isInAll = (object: KubeObject) =>
    INSTALLATIONS.every((parts) => objectsOf(parts).some((one) => isSame(one, object)));
  const base = objectsOf('proxy').filter((object) => !isConfiguration(object) && isInAll(object));
  return new Map([
    ['base/kustomization.yaml', kustomization({ resources: ['fairlead.yaml'] })],
    ['base/fairlead.yaml', objectsYaml(base)],
    ...INSTALLATIONS.flatMap((parts) => overlayFiles(parts, base)),
    ['commands/kustomization.yaml', kustomization({ resources: ['fairlead.yaml'] })],
    ['commands/fairlead.yaml', commandAccessYaml('kube-system')],
  ]);
}

/** The user replaces the address in the configuration. */
const objectsOf = (parts: Installation): KubeObject[] =>
  installationObjects({
    parts,
    namespace: 'kube-system',
    image: `fairlead:${version}`,
    mode: 'nftables',
    server: 'https://API-SERVER:6443',
    servers: [],
    clusterCidr: '',
    dnsAddress: '10.96.0.10',
    dnsReplicas: DNS_REPLICAS,
    clusterDomain: 'cluster.local',
    uplink: '',
    pool: [],
    commands: false,
    privileged: true,
    metricsAddress: '',
    monitors: [],
  });

function overlayFiles(parts: Installation, base: readonly KubeObject[]): [path: string, text: string][] {
  const objects = objectsOf(parts);
  const configuration = objects.find(isConfiguration);
  const others = objects.filter((object) => object !== configuration);
  const added = others.filter((object) => !base.some((one) => isSame(one, object)));
  const patches = base.flatMap((before) => {
    const after = others.find((one) => isSame(one, before));
    const operations = after ? jsonPatch(before, after) : [];
    return operations.length === 0 ? [] : [{ target: before, operations }];
  });
  const { name, namespace, labels } = metadataOf(configuration ?? {});
  const patchFile = (target: KubeObject) => `${String(target['kind']).toLowerCase()}.patch.yaml`;
  const file = (path: string, text: string): [string, string] => [`${parts}/${path}`, text];
  return [
    file(
      'kustomization.yaml',
      kustomization({
        resources: ['../base', ...(added.length > 0 ? ['fairlead.yaml'] : [])],
        configMapGenerator: [
          {
            name,
            namespace,
            files: [CONFIGURATION_FILE],
            // The DaemonSet is restarted by hand, node after node, when the configuration has changed.
            options: { disableNameSuffixHash: true, labels },
          },
        ],
        ...(patches.length === 0
          ? {}
          : {
              patches: patches.map(({ target }) => ({
                path: patchFile(target),
                target: { kind: target['kind'], name: metadataOf(target)['name'] },
              })),
            }),
        images: [{ name: 'fairlead', newTag: version }],
        ...(parts === 'proxy' ? {} : { labels: [{ pairs: { 'app.kubernetes.io/component': parts } }] }),
      }),
    ),
    file(
      CONFIGURATION_FILE,
      (configuration?.['data'] as Record<string, string> | undefined)?.[CONFIGURATION_FILE] ?? '',
    ),
    ...(added.length > 0 ? [file('fairlead.yaml', objectsYaml(added))] : []),
    ...patches.map(({ target, operations }) => file(patchFile(target), stringify(operations))),
  ];
}

const kustomization = (fields: object): string =>
  stringify({ apiVersion: 'kustomize.config.k8s.io/v1beta1', kind: 'Kustomization', ...fields });

const isConfiguration = ({ kind }: KubeObject): boolean => kind === 'ConfigMap';
const metadataOf = (object: KubeObject) => (object['metadata'] ?? {}) as KubeObject;
const identity = (object: KubeObject) => [
  object['kind'],
  metadataOf(object)['namespace'],
  metadataOf(object)['name'],
];
const isSame = (a: KubeObject, b: KubeObject) => isDeepStrictEqual(identity(a), identity(b));

/** Returns the operations that make `after` of `before`, so that the elements of lists keep their order. */
export function jsonPatch(before: unknown, after: unknown, path = ''): PatchOperation[] {
  if (isDeepStrictEqual(before, after)) return [];
  if (Array.isArray(before) && Array.isArray(after)) return listPatch(before, after, path);
  if (!isFields(before) || !isFields(after)) return [{ op: 'replace', path, value: after }];
  const at = (name: string) => `${path}/${name.replaceAll('~', '~0').replaceAll('/', '~1')}`;
  const names = [...new Set([...Object.keys(before), ...Object.keys(after)])];
  return names.flatMap((name): PatchOperation[] => {
    if (!(name in after)) return [{ op: 'remove', path: at(name) }];
    if (!(name in before)) return [{ op: 'add', path: at(name), value: after[name] }];
    return jsonPatch(before[name], after[name], at(name));
  });
}

const isFields = (value: unknown): value is Record<string, unknown> =>
  typeof value === 'object' && value !== null && !Array.isArray(value);

/** Removes or adds elements, if that is all; lists of the same length are patched by their elements. */
function listPatch(before: readonly unknown[], after: readonly unknown[], path: string): PatchOperation[] {
  const added = elementsBesides(before, after);
  if (added) return added.map((index) => ({ op: 'add', path: `${path}/${index}`, value: after[index] }));
  const removed = elementsBesides(after, before);
  // From the end, so that the places of the others stay.
  if (removed) return removed.reverse().map((index) => ({ op: 'remove', path: `${path}/${index}` }));
  if (before.length === after.length)
    return before.flatMap((one, index) => jsonPatch(one, after[index], `${path}/${index}`));
  return [{ op: 'replace', path, value: after }];
}

/** Returns the places in `all` of the elements that are not in `some`, which keeps their order; null: it has others. */
function elementsBesides(some: readonly unknown[], all: readonly unknown[]): number[] | null {
  const besides: number[] = [];
  let found = 0;
  for (const [index, one] of all.entries()) {
    if (found < some.length && isDeepStrictEqual(one, some[found])) found++;
    else besides.push(index);
  }
  return found === some.length ? besides : null;
}
