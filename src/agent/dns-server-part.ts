import { Registry } from 'prom-client';
import { startDnsServer } from '../dns/server.ts';
import { createClient } from '../kube/client.ts';
import { follow } from '../kube/informer.ts';
import type { MissingRule } from '../kube/missing-rule.ts';
import { contactOf } from '../kube/server-contact.ts';
import { type KubeObject, RESOURCES, type Resource } from '../kube/types.ts';
import { hostPort } from '../lib/address.ts';
import type { Clock } from '../lib/clock.ts';
import type { Logger } from '../lib/log.ts';
import { createProcessMetrics } from '../proxy/process-metrics.ts';
import { startStatusServers } from '../proxy/status-servers.ts';
import type { AgentConfiguration, DnsConfiguration } from './agent-configuration.ts';
import type { FollowOptions } from './agent-context.ts';
import { connectToApi } from './api-connection.ts';
import { DNS_PORT, type DnsContext, prepareAnswers } from './dns-part.ts';
import { DNS_SERVER_HEALTH_PORT } from './dns-server-settings.ts';
import { createSliceTransform, trimService } from './informer-transforms.ts';
import { openKnownApiServers } from './known-api-servers.ts';

/** That of CoreDNS. */
const METRICS_PORT = 9153;

export interface DnsServerPartOptions {
  readonly dns: DnsConfiguration;
  /** The addresses on which it answers: those of its pod. */
  readonly addresses: readonly string[];
  readonly version: string;
  readonly clock: Clock;
  /** 0 ≤ n < 1 */
  readonly random: () => number;
  readonly logger: Logger;
  /** Ends the watches. */
  readonly signal: AbortSignal;
}

/**
 * Serves DNS in a pod, with the answers of the agents, for nodes whose agent does not run. It reaches the API servers as
 * an agent does, and changes nothing of its node. Returns a function that ends it, after what has arrived is answered.
 */
export async function startDnsInPod(
  configuration: AgentConfiguration,
  { dns, addresses, ...options }: DnsServerPartOptions,
): Promise<() => Promise<void>> {
  const { clock, logger, version } = options;
  const registry = new Registry();
  const closers: (() => Promise<void> | void)[] = [];
  const close = async () => {
    for (const one of closers.splice(0).reverse()) await one();
  };
  const apiServers = openKnownApiServers(configuration.stateDir, logger);
  const transport = connectToApi(configuration, {
    ...options,
    ...createProcessMetrics(registry, version),
    known: apiServers.urls,
    onReturn: () => contactOf(client, { clock, logger }).wake(),
  });
  const client = createClient(transport, `fairlead-dns/${version}`);
  closers.push(() => transport.close());
  const missing = new Map<string, MissingRule>();
  const context: DnsContext = {
    ...{ configuration, registry },
    ...options,
    follow<T extends KubeObject>(
      resource: Resource<T>,
      { cacheAs: _, onMissingRule: __, ...settings }: FollowOptions<T> = {},
    ) {
      return follow({ client, ...options }, resource, {
        ...settings,
        onMissingRule(rule) {
          if (rule) missing.set(resource.plural, rule);
          else missing.delete(resource.plural);
        },
      });
    },
    onClose: (one) => closers.push(one),
  };
  const services = context.follow(RESOURCES.services, { transform: trimService });
  const slices = context.follow(RESOURCES.endpointSlices, { transform: createSliceTransform() });
  apiServers.follow(slices);
  let isServing = false;
  const startedAt = clock.now();
  const [first = ''] = addresses;
  const at = (port: number) => hostPort({ ip: first, port });
  const problem = () =>
    missing.size === 0 ? null : [...missing.values()].map(({ message }) => message).join('; ');
  const status = startStatusServers({
    healthz: at(DNS_SERVER_HEALTH_PORT),
    metrics: at(METRICS_PORT),
    ...{ registry, clock, logger, version, startedAt, flags: {}, configz: configuration.configz },
    health: () => ({
      healthy: isServing,
      // A restart does not bring the API server back.
      live: true,
      lastUpdated: startedAt,
      families: [],
      problem: problem() ?? (isServing ? null : 'waiting for the Services of the API server'),
    }),
    node: () => undefined,
    mode: () => '',
    onBindFailure: null,
  });
  closers.push(() => status.close());
  const { common, known } = prepareAnswers(context, dns, {
    ...{ services, slices },
    own: [...dns.addresses, ...addresses],
  });
  try {
    await known;
    const server = await startDnsServer({
      ...common,
      listeners: addresses.map((address) => ({ address, port: DNS_PORT })),
    });
    closers.push(() => server.close());
  } catch (error) {
    await close();
    throw error;
  }
  isServing = true;
  return close;
}
