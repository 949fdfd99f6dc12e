import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import type { NetnsRef } from '../kernel/netns.ts';
import { readOptionalFile } from '../kernel/optional-file.ts';
import { FairleadError } from '../lib/errors.ts';
import { nodeNetns, outsideNetns, wireNetns } from '../network/topology.ts';
import type { LinkHost } from '../observe/explain-view.ts';
import type { Place } from '../observe/fact-requests.ts';
import type { LocalPlace } from '../observe/gather-facts.ts';
import { cgroupParent } from './processes.ts';
import { type ClusterState, clusterPaths } from './state.ts';

/** Returns the hosts on a local cluster's wire that are not nodes. */
export function linkHosts(state: ClusterState): LinkHost[] {
  return [
    { name: 'outside', addresses: state.outsideAddresses },
    { name: 'control-plane', addresses: state.controlPlaneAddresses },
    // With egress alone, the machine's rules drop connections to its programs.
    { name: 'machine', addresses: state.hostAccess === 'none' ? [] : state.machineAddresses },
  ];
}

/** Renders the resolv.conf of processes that `fairlead exec` runs on a node. */
export function nodeResolvConf({ dnsAddresses, clusterDomain }: ClusterState): string {
  const lines = [
    ...dnsAddresses.map((address) => `nameserver ${address}`),
    `search default.svc.${clusterDomain} svc.${clusterDomain} ${clusterDomain}`,
    'options ndots:5',
  ];
  return `${lines.join('\n')}\n`;
}

/** Returns the pause process of a pod. Throws if the pod is not running. */
export function pausePid(state: ClusterState, node: string, uid: string): number {
  const file = join(clusterPaths(state.name).nodeState(node), 'pods', uid, 'sandbox.json');
  const text = readOptionalFile(file);
  if (text === null)
    throw new FairleadError(`no pod with the uid ${uid} is running on ${node}: it has just ended`, {
      op: 'find a pod',
      code: 'ENOENT',
      hint: 'kubectl get pods -A',
    });
  return (JSON.parse(text) as { pause: { pid: number } }).pause.pid;
}

/**
 * Returns the namespaces and files of a place in a local cluster; `machine` is the machine's own network namespace. Throws
 * if the pod is not running.
 */
export function localPlace(state: ClusterState, place: Place, machine: NetnsRef): LocalPlace {
  const ofMachine = {
    resolvConf: () => readOptionalFile('/etc/resolv.conf') ?? '',
    hosts: () => readOptionalFile('/etc/hosts') ?? '',
  };
  switch (place.kind) {
    case 'pod':
    case 'host-pod': {
      const folder = join(clusterPaths(state.name).nodeState(place.node), 'pods', place.uid);
      return {
        netns:
          place.kind === 'pod'
            ? { pid: pausePid(state, place.node, place.uid) }
            : nodeNetns(state.name, place.node),
        controlGroup: cgroupParent(state.name, place.node),
        resolvConf: () => readFileSync(join(folder, 'resolv.conf'), 'utf8'),
        hosts: () => readFileSync(join(folder, 'hosts'), 'utf8'),
      };
    }
    case 'node':
      return {
        netns: nodeNetns(state.name, place.node),
        controlGroup: cgroupParent(state.name, place.node),
        resolvConf: () => nodeResolvConf(state),
        hosts: ofMachine.hosts,
      };
    case 'host': {
      const named: Readonly<Record<string, LocalPlace['netns']>> = {
        outside: outsideNetns(state.name),
        'control-plane': wireNetns(state.name),
        machine,
      };
      return { ...ofMachine, netns: named[place.name] ?? outsideNetns(state.name), controlGroup: null };
    }
  }
}
