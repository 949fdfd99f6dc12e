import { execFileSync } from 'node:child_process';
import { pausePid } from '../../src/cluster/places.ts';
import type { Pod } from '../../src/kube/types.ts';
import type { Cluster } from './cluster.ts';

/** A network namespace of a cluster. */
export interface ClusterPlace {
  /** As traces and captures name it: "node-1", "outside", "pod default/client". */
  readonly name: string;
  /** Its file. */
  readonly netns: string;
}

/** Returns the namespaces of the nodes, of the client outside and of the pods. */
export function clusterPlaces(cluster: Cluster, pods: readonly Pod[]): ClusterPlace[] {
  // The folders of pods are found by it.
  process.env['FAIRLEAD_STATE'] = cluster.stateRoot;
  const state = cluster.state();
  const hosts = [...state.nodes.map(({ name }) => name), 'outside'];
  return [
    ...hosts.map((name) => ({ name, netns: `/run/netns/fl-${cluster.name}-${name}` })),
    ...pods.flatMap(({ metadata, spec }) => {
      if (spec?.hostNetwork || !spec?.nodeName || !metadata?.uid) return [];
      const pid = pausePid(state, spec.nodeName, metadata.uid);
      return [{ name: `pod ${metadata.namespace}/${metadata.name}`, netns: `/proc/${pid}/ns/net` }];
    }),
  ];
}

/** Returns the namespace of the control plane, which is also the wire between the nodes. */
export const wirePlace = ({ name }: Cluster): ClusterPlace => ({
  name: 'control-plane',
  netns: `/run/netns/fl-${name}-wire`,
});

/** Runs a program in a namespace; returns its output. */
export const runIn = ({ netns }: ClusterPlace, ...command: readonly string[]): string =>
  execFileSync('nsenter', [`--net=${netns}`, ...command], { encoding: 'utf8' });

/** Returns the number of packet sockets in a namespace. */
export const packetSockets = (place: ClusterPlace): number =>
  runIn(place, 'cat', '/proc/net/packet').trim().split('\n').length - 1;
