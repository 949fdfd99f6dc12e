import { parseQuantity } from '../kube/quantity.ts';
import type { Container, Pod } from '../kube/types.ts';
import { ownMember } from '../lib/own-member.ts';
import { createTextCount, expand } from './expansion.ts';
import { KubeletError } from './kubelet-error.ts';

/** The objects to which variables may refer; lookups return null if an object does not exist. */
export interface EnvironmentSources {
  readonly pod: Pod;
  readonly podIps: readonly string[];
  readonly hostIps: readonly string[];
  /** The node's resources for pods, used as the limits of containers without limits. */
  readonly allocatable: Readonly<Record<string, string>>;
  configMap(name: string): Readonly<Record<string, string>> | null;
  /** Returns the decoded values of a Secret. */
  secret(name: string): Readonly<Record<string, string>> | null;
  /** Variables of every container: the API server's address, Services of the namespace. */
  readonly services: Readonly<Record<string, string>>;
}

/**
 * Builds a container's environment: the image's, then Services', then envFrom, then env, with $(NAME) replaced. Throws
 * KubeletError "CreateContainerConfigError" that names the missing object or key.
 */
export function containerEnvironment(
  container: Container,
  image: Readonly<Record<string, string>>,
  sources: EnvironmentSources,
): Map<string, string> {
  const result = new Map<string, string>([...Object.entries(image), ...Object.entries(sources.services)]);
  const count = createTextCount();
  const set = (name: string, value: string) => {
    count(value);
    result.set(name, value);
  };
  for (const from of container.envFrom ?? []) {
    const { configMapRef, secretRef, prefix = '' } = from;
    const reference = configMapRef ?? secretRef;
    const kind = configMapRef ? 'configmap' : 'secret';
    const name = reference?.name ?? '';
    const values = configMapRef ? sources.configMap(name) : sources.secret(name);
    if (!values && !reference?.optional) throw missing(`${kind} ${JSON.stringify(name)} not found`);
    for (const [key, value] of Object.entries(values ?? {})) set(prefix + key, value);
  }
  for (const { name, value, valueFrom } of container.env ?? []) {
    if (!valueFrom) {
      set(name, expand(value ?? '', result));
      continue;
    }
    const { fieldRef, resourceFieldRef, configMapKeyRef, secretKeyRef } = valueFrom;
    if (fieldRef) set(name, podField(fieldRef.fieldPath, sources));
    else if (resourceFieldRef) set(name, resourceField(container, resourceFieldRef, sources.allocatable));
    else {
      const reference = configMapKeyRef ?? secretKeyRef;
      const kind = configMapKeyRef ? 'configmap' : 'secret';
      const from = reference?.name ?? '';
      const values = configMapKeyRef ? sources.configMap(from) : sources.secret(from);
      const found = ownMember(values, reference?.key ?? '');
      if (found !== undefined) set(name, found);
      else if (!reference?.optional) {
        throw missing(
          values
            ? `couldn't find key ${reference?.key} in ${kind} ${sources.pod.metadata?.namespace}/${from}`
            : `${kind} ${JSON.stringify(from)} not found`,
        );
      }
    }
  }
  return result;
}

/** Returns the value of a pod's field (fieldRef). Throws KubeletError for an unsupported field. */
export function podField(
  path: string,
  sources: Pick<EnvironmentSources, 'pod' | 'podIps' | 'hostIps'>,
): string {
  const { pod, podIps, hostIps } = sources;
  const metadata = pod.metadata ?? {};
  const keyed = /^metadata\.(labels|annotations)\['([^']+)'\]$/.exec(path);
  if (keyed) {
    const map = keyed[1] === 'labels' ? metadata.labels : metadata.annotations;
    return ownMember(map as Record<string, string> | undefined, keyed[2] ?? '') ?? '';
  }
  const asLines = (map: unknown) =>
    Object.entries((map ?? {}) as Record<string, string>)
      .map(([key, value]) => `${key}=${JSON.stringify(value)}`)
      .sort()
      .join('\n');
  switch (path) {
    case 'metadata.name':
      return metadata.name ?? '';
    case 'metadata.namespace':
      return metadata.namespace ?? '';
    case 'metadata.uid':
      return metadata.uid ?? '';
    case 'metadata.labels':
      return asLines(metadata.labels);
    case 'metadata.annotations':
      return asLines(metadata.annotations);
    case 'spec.nodeName':
      return pod.spec?.nodeName ?? '';
    case 'spec.serviceAccountName':
      return pod.spec?.serviceAccountName ?? 'default';
    case 'status.podIP':
      return podIps[0] ?? '';
    case 'status.podIPs':
      return podIps.join(',');
    case 'status.hostIP':
      return hostIps[0] ?? '';
    case 'status.hostIPs':
      return hostIps.join(',');
    default:
      throw missing(`fieldRef.fieldPath ${JSON.stringify(path)} is not supported`);
  }
}

/** Returns a container's request or limit, divided and rounded up; without a limit, the node's resource. */
export function resourceField(
  container: Container,
  reference: { readonly resource: string; readonly divisor?: unknown },
  allocatable: Readonly<Record<string, string>>,
): string {
  const [kind = '', name = ''] = reference.resource.split('.');
  const { limits, requests } = container.resources ?? {};
  const own =
    kind === 'limits' ? (limits?.[name] ?? allocatable[name]) : (requests?.[name] ?? limits?.[name]);
  const divisor = parseQuantity(String(reference.divisor ?? '1')) || 1;
  // Quantities are decimal; their quotient in binary may be slightly above an integer.
  return String(Math.ceil(Number((parseQuantity(String(own ?? '0')) / divisor).toFixed(6))));
}

function missing(message: string): KubeletError {
  return new KubeletError('CreateContainerConfigError', message, { op: 'build environment' });
}
