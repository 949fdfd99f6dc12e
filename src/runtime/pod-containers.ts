import type { Container, Pod } from '../kube/types.ts';
import type { PodHostPort } from './pod-network.ts';
import { type ContainerPhase, isSidecar } from './pod-status.ts';

/** A container that somebody has added to look into a pod (kubectl debug). */
export interface EphemeralContainer extends Container {
  readonly targetContainerName?: string;
}

export function ephemeralOf(pod: Pod): EphemeralContainer[] {
  return (pod.spec as { ephemeralContainers?: EphemeralContainer[] } | undefined)?.ephemeralContainers ?? [];
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

/** All containers have ended and none is to be started again. */
export function isOver({ spec }: Pod, phaseOf: (container: Container) => ContainerPhase): boolean {
  const policy = spec?.restartPolicy ?? 'Always';
  if (policy === 'Always') return false;
  const failed = (phase: ContainerPhase) => phase.kind === 'ended' && phase.termination.exitCode !== 0;
  const init = (spec?.initContainers ?? []).filter((one) => !isSidecar(one));
  if (policy === 'Never' && init.map(phaseOf).some(failed)) return true;
  return (spec?.containers ?? [])
    .map(phaseOf)
    .every((phase) => phase.kind === 'ended' && (policy === 'Never' || !failed(phase)));
}
