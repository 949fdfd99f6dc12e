import { electPools } from '../controllers/elected-pools.ts';
import { createClient } from '../kube/client.ts';
import type { Clock } from '../lib/clock.ts';
import type { Logger } from '../lib/log.ts';
import { connectToApi } from './api-connection.ts';
import type { AgentConfiguration } from './configuration.ts';
import { loadBalancerPools } from './load-balancer-pools.ts';

/**
 * Allocates load-balancer addresses from the configuration's pools while this process holds the Lease. Resolves after
 * the signal aborts.
 */
export async function allocateFromPools(
  configuration: AgentConfiguration,
  options: {
    /** The name of this process among the candidates for the Lease. */
    readonly identity: string;
    readonly clock: Clock;
    readonly random: () => number;
    readonly logger: Logger;
    readonly signal: AbortSignal;
  },
): Promise<void> {
  const pools = loadBalancerPools(configuration.loadBalancer?.pools ?? {});
  const transport = connectToApi(configuration, options);
  try {
    const client = createClient(transport, 'fairlead-load-balancer-pools');
    await electPools({ client, ...options }, options.identity, pools);
  } finally {
    transport.close();
  }
}
