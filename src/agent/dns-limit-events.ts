import type { Pod } from '../kube/types.ts';
import { messageOf } from '../lib/errors.ts';
import { readLimitedClients } from '../network/dns-limit.ts';
import type { AgentContext } from './agent-context.ts';

/** Interval at which the kernel's counters are read: clients are named there for longer. */
const READ_MS = 10_000;
/** A pod gets an event at most this often. */
const EVENT_MS = 300_000;

/**
 * Reports pods of which the kernel drops DNS queries, as events of the pods. `podAt`: returns the pod of this node with an
 * address.
 */
export function startDnsLimitEvents(
  context: Pick<AgentContext, 'clock' | 'logger' | 'podEvent' | 'onClose'>,
  podAt: (address: string) => Pod | null,
  readClients: typeof readLimitedClients = readLimitedClients,
): void {
  const { clock } = context;
  const logger = context.logger.child({ part: 'dns' });
  /** When each client's last event was. */
  const reported = new Map<string, number>();
  let cancel = () => {};
  const report = () => {
    const now = clock.now();
    for (const [address, at] of reported) if (now - at >= EVENT_MS) reported.delete(address);
    for (const [address, packets] of readClients().packets) {
      const pod = reported.has(address) ? null : podAt(address);
      if (!pod) continue;
      reported.set(address, now);
      const message = `the pod sends more DNS queries than the limit of one client: ${packets} were dropped`;
      context.podEvent(pod, 'Warning', 'TooManyDNSQueries', message);
    }
  };
  const repeat = () => {
    try {
      report();
    } catch (error) {
      logger.warn({ err: error }, `cannot read the counters of DNS queries: ${messageOf(error)}`);
    }
    cancel = clock.after(READ_MS, repeat);
  };
  repeat();
  context.onClose(() => cancel());
}
