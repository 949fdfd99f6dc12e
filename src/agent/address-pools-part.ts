import { electPools } from '../controllers/elected-pools.ts';
import { createClient } from '../kube/client.ts';
import { follow } from '../kube/informer.ts';
import { contactOf } from '../kube/server-contact.ts';
import { RESOURCES } from '../kube/types.ts';
import type { Clock } from '../lib/clock.ts';
import type { Logger } from '../lib/log.ts';
import type { AgentConfiguration } from './agent-configuration.ts';
import { connectToApi } from './api-connection.ts';
import { API_SERVICE_SLICES, openKnownApiServers } from './known-api-servers.ts';
import { loadBalancerPools } from './load-balancer-pools.ts';

/**
 * Allocates load-balancer addresses from the configuration's pools while this process holds the Lease. It reaches the
 * API servers as an agent does, and keeps those that it learns in the state directory. Resolves after the signal aborts.
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
  const { clock, logger } = options;
  const apiServers = openKnownApiServers(configuration.stateDir, logger);
  const transport = connectToApi(configuration, {
    ...options,
    known: apiServers.urls,
    onReturn: () => contactOf(client, { clock, logger }).wake(),
  });
  const client = createClient(transport, 'fairlead-load-balancer-pools');
  try {
    apiServers.follow(follow({ client, ...options }, RESOURCES.endpointSlices, API_SERVICE_SLICES));
    await electPools({ client, ...options }, options.identity, pools);
  } finally {
    transport.close();
  }
}
