import type { CleanupStep } from '../agent/cleanup.ts';
import { NODE_CONTROL_GROUPS } from '../kernel/control-group.ts';
import { FairleadError } from '../lib/errors.ts';
import { NODE_ROOT, type NodeProgram, type NodeTargets } from './node-pods.ts';

export const CLEANUP_NAMESPACE = 'fairlead-cleanup';

/** `cleanup` on a node; it has the mounts of the agent, and the files of the node, which it removes. */
export const CLEANUP: NodeProgram<readonly CleanupStep[]> = {
  name: 'cleanup',
  namespace: CLEANUP_NAMESPACE,
  args: ['cleanup', '--output', 'json', '--node-root', NODE_ROOT],
  // It waits a minute for a kube-proxy that has just started.
  patienceMs: 240_000,
  volumes: [
    { name: 'node', path: '/', mountPath: NODE_ROOT },
    { name: 'xtables-lock', path: '/run/xtables.lock', type: 'FileOrCreate' },
    { name: 'modules', path: '/lib/modules', readOnly: true },
    // With the folder above it: only so is the BPF file system that an agent mounted unmounted on the node, too.
    { name: 'sys-fs', path: '/sys/fs', mountPropagation: 'Bidirectional' },
    { name: 'cgroup', path: '/sys/fs/cgroup', mountPath: NODE_CONTROL_GROUPS, readOnly: true },
    { name: 'netns', path: '/run/netns', type: 'DirectoryOrCreate', mountPropagation: 'HostToContainer' },
  ],
  read: ({ steps }) => (Array.isArray(steps) ? (steps as readonly CleanupStep[]) : null),
};

/** Throws FairleadError if agents run on nodes that shall be cleaned up: they would write everything again. */
export function refuseRunningAgents(
  { running }: Pick<NodeTargets, 'running'>,
  nodes: readonly string[],
): void {
  const busy = nodes.filter((node) => running.includes(node));
  if (busy.length === 0) return;
  throw new FairleadError(`an agent runs on ${busy.join(', ')}`, {
    op: 'fairlead cleanup',
    code: 'agent-running',
    hint: 'remove the agents first (kubectl delete -f fairlead.yaml, or helm uninstall), and wait until their pods have ended',
  });
}
