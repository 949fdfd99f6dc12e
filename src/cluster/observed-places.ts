import { nodeDevice, observedPlace } from '../agent/observed-devices.ts';
import type { NetnsRef } from '../kernel/netns.ts';
import { OWN_NETNS } from '../kernel/netns.ts';
import type { Pod, Service } from '../kube/types.ts';
import { canonicalAddress } from '../lib/address.ts';
import { podPort } from '../network/pod-link.ts';
import { nodeNetns, outsideNetns, wireNetns } from '../network/topology.ts';
import type { TracedPlace } from '../trace/recorder.ts';
import { pausePid } from './places.ts';
import type { ClusterState } from './state.ts';

/** Describes the network namespaces of a local cluster for observers of their frames. */
export interface PlaceFinder {
  /** A running pod with a network namespace of its own, or null if its process has ended. */
  pod(pod: Pod): TracedPlace | null;
  node(name: string): TracedPlace;
  outside(): TracedPlace;
  controlPlane(): TracedPlace;
  machine(): TracedPlace;
}

/** `machine`: the network namespace of the machine, if it is not this process's. */
export function createPlaceFinder(
  state: ClusterState,
  pods: readonly Pod[],
  machine: NetnsRef = OWN_NETNS,
): PlaceFinder {
  const owners = new Map(pods.map((pod) => [podPort(pod.metadata?.uid ?? ''), podName(pod)]));
  return {
    pod(pod) {
      const netns = pausePidOf(state, pod);
      return netns === null ? null : observedPlace('pod', `pod ${podName(pod)}`, netns, ({ name }) => name);
    },
    node: (name) =>
      observedPlace('node', name, nodeNetns(state.name, name), (link) => nodeDevice(link, owners)),
    outside: () => observedPlace('host', 'outside', outsideNetns(state.name), ({ name }) => name),
    controlPlane: () =>
      // The bridge's ports are the wire, not the control plane.
      observedPlace('host', 'control-plane', wireNetns(state.name), ({ master, name }) =>
        master === null ? name : null,
      ),
    machine: () => observedPlace('host', 'machine', machine, ({ name }) => name),
  };
}

/** The name of a pod or Service: "default/client". */
export const podName = ({ metadata }: Pod | Service) => `${metadata?.namespace}/${metadata?.name}`;

/** The addresses of a pod that has not ended; none if it shares its node's. */
export function ownAddresses({ spec, status }: Pod): string[] {
  if (spec?.hostNetwork || status?.phase === 'Succeeded' || status?.phase === 'Failed') return [];
  return (status?.podIPs ?? []).flatMap(({ ip }) => (ip ? (canonicalAddress(ip) ?? []) : []));
}

function pausePidOf(state: ClusterState, { metadata, spec }: Pod): NetnsRef | null {
  const node = spec?.nodeName;
  if (!node || !metadata?.uid) return null;
  return { pid: pausePid(state, node, metadata.uid) };
}
