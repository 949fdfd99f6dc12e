import { electPools } from '../controllers/elected-pools.ts';
import { createClient } from '../kube/client.ts';
import type { Clock } from '../lib/clock.ts';
import type { Logger } from '../lib/log.ts';
import { connectToApi } from './api-connection.ts';
import type { AgentConfiguration } from './configuration.ts';

/**
 * Takes part in the election of the agent that allocates load-balancer addresses, where the configuration has pools.
 * Resolves after the signal aborts.
 */
export async function allocateFromPools(
  configuration: AgentConfiguration,
  options: {
    readonly clock: Clock;
    readonly random: () => number;
    readonly logger: Logger;
    readonly signal: AbortSignal;
  },
): Promise<void> {
  const { loadBalancer, nodeName } = configuration;
  const pools = Object.entries(loadBalancer?.pools ?? {}).map(([name, ranges]) => ({ name, ranges }));
  if (pools.length === 0) return;
  const transport = connectToApi(configuration, options);
  try {
    const client = createClient(transport, 'fairlead-load-balancer-pools');
    await electPools({ client, ...options }, nodeName, pools);
  } finally {
    transport.close();
  }
}
