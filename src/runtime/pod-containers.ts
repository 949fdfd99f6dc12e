import type { Container, Pod } from '../kube/types.ts';
import type { PodHostPort } from './pod-network.ts';

/** A container that is added to a running pod, to look into it (kubectl debug). */
export interface EphemeralContainer extends Container {
  readonly targetContainerName?: string;
}

export function ephemeralOf(pod: Pod): EphemeralContainer[] {
  return (pod.spec as { ephemeralContainers?: EphemeralContainer[] } | undefined)?.ephemeralContainers ?? [];
}

/** Always-restarting init containers: sidecars (KEP-753). */
export function isSidecar(container: Container): boolean {
  return (container as { restartPolicy?: string }).restartPolicy === 'Always';
}

/** The ports of the node that the pod's containers ask for; on the node's own network they have them anyway. */
export function hostPortsOf(pod: Pod): PodHostPort[] {
  const containers = [...(pod.spec?.initContainers ?? []).filter(isSidecar), ...(pod.spec?.containers ?? [])];
  return containers.flatMap(({ ports = [] }) =>
    ports.flatMap(({ hostPort, hostIP = '', protocol = 'TCP', containerPort }) =>
      hostPort ? [{ hostIP, hostPort, containerPort, protocol: protocol as PodHostPort['protocol'] }] : [],
    ),
  );
}
