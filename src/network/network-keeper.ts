import type { Clock } from '../lib/clock.ts';
import { messageOf } from '../lib/errors.ts';
import type { Logger } from '../lib/log.ts';
import { watchDrift } from './drift-watch.ts';
import type { NodeNetwork, RouteFailure } from './node-network.ts';
import type { PeerNode } from './peer-node.ts';
import { isPodPort } from './pod-link.ts';
import type { PodNetwork } from './pod-network.ts';

export interface NetworkKeeperOptions {
  readonly network: NodeNetwork;
  readonly pods: PodNetwork;
  /** Returns the current list of other nodes. */
  readonly peers: () => readonly PeerNode[];
  /** Called before each check, since the node's addresses may have changed. */
  readonly beforeCheck?: () => void;
  /** Called with a description of a problem that cannot be repaired, and with null when it is resolved. */
  readonly onProblem?: (problem: string | null) => void;
  readonly clock: Clock;
  readonly logger: Logger;
}

/** Reverts changes by other programs to a node's network, within a second after the kernel's event. */
export function keepNetwork(options: NetworkKeeperOptions): { close(): void } {
  const { network, pods, peers, beforeCheck, onProblem = () => {}, clock, logger } = options;
  let problem: string | null = null;
  const setProblem = (found: string | null) => {
    if (found === problem) return;
    problem = found;
    onProblem(found);
  };
  const check = async () => {
    try {
      beforeCheck?.();
      const { repaired, failures } = await network.repair(peers());
      reportRoutes(failures, logger);
      const all = [...repaired, ...(await pods.repair())];
      if (all.length > 0) logger.warn({ repaired: all }, `restored the node's network: ${summary(all)}`);
      setProblem(failures[0]?.error.message ?? null);
      return all.length > 0;
    } catch (error) {
      setProblem(messageOf(error));
      logger.error({ err: error }, `failed to restore the node's network: ${problem}`);
      return false;
    }
  };
  const state = network.maintainedState(isPodPort, pods.macOf);
  return watchDrift({ state, clock, check, netns: network.netns });
}

export function reportRoutes(failures: readonly RouteFailure[], logger: Logger): void {
  for (const { node, destination, error } of failures)
    logger.error({ node, err: error }, `no route to ${destination}: ${error.message}`);
}

const summary = (texts: readonly string[]) =>
  texts.length <= 5 ? texts.join(', ') : `${texts.slice(0, 5).join(', ')} and ${texts.length - 5} more`;
