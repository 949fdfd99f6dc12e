import { hasReason } from '../kube/client.ts';
import type { ObjectReader } from '../kube/shared-reads.ts';
import { type Pod, RESOURCES, type Service } from '../kube/types.ts';
import { hostPort } from '../lib/address.ts';
import { boundVolume } from './claimed-volumes.ts';
import type { EnvironmentSources } from './environment.ts';
import { podHostname } from './name-resolution.ts';
import { ephemeralOf } from './pod-containers.ts';
import type { VolumeSources } from './volumes.ts';

/** The objects for a pod's environment and volumes, read once. */
export interface PodSources {
  readonly environment: EnvironmentSources;
  readonly volumes: ObjectSources;
}

/** The parts of volumes that are read from the objects that a pod names, and from its own. */
export type ObjectSources = Omit<VolumeSources, 'image' | 'onMachine' | 'token'>;

/** The properties of its node that a pod can learn. */
export interface NodeFacts {
  readonly podIps: readonly string[];
  readonly hostIps: readonly string[];
  readonly nodeName: string;
  readonly allocatable: Readonly<Record<string, string>>;
  readonly apiService: { readonly host: string; readonly port: number };
}

export async function podSources(reader: ObjectReader, pod: Pod, node: NodeFacts): Promise<PodSources> {
  const namespace = pod.metadata?.namespace ?? 'default';
  const volumes = await objectSources(reader, pod, node);
  const links =
    pod.spec?.enableServiceLinks === false
      ? {}
      : serviceLinks(await reader.listIn(RESOURCES.services, namespace));
  const texts = (map: ReadonlyMap<string, Uint8Array> | null) =>
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
    environment: {
      ...volumes.fields,
      configMap: (name) => texts(volumes.configMap(name)),
      secret: (name) => texts(volumes.secret(name)),
      services: { HOSTNAME: podHostname(pod, node.nodeName), ...links, ...services },
    },
    volumes,
  };
}

/** Reads the ConfigMaps and Secrets that a pod names. */
export async function objectSources(reader: ObjectReader, pod: Pod, node: NodeFacts): Promise<ObjectSources> {
  const namespace = pod.metadata?.namespace ?? 'default';
  const names = referenced(pod);
  const configMaps = new Map<string, ReadonlyMap<string, Uint8Array>>();
  const secrets = new Map<string, ReadonlyMap<string, Uint8Array>>();
  await Promise.all([
    ...[...names.configMaps].map(async (name) => {
      const found = await optional(reader.get(RESOURCES.configMaps, name, namespace));
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
      const found = await optional(reader.get(RESOURCES.secrets, name, namespace));
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
  return {
    configMap: (name) => configMaps.get(name) ?? null,
    secret: (name) => secrets.get(name) ?? null,
    claimed: (claim) => boundVolume(reader, pod, claim),
    fields: { pod, podIps: node.podIps, hostIps: node.hostIps, allocatable: node.allocatable },
  };
}

/** Returns variables for the namespace's Services, like Docker's links: WEB_SERVICE_HOST, WEB_PORT_80_TCP_ADDR, … */
function serviceLinks(services: readonly Service[]): Record<string, string> {
  const variables: Record<string, string> = {};
  for (const { metadata, spec } of services) {
    const ip = spec?.clusterIP ?? '';
    const ports = spec?.ports ?? [];
    const [first] = ports;
    if (ip === '' || ip === 'None' || !first) continue;
    const prefix = variableName(metadata?.name ?? '');
    variables[`${prefix}_SERVICE_HOST`] = ip;
    variables[`${prefix}_SERVICE_PORT`] = String(first.port);
    variables[`${prefix}_PORT`] = portUrl(ip, first);
    for (const one of ports) {
      const { name, port, protocol = 'TCP' } = one;
      if (name) variables[`${prefix}_SERVICE_PORT_${variableName(name)}`] = String(port);
      const base = `${prefix}_PORT_${port}_${protocol}`;
      variables[base] = portUrl(ip, one);
      variables[`${base}_PROTO`] = protocol.toLowerCase();
      variables[`${base}_PORT`] = String(port);
      variables[`${base}_ADDR`] = ip;
    }
  }
  return variables;
}

const portUrl = (ip: string, { port, protocol = 'TCP' }: { port: number; protocol?: string }) =>
  `${protocol.toLowerCase()}://${hostPort({ ip, port })}`;
const variableName = (name: string) => name.toUpperCase().replaceAll('-', '_');

function referenced(pod: Pod): { configMaps: Set<string>; secrets: Set<string> } {
  const configMaps = new Set<string>();
  const secrets = new Set<string>();
  const add = (set: Set<string>, name: string | undefined) => {
    if (name) set.add(name);
  };
  const { initContainers = [], containers = [] } = pod.spec ?? {};
  for (const container of [...initContainers, ...containers, ...ephemeralOf(pod)]) {
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
