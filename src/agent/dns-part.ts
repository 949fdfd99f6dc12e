import { readFileSync } from 'node:fs';
import { createForwarder } from '../dns/forwarder.ts';
import { createDnsMetrics } from '../dns/metrics.ts';
import { upstreamsFromResolvConf } from '../dns/resolv-conf.ts';
import { type DnsServer, startDnsServer } from '../dns/server.ts';
import { createZone } from '../dns/zone.ts';
import { addAddress } from '../kernel/rtnetlink/addresses.ts';
import { getLink, openRouteSocket } from '../kernel/rtnetlink/links.ts';
import type { Informer } from '../kube/informer.ts';
import type { EndpointSlice, Service } from '../kube/types.ts';
import { hasCode } from '../lib/errors.ts';
import type { AgentContext } from './agent-context.ts';
import type { DnsConfiguration } from './configuration.ts';

/** Answers DNS on the cluster's addresses, which become the node's own: pods reach it without translation. */
export async function startDns(
  context: AgentContext,
  dns: DnsConfiguration,
  services: Informer<Service>,
  slices: Informer<EndpointSlice>,
): Promise<DnsServer> {
  const { configuration, logger, signal, random, clock, registry } = context;
  const socket = openRouteSocket();
  try {
    const loopback = getLink(socket, 'lo');
    for (const address of dns.addresses) {
      if (loopback)
        addAddress(socket, { device: loopback.index, address, prefix: address.includes(':') ? 128 : 32 });
    }
  } finally {
    socket.close();
  }
  const metrics = createDnsMetrics(registry);
  const zone = createZone({
    domain: configuration.clusterDomain,
    ttl: dns.ttlSeconds,
    podMode: dns.podRecords,
    serverAddresses: [...dns.addresses],
    reverseCidrs: (configuration.proxy?.serviceCidrs ?? []).map((cidr) => cidr.text),
    now: clock.now,
    random,
  });
  services.handle({
    onAdd: (service) => zone.setService(service),
    onUpdate: (service) => zone.setService(service),
    onDelete: ({ metadata }) => zone.deleteService(metadata?.namespace ?? '', metadata?.name ?? ''),
  });
  slices.handle({
    onAdd: (slice) => zone.setSlice(slice),
    onUpdate: (slice) => zone.setSlice(slice),
    onDelete: ({ metadata }) => zone.deleteSlice(metadata?.namespace ?? '', metadata?.name ?? ''),
  });
  const upstreams =
    dns.upstreams.length > 0
      ? [...dns.upstreams]
      : upstreamsFromResolvConf(readOptional('/etc/resolv.conf'), [...dns.addresses]);
  const forwarder =
    upstreams.length > 0 ? createForwarder({ upstreams, metrics, logger, clock, random }) : null;
  const server = await startDnsServer({
    listeners: dns.addresses.map((address) => ({ address, port: 53 })),
    zone,
    forwarder,
    metrics,
    logger: logger.child({ part: 'dns' }),
    signal,
  });
  context.onClose(() => server.close());
  await Promise.all([services.synced, slices.synced]);
  zone.setSynced(true);
  return server;
}

function readOptional(file: string): string {
  try {
    return readFileSync(file, 'utf8');
  } catch (error) {
    if (hasCode(error, 'ENOENT')) return '';
    throw error;
  }
}
