import type { CommandEntry } from './command.ts';

export const COMMANDS: readonly CommandEntry[] = [
  { name: 'up', summary: 'start a local cluster and wait until it is ready', load: () => import('./up.ts') },
  {
    name: 'run',
    summary: 'run a command with a local cluster, which is removed afterwards',
    load: () => import('./run.ts'),
  },
  {
    name: 'stop',
    summary: 'stop a local cluster and keep its state for the next "up"',
    load: () => import('./stop.ts'),
  },
  {
    name: 'down',
    summary: 'stop a local cluster and remove all traces of it',
    load: () => import('./down.ts'),
  },
  {
    name: 'snapshot',
    summary: 'write a local cluster to a file, for "restore"',
    load: () => import('./snapshot.ts'),
  },
  {
    name: 'restore',
    summary: 'restore a local cluster from a file of "snapshot"',
    load: () => import('./restore.ts'),
  },
  {
    name: 'status',
    summary: 'show processes, nodes and Services, and all problems with their causes',
    load: () => import('./status.ts'),
  },
  { name: 'clusters', summary: 'list the local clusters', load: () => import('./clusters.ts') },
  { name: 'kubeconfig', summary: 'print the path of the kubeconfig', load: () => import('./kubeconfig.ts') },
  { name: 'exec', summary: 'run a command in a pod, on a node or outside', load: () => import('./exec.ts') },
  { name: 'logs', summary: 'print what a pod has written', load: () => import('./logs.ts') },
  {
    name: 'open',
    summary: 'forward a port of this machine to a Service, until Ctrl-C',
    load: () => import('./open.ts'),
  },
  {
    name: 'explain',
    summary: 'explain the path of a packet, and why it fails',
    load: () => import('./explain.ts'),
  },
  {
    name: 'trace',
    summary: 'send one packet and show every device that it passes',
    load: () => import('./trace.ts'),
  },
  {
    name: 'capture',
    summary: 'record packets of all devices, as text or as a pcapng file',
    load: () => import('./capture.ts'),
  },
  {
    name: 'check',
    summary: 'send packets through Services and network policies, and compare the results',
    load: () => import('./check.ts'),
  },
  {
    name: 'flows',
    summary: 'show connections and DNS lookups as they happen, and why they fail',
    load: () => import('./flows.ts'),
  },
  {
    name: 'ui',
    summary: 'serve a page that shows the cluster and its traffic, until Ctrl-C',
    load: () => import('./ui.ts'),
  },
  {
    name: 'fault',
    summary: 'plant faults to see how the cluster reacts, list them, and undo them',
    load: () => import('./fault.ts'),
  },
  {
    name: 'learn',
    summary: 'learn Kubernetes networking on this cluster, in eight short lessons',
    load: () => import('./learn.ts'),
  },
  {
    name: 'mode',
    summary: 'switch the proxy mode without interrupting traffic',
    load: () => import('./mode.ts'),
  },
  { name: 'image', summary: 'load, pull, list and remove images of pods', load: () => import('./image.ts') },
  { name: 'agent', summary: 'run the node agent of a real cluster', load: () => import('./agent.ts') },
  {
    name: 'address-controller',
    summary: 'assign load-balancer addresses to the Services of a real cluster',
    load: () => import('./address-controller.ts'),
  },
  {
    name: 'dns-server',
    summary: 'answer cluster DNS in a pod, for nodes whose agent does not run',
    load: () => import('./dns-server.ts'),
  },
  {
    name: 'manifests',
    summary: 'print the manifests that install Fairlead on a real cluster',
    load: () => import('./manifests.ts'),
  },
  {
    name: 'doctor',
    summary: 'show what this machine can do for local clusters, why not, and the fix',
    load: () => import('./doctor.ts'),
  },
  {
    name: 'preflight',
    summary: 'check whether the agent can run on this node, or on all nodes of a cluster',
    load: () => import('./preflight.ts'),
  },
  {
    name: 'cleanup',
    summary: 'remove everything that an agent wrote on this node, or on all nodes of a cluster',
    load: () => import('./cleanup.ts'),
  },
  {
    name: 'echo',
    summary: 'run a test server that answers HTTP and UDP with its name',
    load: () => import('./echo.ts'),
  },
  {
    name: 'request',
    summary: 'send requests to a server and count its answers',
    load: () => import('./request.ts'),
  },
  {
    name: 'completion',
    summary: 'print a script that completes commands, options and names in a shell, or the manual page',
    load: async () => ({ command: (await import('./completion.ts')).completionOf(COMMANDS) }),
  },
  { name: 'control-plane', summary: '', internal: true, load: () => import('./control-plane.ts') },
  { name: 'egress', summary: '', internal: true, load: () => import('./egress.ts') },
  { name: 'link-delay', summary: '', internal: true, load: () => import('./link-delay.ts') },
  { name: 'names', summary: '', internal: true, load: () => import('./names.ts') },
  { name: 'pod-runtime', summary: '', internal: true, load: () => import('./pod-runtime.ts') },
  { name: 'published-ports', summary: '', internal: true, load: () => import('./published-ports.ts') },
  { name: 'pull-image', summary: '', internal: true, load: () => import('./pull-image.ts') },
  { name: 'supervise', summary: '', internal: true, load: () => import('./supervise.ts') },
];
