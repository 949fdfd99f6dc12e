import type { Node } from '../kube/types.ts';
import { pause } from '../lib/clock.ts';
import { messageOf } from '../lib/errors.ts';
import { nodeWhen, type OwnNodeOptions } from './own-node.ts';

export interface LateNetworkOptions<N>
  extends Pick<OwnNodeOptions, 'nodes' | 'name' | 'clock' | 'logger' | 'signal'> {
  /** Returns what the Node lacks for a pod network, or null. */
  readonly lacks: (node: Node | undefined) => string | null;
  readonly open: (node: Node) => N;
  /** Called with what keeps the pod network from opening; null: it is open. */
  readonly onProblem: (problem: string | null) => void;
}

/** How long after a failure the pod network is tried again. */
const RETRY_MS = 5000;

/**
 * Opens the pod network of a node whose Node object was incomplete at the start, as soon as it is complete; tries again
 * every few seconds, since its address may be one that this machine gets later. Rejects when the signal aborts.
 */
export async function openLateNetwork<N>(options: LateNetworkOptions<N>): Promise<N> {
  const { nodes, name, lacks, open, onProblem, clock, logger, signal } = options;
  let reported = '';
  const report = (problem: string) => {
    if (problem === reported) return;
    reported = problem;
    onProblem(`the pod network is not open: ${problem}`);
    logger.warn({}, `the pod network is not open: ${problem}`);
  };
  const isComplete = (node: Node | undefined) => {
    const problem = lacks(node);
    if (problem !== null) report(problem);
    return problem === null;
  };
  isComplete(nodes.get(name));
  for (;;) {
    const node = await nodeWhen(options, isComplete);
    try {
      const network = open(node);
      onProblem(null);
      logger.info({}, 'the pod network is open now');
      return network;
    } catch (error) {
      report(messageOf(error));
    }
    await pause(clock, RETRY_MS, signal);
    signal.throwIfAborted();
  }
}
