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

/** Returns a pod's containers in the order in which they are stopped: those of one group concurrently. */
export function stopGroups(pod: Pod): Container[][] {
  const { initContainers: init = [], containers = [] } = pod.spec ?? {};
  const ordinary = [...containers, ...ephemeralOf(pod), ...init.filter((one) => !isSidecar(one))];
  // Sidecars end after the other containers, in reverse order (KEP-753).
  const sidecars = init.filter(isSidecar).reverse();
  return [ordinary, ...sidecars.map((one) => [one])];
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
