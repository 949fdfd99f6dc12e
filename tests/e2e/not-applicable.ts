import { closeSync } from 'node:fs';
import { libc } from '../../src/kernel/libc.ts';

/**
 * Specs that cannot pass on `fairlead up`, because of its architecture, the machine or the images, with the
 * reason.
 */
export interface NotApplicable {
  /** Part of the spec's name. */
  readonly name: string;
  /** Part of the failure message for this reason; a spec that fails with another message has failed. */
  readonly failure: string;
  readonly reason: string;
  /** Only in these modes; all if omitted. */
  readonly modes?: readonly string[];
}

const ENVIRONMENT =
  'the shell of the image (BusyBox 1.35 of Debian) drops variables whose names are not identifiers, such as data-1; the container has them (/proc/1/environ)';
const NODE_SEEN =
  "the proxy opens connections of its own: the server sees the node's address (docs/userspace.md)";
const CONTROL_GROUPS =
  "the machine's cpu and memory controllers are in cgroup v1, where limits are not set; upstream's kubelet 1.36 does not start there by default";

export const NOT_APPLICABLE: readonly NotApplicable[] = [
  { name: 'be consumable via the environment', failure: 'in container output', reason: ENVIRONMENT },
  {
    name: 'be consumable as environment variable names',
    failure: 'in container output',
    reason: ENVIRONMENT,
  },
  { name: 'Pod InPlace Resize', failure: 'failed to read cgroup value', reason: CONTROL_GROUPS },
  {
    name: 'should implement NodePort and HealthCheckNodePort correctly when ExternalTrafficPolicy changes',
    failure: 'expected client IP to be preserved',
    modes: ['userspace'],
    reason: NODE_SEEN,
  },
  {
    name: 'should implement NodePort and HealthCheckNodePort correctly when ExternalTrafficPolicy changes',
    // The pod networks of the cluster of real kubelets, whose nodes are connected by VXLAN.
    failure: 'expected client IP to be preserved Expected <string>: 10.6',
    reason:
      "a node's own connection to its node port is masqueraded, as by kube-proxy, and has the address of the tunnel's device when the pod is on another node; with plain routes it has the node's",
  },
  {
    name: 'should preserve source pod IP for traffic thru service cluster IP',
    failure: 'expected preserved source IP',
    modes: ['userspace'],
    reason: NODE_SEEN,
  },
  {
    name: 'should support externalTrafficPolicy=Local for type=NodePort',
    failure: 'is not the client IP',
    modes: ['userspace'],
    reason: NODE_SEEN,
  },
  {
    name: 'ExternalTrafficPolicy: Local [Feature:LoadBalancer] [Slow] should work for type=LoadBalancer',
    failure: 'Source IP was NOT preserved',
    reason:
      "the spec takes any client address of the nodes' subnet for a node's: the server sees the machine's own address, which is in that subnet",
  },
  {
    name: 'be able to switch session affinity for LoadBalancer service with Local traffic policy',
    failure: "Affinity shouldn't hold but did",
    reason:
      'one node announces an address: with the traffic policy Local, all connections go to the pods of that node, and each node has one pod of the spec (docs/load-balancer.md)',
  },
  {
    name: 'Aggregator Should be able to support the 1.17 Sample API Server',
    failure: 'error waiting for deployment "sample-apiserver-deployment"',
    reason: 'the test bed has no image sample-apiserver; tests/manifests/aggregated-api.yaml does the same',
  },
  {
    name: 'health handlers should contain necessary checks',
    failure: 'missing required /healthz?verbose=1 checks',
    reason: "the spec names the steps of kube-apiserver's own start, which this server does not have",
  },
  {
    name: 'API priority and fairness should ensure that requests can be classified',
    failure: 'context deadline',
    reason: 'requests have no priorities (docs/limits.md)',
  },
  {
    name: 'should handle in-cluster config',
    failure: 'exec agnhost -- /bin/sh -x -c /tmp/k',
    reason: "the test bed's kubectl needs a C library, which the image of the spec does not have",
  },
  {
    name: 'allow almost all printable ASCII characters as environment variable names',
    failure: 'in container output',
    reason: ENVIRONMENT,
  },
  {
    name: 'PrivilegedPod [NodeConformance] should enable privileged commands',
    failure: 'Operation not supported',
    reason: "the machine's kernel has no dummy devices (CONFIG_DUMMY)",
  },
  {
    name: 'Sysctls [LinuxOnly] [NodeConformance] should not launch unsafe',
    failure: 'expected pod to be failed with reason SysctlForbidden',
    reason: "sysctls of the pod's own namespaces need no permission (docs/limits.md)",
  },
  {
    name: 'Mount propagation should propagate mounts within defined scopes',
    failure: 'command terminated with exit code 1',
    reason:
      "the spec enters the mount namespace of process 1, the machine's: nodes have no processes of their own",
  },
  {
    name: 'ImageVolume should succeed with pod and pull policy of Always',
    failure: 'command terminated with exit code 1',
    reason: 'the test bed builds the image kitten without /etc/os-release, which the spec reads',
  },
];

/**
 * Specs that need a feature of the machine's kernel. Without it they would wait for minutes, so they are
 * not run.
 */
export interface KernelNeed {
  /** A regular expression of spec names. */
  readonly specs: string;
  /** Returns true if the kernel has the feature. */
  readonly isThere: () => boolean;
  readonly reason: string;
}

const AF_INET = 2;
const SOCK_STREAM = 1;
const IPPROTO_SCTP = 132;

export const KERNEL_NEEDS: readonly KernelNeed[] = [
  {
    specs: '\\[Feature:SCTPConnectivity\\]',
    isThere: canOpenSctp,
    reason:
      "the machine's kernel has no SCTP sockets (CONFIG_IP_SCTP): the servers of the specs do not start",
  },
];

/** Returns true if the machine's kernel has SCTP sockets. */
export function canOpenSctp(): boolean {
  const fd = libc().socket(AF_INET, SOCK_STREAM, IPPROTO_SCTP);
  if (fd >= 0) closeSync(fd);
  return fd >= 0;
}

/**
 * Returns the reason why a spec that failed with a message is not applicable in a mode, or null if it is.
 */
export function notApplicable(spec: string, mode: string, message: string): string | null {
  const row = NOT_APPLICABLE.find(
    ({ name, failure, modes }) =>
      spec.includes(name) && message.includes(failure) && (modes === undefined || modes.includes(mode)),
  );
  return row?.reason ?? null;
}
