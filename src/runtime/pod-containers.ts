import type { Container, Pod } from '../kube/types.ts';
import type { PodHostPort } from './pod-network.ts';

/** An ephemeral container (kubectl debug). */
export interface EphemeralContainer extends Container {
  readonly targetContainerName?: string;
}

export function ephemeralOf(pod: Pod): EphemeralContainer[] {
  return (pod.spec as { ephemeralContainers?: EphemeralContainer[] } | undefined)?.ephemeralContainers ?? [];
}

/** Reports whether a container is an always-restarting init container: a sidecar (KEP-753). */
export function isSidecar(container: Container): boolean {
  return (container as { restartPolicy?: string }).restartPolicy === 'Always';
}

/** Returns the host ports of the pod's containers; empty on the host network. */
export function hostPortsOf(pod: Pod): PodHostPort[] {
  const containers = [...(pod.spec?.initContainers ?? []).filter(isSidecar), ...(pod.spec?.containers ?? [])];
  return containers.flatMap(({ ports = [] }) =>
    ports.flatMap(({ hostPort, hostIP = '', protocol = 'TCP', containerPort }) =>
      hostPort ? [{ hostIP, hostPort, containerPort, protocol: protocol as PodHostPort['protocol'] }] : [],
    ),
  );
}
