import type { constants } from 'node:os';

/** Fairlead's error codes, each with its meaning. Errors of the kernel have the names of errno(3). */
const ERROR_CODES = {
  // Input
  usage: 'the command line is wrong',
  'bad-argument': 'an argument is not a sender or receiver of packets, a filter or a port',
  'bad-cidr': 'a network is malformed, of the wrong family or too small',
  'bad-config': 'a configuration has wrong fields or cannot be read',
  'bad-control-plane': 'a program of a real control plane is missing, or has a wrong version',
  'bad-credentials': 'a file with registry credentials is malformed or cannot be read',
  'bad-kubeconfig': 'a kubeconfig is malformed or refers to missing entries',
  'bad-lesson': 'a lesson of a folder has wrong fields or cannot be read',
  'bad-manifest': 'a manifest cannot be read, or names a kind that is not served',
  'bad-name': 'the name of a cluster is malformed',
  'bad-request': 'a request to an agent is malformed',
  'bad-upgrade': 'a request to switch a connection to another protocol is malformed',
  'streams-missing': 'a client of exec or attach did not open all streams',
  // Missing objects
  'no-address': 'a pod has no address yet',
  'no-cluster': 'there is no cluster of this name',
  'no-container': 'the pod has no container of this name',
  'no-image': 'there is no image of this name',
  'no-node': 'the cluster has no node of this name',
  'no-node-address': 'the node has no address of the IP family',
  'no-pod': 'no node runs a pod of this name',
  'no-such-mode': 'there is no proxy mode of this name',
  'not-found': 'there is no object of this name',
  'no-certificate': 'a node has no certificate, or did not get one that it requested',
  // Clusters and processes
  'bad-state': 'the state file of a cluster cannot be read',
  'cidr-occupied': 'a network is in use on this machine',
  ended: 'a process or the agent ended',
  interrupted: 'the user ended the command',
  locked: 'another command is changing the cluster',
  'other-proxy': 'kube-proxy, or another proxy, runs on this node',
  'refused-by-proxy': 'the HTTP proxy of a kubeconfig refuses a connection to the API server',
  'agent-running': 'an agent runs on a node from which its state shall be removed',
  'not-ready': 'something did not become ready in time',
  'not-root': 'the command must run as root',
  'not-running': 'a process or container is not running',
  refused: 'the API server rejected an object of a manifest',
  // Kernel features
  'bad-object': 'a BPF object cannot be used',
  'group-in-use': 'another agent has attached its BPF programs to the control group',
  'missing-kernel-feature': 'the kernel lacks a feature',
  'no-dummy': 'the kernel has no dummy devices',
  'no-ipvs': 'the kernel has no IPVS',
  'no-ipvs-family': 'IPVS of this kernel does not support the IP family',
  'no-ipvs-setting': 'IPVS of this kernel lacks a setting',
  'no-scheduler': 'the kernel lacks an IPVS scheduler',
  unsupported: 'the proxy mode does not support this, and a retry does not help',
  // Network and images
  'addresses-exhausted': 'all addresses of a pool are in use',
  'bad-archive': 'an image archive is malformed',
  'image-too-large': 'an image exceeds a limit of its contents',
  'not-a-file': 'a path that a pod or an image wrote is not a regular file',
  'bad-image': 'an image or its registry does not follow the specification',
  'bind-failed': 'a DNS listener cannot be opened',
  'image-in-use': 'a container uses the image',
  incomplete: 'a download was interrupted, and will be resumed',
  // Answers of HTTP servers: metav1.StatusReason
  BadRequest: 'the request is malformed',
  InternalError: 'the server failed',
  Invalid: 'the object is invalid',
  MethodNotAllowed: 'the path does not support the method',
  NotFound: 'the path does not exist',
  Forbidden: 'the client may not do this',
  Unauthorized: 'the request has no valid credentials',
  // Reasons of waiting containers and of pod events, with kubelet's names
  CreateContainerConfigError: 'the configuration of a container cannot be created',
  ErrImageNeverPull: 'the image is not present and its pull policy is Never',
  ErrImagePull: 'the image cannot be pulled',
  FailedCreatePodSandBox: 'the sandbox of a pod cannot be created',
  FailedMount: 'a volume cannot be mounted',
  ImageInspectError: 'the image cannot be inspected',
  InvalidImageName: 'the name of an image is malformed',
  NodePorts: 'a host port of the pod is in use',
  RunContainerError: 'a container cannot be started',
} as const;

/**
 * Names of errno(3), where ERESTART is missing in Node.js, and numbers without a name, such as those of
 * ipset.
 */
export type ErrnoName = keyof typeof constants.errno | 'ERESTART' | `errno ${number}`;

export type ErrorCode = keyof typeof ERROR_CODES | ErrnoName;

/**
 * Returns a code received as text, such as the name of an errno or the code of another process; EIO if
 * unknown.
 */
export function errorCode(text: unknown): ErrorCode {
  const isKnown =
    typeof text === 'string' && (Object.hasOwn(ERROR_CODES, text) || /^(E[A-Z0-9]+|errno \d+)$/.test(text));
  return isKnown ? (text as ErrorCode) : 'EIO';
}
