import { Counter } from 'prom-client';
import { DEFAULT_SHARE, type ShareLimits } from '../dns/source-share.ts';
import { messageOf } from '../lib/errors.ts';
import { openDnsLimit } from '../network/dns-limit.ts';
import type { AgentContext } from './agent-context.ts';

/**
 * The kernel lets pass a third more than the share that the server's process answers: so the process still sees that a client
 * sends more than its share, and names the client in its log.
 */
const perClientOf = ({ perSecond, burst }: ShareLimits) => ({
  perSecond: (perSecond * 4) / 3,
  burst: burst * 2,
});

/** A program that opens a connection for each query takes a tenth of the server's time at most. */
const CONNECTIONS = { perSecond: 1000, burst: 500 };

/**
 * Limits the queries of each client in the kernel. Returns a function that sets the addresses of the name servers. The rules
 * stay when the agent ends. `share`: that of the server's process.
 */
export function startDnsLimit(
  context: Pick<AgentContext, 'clock' | 'logger' | 'registry' | 'onClose'>,
  port: number,
  share: ShareLimits = DEFAULT_SHARE,
): (servers: readonly string[]) => void {
  const { clock, registry } = context;
  const logger = context.logger.child({ part: 'dns' });
  const limit = openDnsLimit({ clock, logger });
  context.onClose(() => limit.close());
  let isRefused = false;
  new Counter({
    name: 'fairlead_dns_limited_packets_total',
    help: 'Queries over UDP, and new connections, that the kernel dropped because their client sent too many.',
    registers: [registry],
    collect() {
      if (isRefused) return;
      this.reset();
      this.inc(limit.dropped());
    },
  });
  return (servers) => {
    if (isRefused) return;
    try {
      limit.write({
        servers,
        port,
        perClient: perClientOf(share),
        connectionsPerClient: CONNECTIONS,
        maxClients: share.maxSources,
      });
    } catch (error) {
      isRefused = true;
      logger.warn(
        { err: error },
        `the kernel does not limit the DNS queries of each client: ${messageOf(error)}; it needs the nf_tables expressions limit and dynset (CONFIG_NFT_LIMIT). The agent itself drops a client's queries above its share`,
      );
    }
  };
}
