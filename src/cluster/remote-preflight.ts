import type { Finding } from '../agent/preflight-finding.ts';
import { NODE_CONTROL_GROUPS } from '../kernel/control-group.ts';
import {
  NODE_ROOT,
  type NodeProgram,
  type NodeResult,
  type NodeRunOptions,
  runOnNodes,
} from './node-pods.ts';

/** The findings of a node, or why there are none. */
export interface NodePreflight {
  readonly node: string;
  readonly findings: readonly Finding[];
  readonly problem: string | null;
}

export const PREFLIGHT_NAMESPACE = 'fairlead-preflight';

const PREFLIGHT: NodeProgram<readonly Finding[]> = {
  name: 'preflight',
  namespace: PREFLIGHT_NAMESPACE,
  args: ['preflight', '--output', 'json', '--node-root', NODE_ROOT],
  patienceMs: 120_000,
  volumes: [
    { name: 'node', path: '/', mountPath: NODE_ROOT, readOnly: true },
    { name: 'bpf', path: '/sys/fs/bpf' },
    { name: 'cgroup', path: '/sys/fs/cgroup', mountPath: NODE_CONTROL_GROUPS, readOnly: true },
  ],
  read: ({ findings }) => (Array.isArray(findings) ? (findings as readonly Finding[]) : null),
};

/** Runs `preflight` on nodes; see runOnNodes. `onNode`: called for each node that has ended. */
export async function preflightNodes({
  onNode,
  ...options
}: NodeRunOptions & { readonly onNode: (result: NodePreflight) => void }): Promise<NodePreflight[]> {
  const found = ({ node, result, problem }: NodeResult<readonly Finding[]>): NodePreflight => ({
    node,
    findings: result ?? [],
    problem,
  });
  return (await runOnNodes(PREFLIGHT, options, (result) => onNode(found(result)))).map(found);
}
