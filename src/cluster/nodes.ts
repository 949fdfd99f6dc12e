import { existsSync, rmSync } from 'node:fs';
import { join } from 'node:path';
import { runningRuntime } from '../agent/pod-runtime/runtime-record.ts';
import { pinPathOf, removePins } from '../dataplane/ebpf/pins.ts';
import { netnsExists } from '../kernel/netns.ts';
import { isRunning } from '../kernel/process-identity.ts';
import { type Client, hasReason } from '../kube/client.ts';
import { type Pod, RESOURCES } from '../kube/types.ts';
import { addTopologyNode, nodeNetns, removeTopologyNode } from '../network/topology.ts';
import { removeRuntimeState } from '../runtime/runtime-state.ts';
import { writeNodeCredentials } from './credentials.ts';
import { planNodes } from './plan.ts';
import { cgroupParent, endProcesses } from './processes.ts';
import { type ClusterState, clusterPaths, type NodeState, writeCluster } from './state.ts';

const PATIENCE_MS = 5000;
const POLL_MS = 50;

/** Adds nodes to a cluster up to `count`, without starting their agents. */
export function addNodes(state: ClusterState, count: number): ClusterState {
  const grown = { ...state, nodes: [...state.nodes, ...planNodes(state, count)] };
  // Written first, so that the next call finds and completes nodes that an interruption left incomplete.
  writeCluster(grown);
  for (const node of grown.nodes) {
    if (!netnsExists(nodeNetns(state.name, node.name))) addTopologyNode(state.name, node, state.wireCidrs);
    if (!existsSync(join(clusterPaths(state.name).node(node.name), 'kubeconfig')))
      writeNodeCredentials(state, node);
  }
  return grown;
}

/**
 * Removes all nodes after the first `count`: evicts their pods like `kubectl drain`, so that their controllers recreate
 * them elsewhere; then removes agent, Node object, namespace and files. Pods that do not end before `deadline` are
 * killed with the node.
 */
export async function removeNodes(
  client: Client,
  state: ClusterState,
  count: number,
  deadline: AbortSignal,
): Promise<ClusterState> {
  const leaving = state.nodes.slice(count);
  // All nodes first, or pods would move from one leaving node to another.
  await Promise.all(leaving.map(({ name }) => cordon(client, name)));
  await Promise.all(leaving.map((node) => drain(client, node, deadline)));
  // The supervisor would restart the agents.
  const isLeaving = ({ name }: NodeState) => leaving.some((node) => node.name === name);
  writeCluster({
    ...state,
    nodes: state.nodes.map((node) => (isLeaving(node) ? { ...node, isLeaving: true } : node)),
  });
  await endProcesses(
    leaving.flatMap(({ agent }) => (isRunning(agent) ? [agent] : [])),
    PATIENCE_MS,
  );
  const paths = clusterPaths(state.name);
  // Of an agent that had to be killed.
  await endProcesses(
    leaving.flatMap(({ name }) => runningRuntime(paths.nodeState(name)) ?? []),
    0,
  );
  await Promise.all(leaving.map(({ name }) => ignoreMissing(client.delete(RESOURCES.nodes, name))));
  for (const { name } of leaving) {
    await removeRuntimeState(paths.nodeState(name), cgroupParent(state.name, name));
    removePins(pinPathOf(cgroupParent(state.name, name)));
    removeTopologyNode(state.name, name);
    rmSync(paths.node(name), { recursive: true, force: true });
  }
  const remaining = { ...state, nodes: state.nodes.slice(0, count) };
  writeCluster(remaining);
  return remaining;
}

async function cordon(client: Client, node: string): Promise<void> {
  await ignoreMissing(client.patch(RESOURCES.nodes, node, 'merge', { spec: { unschedulable: true } }));
}

async function drain(client: Client, node: NodeState, deadline: AbortSignal): Promise<void> {
  const fieldSelector = `spec.nodeName=${node.name},status.phase!=Succeeded,status.phase!=Failed`;
  const isOfDaemonSet = (pod: Pod) =>
    (pod.metadata?.ownerReferences ?? []).some(({ kind }) => kind === 'DaemonSet');
  const running = async () =>
    (await client.list(RESOURCES.pods, { fieldSelector })).items.filter((pod) => !isOfDaemonSet(pod));
  for (const { metadata } of await running()) {
    const { name = '', namespace = '' } = metadata ?? {};
    await ignoreMissing(client.delete(RESOURCES.pods, name, { namespace }));
  }
  // Without a running agent, the pods are ended here.
  while (isRunning(node.agent) && !deadline.aborted && (await running()).length > 0)
    await new Promise((resolve) => setTimeout(resolve, POLL_MS));
}

async function ignoreMissing(call: Promise<unknown>): Promise<void> {
  try {
    await call;
  } catch (error) {
    if (!hasReason(error, 'NotFound')) throw error;
  }
}
