import type { Command } from './command.ts';

export interface CommandEntry {
  readonly name: string;
  /** Started by other commands, not by people: left out of the help and of README. */
  readonly internal?: boolean;
  /** A chunk of the bundle for each, so that a command loads only what it runs. */
  readonly load: () => Promise<{ readonly command: Command }>;
  /** Equal to the command's own, for the overview, which loads none of them. */
  readonly summary: string;
}

export const COMMANDS: readonly CommandEntry[] = [
  { name: 'up', summary: 'start a local cluster and wait until it is ready', load: () => import('./up.ts') },
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
    name: 'status',
    summary: 'show processes, nodes and Services, and what is unhealthy and why',
    load: () => import('./status.ts'),
  },
  { name: 'kubeconfig', summary: 'print the path of the kubeconfig', load: () => import('./kubeconfig.ts') },
  { name: 'exec', summary: 'run a command in a pod, on a node or outside', load: () => import('./exec.ts') },
  {
    name: 'explain',
    summary: 'explain the path of a packet, step by step',
    load: () => import('./explain.ts'),
  },
  {
    name: 'check',
    summary: 'send packets through every kind of Service and compare the results',
    load: () => import('./check.ts'),
  },
  {
    name: 'flows',
    summary: 'show connections through Services as they happen',
    load: () => import('./flows.ts'),
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
    summary: 'give load-balancer addresses to the Services of a real cluster',
    load: () => import('./address-controller.ts'),
  },
  {
    name: 'manifests',
    summary: 'print what installs Fairlead on a real cluster',
    load: () => import('./manifests.ts'),
  },
  {
    name: 'preflight',
    summary: 'look at this node for what would keep an agent from working',
    load: () => import('./preflight.ts'),
  },
  {
    name: 'cleanup',
    summary: 'remove everything that an agent wrote on this node',
    load: () => import('./cleanup.ts'),
  },
  {
    name: 'echo',
    summary: 'serve HTTP and UDP answers that name the server',
    load: () => import('./echo.ts'),
  },
  {
    name: 'request',
    summary: 'send requests to a server and count the answers',
    load: () => import('./request.ts'),
  },
  { name: 'control-plane', summary: '', internal: true, load: () => import('./control-plane.ts') },
  { name: 'supervise', summary: '', internal: true, load: () => import('./supervise.ts') },
];
