import type { AgentState } from '../agent/agent-state.ts';
import { availableModes } from '../agent/dataplanes.ts';
import { MODE_ANNOTATION } from '../agent/mode-switch.ts';
import type { Mode } from '../dataplane/dataplane.ts';
import type { Client } from '../kube/client.ts';
import { RESOURCES } from '../kube/types.ts';
import { FairleadError } from '../lib/errors.ts';
import { askAgent } from './agent-client.ts';
import { type ClusterState, requireCluster, writeCluster } from './state.ts';

export interface NodeMode {
  readonly name: string;
  readonly mode: string;
}

/** Reads a mode from JSON: {mode}. Throws FairleadError. */
export function readModeRequest(value: unknown): Mode {
  const { mode } = (value ?? {}) as Record<string, unknown>;
  const known = availableModes().find((one) => one === mode);
  if (known) return known;
  const text = `mode must be one of ${availableModes().join(', ')}`;
  throw new FairleadError(text, { op: 'switch the mode', code: 'BadRequest' });
}

/**
 * Switches the proxy mode of nodes, one after another; null: of all nodes, and of those that are added later. Calls `onNode`
 * after each. Throws FairleadError if a node cannot run the mode; the nodes before it keep the new one.
 */
export async function changeMode(
  state: ClusterState,
  client: Client,
  mode: Mode,
  only: readonly string[] | null = null,
  onNode: (node: NodeMode) => void = () => {},
): Promise<NodeMode[]> {
  const changed: NodeMode[] = [];
  for (const name of only ?? state.nodes.map((node) => node.name)) {
    // The agent switches before the annotation is written, so that an unsupported mode is an error of this command.
    const { mode: now } = await askAgent<AgentState>(state, name, 'POST', '/mode', { mode });
    await client.patch(RESOURCES.nodes, name, 'merge', {
      metadata: { annotations: { [MODE_ANNOTATION]: now } },
    });
    changed.push({ name, mode: now });
    onNode({ name, mode: now });
  }
  if (only === null) writeCluster({ ...requireCluster(state.name), mode });
  return changed;
}
