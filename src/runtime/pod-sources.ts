import { type Client, hasReason } from '../kube/client.ts';
import { type Container, type Pod, RESOURCES } from '../kube/types.ts';
import type { EnvironmentSources } from './environment.ts';
import type { VolumeSources } from './volumes.ts';

/** The objects that a pod's environment and volumes are made from, read once. */
export interface PodSources {
  /** The pod with the volume of its service account added. */
  readonly pod: Pod;
  /** A container with the service account mounted. */
  container(container: Container): Container;
  readonly environment: EnvironmentSources;
  readonly volumes: VolumeSources;
}

const ACCOUNT_PATH = '/var/run/secrets/kubernetes.io/serviceaccount';
const ACCOUNT_VOLUME = 'kube-api-access';

export async function podSources(
  client: Client,
  given: Pod,
  node: {
    readonly podIps: readonly string[];
    readonly hostIps: readonly string[];
    readonly apiService: { readonly host: string; readonly port: number };
  },
): Promise<PodSources> {
  const account = given.spec?.automountServiceAccountToken !== false && node.apiService.host !== '';
  const pod = account ? withAccountVolume(given) : given;
  const namespace = pod.metadata?.namespace ?? 'default';
  const names = referenced(pod);
  const configMaps = new Map<string, ReadonlyMap<string, Uint8Array>>();
  const secrets = new Map<string, ReadonlyMap<string, Uint8Array>>();
  await Promise.all([
    ...[...names.configMaps].map(async (name) => {
      const found = await optional(client.get(RESOURCES.configMaps, name, namespace));
      if (!found) return;
      const plain = Object.entries(found.data ?? {}).map(
        ([key, value]) => [key, Buffer.from(String(value))] as const,
      );
      const binary = Object.entries(found.binaryData ?? {}).map(
        ([key, value]) => [key, Buffer.from(String(value), 'base64')] as const,
      );
      configMaps.set(name, new Map([...plain, ...binary]));
    }),
    ...[...names.secrets].map(async (name) => {
      const found = await optional(client.get(RESOURCES.secrets, name, namespace));
      if (found)
        secrets.set(
          name,
          new Map(
            Object.entries(found.data ?? {}).map(([key, value]) => [
              key,
              Buffer.from(String(value), 'base64'),
            ]),
          ),
        );
    }),
  ]);
  const texts = (map: ReadonlyMap<string, Uint8Array> | undefined) =>
    map
      ? Object.fromEntries([...map].map(([key, value]) => [key, Buffer.from(value).toString('utf8')]))
      : null;
  const { host, port } = node.apiService;
  const services: Record<string, string> = host
    ? {
        KUBERNETES_SERVICE_HOST: host,
        KUBERNETES_SERVICE_PORT: String(port),
        KUBERNETES_SERVICE_PORT_HTTPS: String(port),
      }
    : {};
  return {
    pod,
    container: (container) => (account ? withAccountMount(container) : container),
    environment: {
      pod,
      podIps: node.podIps,
      hostIps: node.hostIps,
      configMap: (name) => texts(configMaps.get(name)),
      secret: (name) => texts(secrets.get(name)),
      services: { HOSTNAME: pod.spec?.hostname ?? pod.metadata?.name ?? '', ...services },
    },
    volumes: {
      configMap: (name) => configMaps.get(name) ?? null,
      secret: (name) => secrets.get(name) ?? null,
      async token(audience, expirationSeconds) {
        const accountName = pod.spec?.serviceAccountName ?? 'default';
        const { name, uid } = pod.metadata ?? {};
        const answer = (await client.request(
          'POST',
          `/api/v1/namespaces/${namespace}/serviceaccounts/${accountName}/token`,
          {
            apiVersion: 'authentication.k8s.io/v1',
            kind: 'TokenRequest',
            spec: {
              expirationSeconds,
              ...(audience ? { audiences: [audience] } : {}),
              boundObjectRef: { kind: 'Pod', apiVersion: 'v1', name, uid },
            },
          },
        )) as { status?: { token?: string } };
        return answer.status?.token ?? '';
      },
      fields: { pod, podIps: node.podIps, hostIps: node.hostIps },
    },
  };
}

/** The volume that upstream's admission adds to every pod: token, authority, namespace (KEP-1205). */
function withAccountVolume(pod: Pod): Pod {
  if (!pod.spec) return pod;
  const volume = {
    name: ACCOUNT_VOLUME,
    projected: {
      defaultMode: 0o644,
      sources: [
        { serviceAccountToken: { path: 'token', expirationSeconds: 3607 } },
        {
          configMap: { name: 'kube-root-ca.crt', items: [{ key: 'ca.crt', path: 'ca.crt' }], optional: true },
        },
        { downwardAPI: { items: [{ path: 'namespace', fieldRef: { fieldPath: 'metadata.namespace' } }] } },
      ],
    },
  };
  return { ...pod, spec: { ...pod.spec, volumes: [...(pod.spec.volumes ?? []), volume] } };
}

function withAccountMount(container: Container): Container {
  const mounts = container.volumeMounts ?? [];
  if (mounts.some((mount) => mount.mountPath === ACCOUNT_PATH)) return container;
  return {
    ...container,
    volumeMounts: [...mounts, { name: ACCOUNT_VOLUME, mountPath: ACCOUNT_PATH, readOnly: true }],
  };
}

function referenced(pod: Pod): { configMaps: Set<string>; secrets: Set<string> } {
  const configMaps = new Set<string>();
  const secrets = new Set<string>();
  const add = (set: Set<string>, name: string | undefined) => {
    if (name) set.add(name);
  };
  for (const container of [...(pod.spec?.initContainers ?? []), ...(pod.spec?.containers ?? [])]) {
    for (const { configMapRef, secretRef } of container.envFrom ?? []) {
      add(configMaps, configMapRef?.name);
      add(secrets, secretRef?.name);
    }
    for (const { valueFrom } of container.env ?? []) {
      add(configMaps, valueFrom?.configMapKeyRef?.name);
      add(secrets, valueFrom?.secretKeyRef?.name);
    }
  }
  for (const { configMap, secret, projected } of pod.spec?.volumes ?? []) {
    add(configMaps, configMap?.name);
    add(secrets, secret?.secretName);
    for (const source of projected?.sources ?? []) {
      add(configMaps, source.configMap?.name);
      add(secrets, source.secret?.name);
    }
  }
  return { configMaps, secrets };
}

async function optional<T>(found: Promise<T>): Promise<T | null> {
  try {
    return await found;
  } catch (error) {
    if (hasReason(error, 'NotFound')) return null;
    throw error;
  }
}
