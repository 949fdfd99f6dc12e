import { createInterface } from 'node:readline';
import { Readable } from 'node:stream';
import type { FlowsEntry } from '../flows/flow-line.ts';
import type { FlowsRequest } from '../flows/flow-stream.ts';
import { FairleadError } from '../lib/errors.ts';
import { agentNotRunning, openFlows } from './agent-client.ts';
import type { ClusterState } from './state.ts';

/** The flows of a cluster's nodes. */
export interface NodeFlows {
  /** Opens the stream of a node's flows, one FlowsEntry per line. Throws if its agent is not running. */
  flows(node: string, wanted: FlowsRequest, signal: AbortSignal): Promise<AsyncIterable<Uint8Array>>;
}

/** Where the flows of nodes are read from. */
export interface FlowStreams extends NodeFlows {
  /** Returns the error of a stream that ended by itself. */
  ended(node: string, cause?: unknown): FairleadError;
}

/** The flows of a local cluster. */
export type FlowSource = NodeFlows & { readonly report: { readonly state: ClusterState } };

/** The control sockets of a cluster's agents, for root. */
export const agentFlows = (state: ClusterState): FlowSource => ({
  report: { state },
  flows: (node, wanted, signal) => openFlows(state, node, wanted, signal),
});

/** The flow events of a node. */
export interface FlowReader {
  /** Resolves when the node reports its events. */
  readonly started: Promise<void>;
  /**
   * Resolves when the signal has aborted, or all was read that was asked for. Rejects with FairleadError if the node's agent
   * is not running, or stops.
   */
  readonly ended: Promise<void>;
}

/** Reads the flows of a node until the signal aborts. */
export function readFlows(
  source: FlowSource | FlowStreams,
  node: string,
  onEntry: (entry: FlowsEntry) => void,
  signal: AbortSignal,
  wanted: FlowsRequest = { since: null, follow: true },
): FlowReader {
  const opened = source.flows(node, wanted, signal);
  const read = async () => {
    let cause: unknown;
    try {
      const input = Readable.from(await opened, { objectMode: false });
      // The loop below sees the end.
      input.on('error', () => {});
      for await (const line of createInterface({ input })) onEntry(JSON.parse(line));
      if (!wanted.follow) return;
    } catch (error) {
      if (error instanceof FairleadError && !signal.aborted) throw error;
      cause = error;
    }
    if (signal.aborted) return;
    throw 'ended' in source ? source.ended(node, cause) : agentNotRunning(source.report.state, node, cause);
  };
  const started = opened.then(() => {});
  const ended = read();
  // Each caller awaits one of the two.
  started.catch(() => {});
  ended.catch(() => {});
  return { started, ended };
}
