import type { ManifestObject } from '../cluster/manifests.ts';
import type { PublishedPort } from '../cluster/service-port.ts';
import { DEFAULT_CLUSTER } from '../cluster/state.ts';
import type { Service } from '../kube/types.ts';

/** Ports that are HTTP even if nothing says so. */
const HTTP_PORTS: ReadonlySet<number> = new Set([80, 8000, 8080, 3000, 5000]);
const WORKLOADS: ReadonlySet<string> = new Set([
  'Deployment',
  'StatefulSet',
  'DaemonSet',
  'ReplicaSet',
  'Job',
  'Pod',
]);

/** The cluster, and how its user calls this program. */
export interface AdviceScene {
  readonly program: string;
  readonly cluster: string;
  readonly firstNode: string;
  readonly publishedPorts: readonly PublishedPort[];
}

/** Returns the commands to try after `up`, for the objects that it applied. */
export function upAdvice(scene: AdviceScene, applied: readonly ManifestObject[]): string {
  const { program, cluster } = scene;
  const suffix = cluster === DEFAULT_CLUSTER ? '' : ` --name ${cluster}`;
  const namespace = namespaceOf(applied);
  const lines = [
    `export KUBECONFIG=$(${program} kubeconfig${suffix})`,
    `kubectl ${namespace === 'default' ? '' : `-n ${namespace} `}get pods,services -o wide`,
    ...requestLines(scene, suffix, applied, namespace),
    `${program} status${suffix}`,
    `${program} down${suffix}`,
  ];
  return ['try:', ...lines.map((line) => `  ${line}`), ''].join('\n');
}

/** The namespace of the first object that runs pods, else of the first Service. */
function namespaceOf(applied: readonly ManifestObject[]): string {
  const of = (isWanted: (kind: string) => boolean) =>
    applied.find(({ kind }) => kind !== null && isWanted(kind.kind))?.namespace;
  return of((kind) => WORKLOADS.has(kind)) ?? of((kind) => kind === 'Service') ?? 'default';
}

function requestLines(
  { program, firstNode, publishedPorts }: AdviceScene,
  suffix: string,
  applied: readonly ManifestObject[],
  namespace: string,
): readonly string[] {
  const services = applied.filter((one) => one.kind?.kind === 'Service' && one.namespace === namespace);
  const published = publishedPorts.find(({ service }) =>
    services.some(({ name }) => service.namespace === namespace && service.name === name),
  );
  if (published) return [`curl http://127.0.0.1:${published.localPort}`];
  const [service, port] = services.flatMap((one) => {
    const found = httpPort(one.object as Service);
    return found === null ? [] : ([[one, found]] as const);
  })[0] ?? [null, null];
  if (service === null) return [];
  const suffixOfPort = port === 80 ? '' : `:${port}`;
  // A pod that serves nothing is a client.
  const client = applied.find(
    (one) => one.kind?.kind === 'Pod' && one.namespace === namespace && !isServing(one, services),
  );
  if (client) {
    const pod = namespace === 'default' ? client.name : `${namespace}/${client.name}`;
    return [
      `${program} exec${suffix} ${pod} -- fairlead request http://${service.name}${suffixOfPort} --count 300`,
    ];
  }
  const host = `${service.name}.${namespace}${suffixOfPort}`;
  return [`${program} exec${suffix} node/${firstNode} -- fairlead request http://${host} --count 300`];
}

/** Returns the first TCP port of a Service that serves HTTP, as far as its name or number says so; null: none. */
function httpPort({ spec }: Service): number | null {
  const isSelecting = Object.keys(spec?.selector ?? {}).length > 0;
  if (!isSelecting || spec?.type === 'ExternalName') return null;
  const found = (spec?.ports ?? []).find(
    ({ name = '', port, protocol = 'TCP', appProtocol = '' }) =>
      protocol === 'TCP' &&
      (/^http(?!s)/.test(name) || /^(http$|kubernetes\.io\/ws$)/.test(appProtocol) || HTTP_PORTS.has(port)),
  );
  return found?.port ?? null;
}

function isServing({ object }: ManifestObject, services: readonly ManifestObject[]): boolean {
  const labels = (object.metadata?.labels ?? {}) as Readonly<Record<string, string>>;
  return services.some((one) => {
    const wanted = Object.entries((one.object as Service).spec?.selector ?? {});
    return wanted.length > 0 && wanted.every(([key, value]) => labels[key] === value);
  });
}
