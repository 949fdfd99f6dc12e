import { ConntrackConnection } from '../kernel/conntrack/connection.ts';
import { type Cidr, cidrContains } from '../lib/address.ts';
import { messageOf } from '../lib/errors.ts';
import type { Logger } from '../lib/log.ts';

/**
 * Deletes the flows of these pods to hosts outside: their translation was decided when they opened. A later packet opens a new
 * flow, with the translation that is in force.
 */
export function forgetFlowsOutside(
  pods: ReadonlySet<string>,
  cluster: readonly Cidr[],
  logger: Logger,
): void {
  const connection = new ConntrackConnection();
  try {
    const flows = connection
      .listAny(
        ['ipv4', 'ipv6'],
        [...pods].map((source) => ({ source })),
      )
      .filter(({ reply }) => !cluster.some((one) => cidrContains(one, reply.source)));
    connection
      .delete(flows)
      .catch((error: unknown) =>
        logger.warn({ err: error }, `failed to end flows of pods to hosts outside: ${messageOf(error)}`),
      )
      .finally(() => connection.close());
  } catch (error) {
    connection.close();
    logger.warn({ err: error }, `failed to read the flows of pods to hosts outside: ${messageOf(error)}`);
  }
}

/** Returns, by address, the most ports that connections from it use to one destination and port. */
export function portsInUse(addresses: readonly string[]): Map<string, number> {
  const connection = new ConntrackConnection();
  try {
    const counts = new Map<string, Map<string, number>>(addresses.map((one) => [one, new Map()]));
    const filters = addresses.map((replyDestination) => ({ replyDestination }));
    for (const { reply } of connection.listAny(['ipv4', 'ipv6'], filters)) {
      const own = counts.get(reply.destination);
      const key = `${reply.protocol} ${reply.source} ${reply.sourcePort}`;
      own?.set(key, (own.get(key) ?? 0) + 1);
    }
    return new Map([...counts].map(([address, own]) => [address, Math.max(0, ...own.values())]));
  } finally {
    connection.close();
  }
}
