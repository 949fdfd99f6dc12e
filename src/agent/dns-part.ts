import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import type { AnswerHold } from '../dns/answer-hold.ts';
import { createForwarder, type Forwarder } from '../dns/forwarder.ts';
import type { LimitedClients } from '../dns/limited-clients.ts';
import { createDnsMetrics } from '../dns/metrics.ts';
import { upstreamsFromResolvConf } from '../dns/resolv-conf.ts';
import { type DnsListener, type DnsServer, type DnsServerOptions, startDnsServer } from '../dns/server.ts';
import { createZone, type Zone } from '../dns/zone.ts';
import { type PassedSocket, takePassedSockets } from '../kernel/passed-sockets.ts';
import { replaceFile } from '../kernel/replace-file.ts';
import { addAddress } from '../kernel/rtnetlink/addresses.ts';
import { getLink, openRouteSocket } from '../kernel/rtnetlink/links.ts';
import { writeSysctls } from '../kernel/sysctl.ts';
import type { Informer } from '../kube/informer.ts';
import { type EndpointSlice, keyOf, type Pod, RESOURCES, type Service } from '../kube/types.ts';
import { canonicalAddress } from '../lib/address.ts';
import { type Clock, pause } from '../lib/clock.ts';
import { hasCode, messageOf } from '../lib/errors.ts';
import type { Logger } from '../lib/log.ts';
import type { DnsConfiguration } from './agent-configuration.ts';
import type { AgentContext } from './agent-context.ts';
import { startDnsLimit } from './dns-limit-part.ts';

/** Where name servers answer. */
export const DNS_PORT = 53;
const RESOLV_CONF = '/etc/resolv.conf';
/** How often resolv.conf is reread: DHCP clients and administrators change it. */
const RESOLV_CONF_MS = 10_000;
/**
 * Queries wait, or are answered by other nodes, until the first complete list of objects has arrived: SERVFAIL would make
 * programs fail. Without an API server, names outside the cluster are resolved after this time.
 */
const SILENCE_MS = 3000;
/** How long others answer, at most, while this agent programs its other parts. */
const OTHERS_MS = 10_000;

export interface DnsSources {
  readonly services: Informer<Service>;
  readonly slices: Informer<EndpointSlice>;
  /** Addresses of this node that other nodes' pods query while their own node does not answer. */
  readonly gateways: readonly string[];
  /** The same, for a pod network that opens later; null: none. */
  readonly lateGateways: Promise<readonly string[]> | null;
  /** Resolves when the rules of the DNS fallback are in the kernel; true: others answer this node's pods now. */
  readonly others: Promise<boolean>;
  /** Resolves when the kernel has the Services and policies. */
  readonly programmed: Promise<unknown>;
  /** Clients whose queries this process drops are noted here. */
  readonly limited: LimitedClients;
  /** Holds answers until network policies allow what they lead to; null: none are enforced. */
  readonly hold: AnswerHold | null;
}

/** Records the addresses added to the loopback device, so that `cleanup` can remove them. */
export const DNS_ADDRESSES_FILE = 'dns-addresses';

/** The inputs of answers, from an agent or from a name server in a pod. */
export type DnsContext = Pick<
  AgentContext,
  'configuration' | 'logger' | 'signal' | 'random' | 'clock' | 'registry' | 'follow' | 'onClose'
>;

/** The answers of a name server. */
export interface DnsAnswers {
  readonly common: Pick<DnsServerOptions, 'zone' | 'forwarder' | 'metrics' | 'logger'>;
  /** Resolves when all objects are known; rejects if the signal aborts before. */
  readonly known: Promise<void>;
}

/** Prepares the answers to queries. `own`: the addresses of this name server, which it does not ask. */
export function prepareAnswers(
  context: DnsContext,
  dns: DnsConfiguration,
  { services, slices, own }: Pick<DnsSources, 'services' | 'slices'> & { readonly own: readonly string[] },
): DnsAnswers {
  const { configuration, logger, random, clock, registry } = context;
  const metrics = createDnsMetrics(registry);
  const networks = [
    ...(configuration.proxy?.serviceCidrs ?? []),
    ...(configuration.proxy?.clusterCidrs ?? []),
  ];
  const zone = createZone({
    domain: configuration.clusterDomain,
    ttl: dns.ttlSeconds,
    podMode: dns.podRecords,
    serverAddresses: [...dns.addresses],
    reverseCidrs: networks.map((cidr) => cidr.text),
    now: clock.now,
    random,
    onProgrammed: metrics.programmed,
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
  const synced: Promise<unknown>[] = [services.synced, slices.synced];
  if (dns.podRecords === 'verified') synced.push(followPods(context, zone));
  followNamespaces(context, zone);
  const fromNode = dns.upstreams.length === 0;
  const upstreams = fromNode ? upstreamsFromResolvConf(readOptional(RESOLV_CONF), own) : [...dns.upstreams];
  const forwarder = createForwarder({
    upstreams,
    stubDomains: dns.stubDomains,
    metrics,
    logger,
    clock,
    random,
  });
  context.onClose(() => forwarder.close());
  if (fromNode) followResolvConf(context, forwarder, upstreams, own);
  const known = Promise.all(synced).then(() => zone.setSynced(true));
  known.catch(() => {});
  return { common: { zone, forwarder, metrics, logger: logger.child({ part: 'dns' }) }, known };
}

/** Serves DNS on the cluster DNS addresses, which are added to the node, so that pods reach it without translation. */
export async function startDns(
  context: AgentContext,
  dns: DnsConfiguration,
  { services, slices, gateways, lateGateways, others, programmed, limited, hold }: DnsSources,
): Promise<DnsServer> {
  const { configuration, logger, signal, clock } = context;
  const passed = takePassedSockets();
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
  replaceFile(join(configuration.stateDir, DNS_ADDRESSES_FILE), dns.addresses.join('\n'));
  if (dns.refuseAtOnce) refuseAtOnce(logger);
  const own = [...dns.addresses, ...gateways];
  const limitClients = startDnsLimit(context, DNS_PORT);
  limitClients(own);
  const { common: answers, known } = prepareAnswers(context, dns, { services, slices, own });
  const common = {
    ...answers,
    podName: (address: string) => podOfEndpoint(slices, address),
    onDropped: limited.note,
    hold: hold ?? undefined,
  };
  await Promise.race([known, pause(clock, SILENCE_MS, signal)]);
  // Queries wait in sockets that the agent before this one has left open.
  if (passed.length === 0) await untilAnswersAreSwift({ others, programmed }, clock, signal);
  const server = await startDnsServer({
    ...common,
    listeners: dns.addresses.map((address) => listenerOn(address, passed)),
  });
  // Not at the signal: it answers until the parts that were started later have closed.
  context.onClose(() => server.close());
  const serve = async (addresses: readonly string[]) => {
    for (const address of addresses) {
      try {
        const extra = await startDnsServer({ ...common, listeners: [{ address, port: DNS_PORT }] });
        context.onClose(() => extra.close());
      } catch (error) {
        // This affects only pods of nodes whose agent is down.
        logger.warn({ err: error, address }, `cannot serve DNS to other nodes' pods: ${messageOf(error)}`);
      }
    }
  };
  await serve(gateways);
  // Rejects only when the agent ends.
  void lateGateways
    ?.then((late) => {
      limitClients([...own, ...late]);
      return serve(late);
    })
    .catch(() => {});
  await known;
  return server;
}

/** Turns of the event loop that must come in time, one after the other, and how late each may be. */
const FREE_TURNS = 3;
const TURN_MS = 5;

/**
 * Waits, while others answer the node's pods, until the kernel has Services and policies, and until what other parts do
 * then leaves the event loop free: queries would wait in this thread meanwhile, and with open sockets they are no longer
 * sent to others. Without others they would be rejected.
 */
export async function untilAnswersAreSwift(
  { others, programmed }: Pick<DnsSources, 'others' | 'programmed'>,
  clock: Clock,
  signal: AbortSignal,
): Promise<void> {
  const done = new AbortController();
  const late = pause(clock, OTHERS_MS, AbortSignal.any([signal, done.signal]));
  // Failures are reported by the parts themselves.
  const never = () => {};
  const answered = others.catch(() => false);
  if (await Promise.race([answered, late])) {
    const isReady = programmed.catch(never).then(() => untilLoopIsFree(clock, done.signal));
    await Promise.race([isReady, late]);
  }
  done.abort();
}

async function untilLoopIsFree(clock: Clock, signal: AbortSignal): Promise<void> {
  for (let free = 0; free < FREE_TURNS && !signal.aborted; ) {
    const due = clock.now() + TURN_MS;
    await pause(clock, TURN_MS, signal);
    free = clock.now() - due <= TURN_MS ? free + 1 : 0;
  }
}

/** Returns the name of the pod with an address, if it is an endpoint of a Service. */
function podOfEndpoint(slices: Informer<EndpointSlice>, address: string): string | null {
  for (const { endpoints } of slices.list()) {
    for (const { addresses, targetRef } of endpoints ?? []) {
      if (!addresses?.includes(address) || targetRef?.kind !== 'Pod') continue;
      return `${targetRef.namespace ?? ''}/${targetRef.name ?? ''}`;
    }
  }
  return null;
}

/** Returns the passed sockets of an address, or the address to open. */
function listenerOn(address: string, passed: readonly PassedSocket[]): DnsListener {
  const find = (transport: PassedSocket['transport']) =>
    passed.find(
      (one) =>
        one.transport === transport && one.address === canonicalAddress(address) && one.port === DNS_PORT,
    );
  const [udp, tcp] = [find('udp'), find('tcp')];
  if (!udp || !tcp) return { address, port: DNS_PORT };
  const supervisor = process.ppid;
  return { udpFd: udp.fd, tcpFd: tcp.fd, family: udp.family, isKept: () => process.ppid === supervisor };
}

/**
 * While no agent runs, the kernel rejects queries (ICMP), and resolvers try the next name server. By default it sends at
 * most one error per second to each pod, and the pod's other queries wait for their timeout (5 s in glibc). The global
 * limit of the node remains, for both families, with enough room for the queries of pods (ip-sysctl.rst).
 */
const REFUSALS = {
  'net.ipv4.icmp_ratelimit': 0,
  'net.ipv6.icmp.ratelimit': 0,
  'net.ipv4.icmp_msgs_per_sec': 20_000,
  'net.ipv4.icmp_msgs_burst': 2000,
};

function refuseAtOnce(logger: Logger): void {
  try {
    writeSysctls(REFUSALS);
  } catch (error) {
    logger.warn(
      { err: error },
      `while no agent runs on this node, some DNS queries of pods will time out: ${messageOf(error)}`,
    );
  }
}

/**
 * Keeps the zone's table of namespaces, so that the name of one without Services gets NOERROR without records. No answer
 * waits for it: without the right to list namespaces, those with Services are known.
 */
function followNamespaces(context: DnsContext, zone: Zone): void {
  const namespaces = context.follow(RESOURCES.namespaces, {
    optional: true,
    transform: ({ metadata }) => ({
      metadata: { name: metadata?.name ?? '', resourceVersion: metadata?.resourceVersion ?? '' },
    }),
  });
  namespaces.handle({
    onAdd: (one) => zone.setNamespace(keyOf(one)),
    onUpdate: () => {},
    onDelete: (one) => zone.deleteNamespace(keyOf(one)),
  });
  // Rejects only when the agent ends.
  namespaces.synced.then(() => zone.setNamespacesKnown(true)).catch(() => {});
}

/** Keeps the zone's table of all pods of the cluster and their addresses. */
function followPods(context: DnsContext, zone: Zone): Promise<unknown> {
  const pods = context.follow(RESOURCES.pods, {
    cacheAs: 'dns-pods',
    fieldSelector: 'status.phase!=Succeeded,status.phase!=Failed',
    transform: ({ metadata, status }: Pod): Pod => ({
      metadata: {
        ...(metadata?.name === undefined ? {} : { name: metadata.name }),
        ...(metadata?.namespace === undefined ? {} : { namespace: metadata.namespace }),
        ...(metadata?.resourceVersion === undefined ? {} : { resourceVersion: metadata.resourceVersion }),
      },
      status: { podIPs: status?.podIPs ?? [] },
    }),
  });
  const set = ({ metadata, status }: Pod) => {
    const addresses = (status?.podIPs ?? []).flatMap(({ ip }) => ip ?? []);
    zone.setPod(metadata?.namespace ?? '', metadata?.name ?? '', addresses);
  };
  pods.handle({
    onAdd: set,
    onUpdate: set,
    onDelete: ({ metadata }) => zone.deletePod(metadata?.namespace ?? '', metadata?.name ?? ''),
  });
  return pods.synced;
}

/** Watches the node's name servers for changes. */
function followResolvConf(
  { clock, logger, signal }: DnsContext,
  forwarder: Forwarder,
  first: readonly string[],
  own: readonly string[],
): void {
  let known = first;
  const look = () => {
    try {
      const upstreams = upstreamsFromResolvConf(readOptional(RESOLV_CONF), own);
      if (upstreams.join() !== known.join()) {
        known = upstreams;
        forwarder.setUpstreams(upstreams);
        logger.info({ upstreams }, `upstream name servers changed with ${RESOLV_CONF}`);
      }
    } catch (error) {
      logger.warn({ err: error }, `cannot read ${RESOLV_CONF}: ${messageOf(error)}`);
    }
    cancel = clock.after(RESOLV_CONF_MS, look);
  };
  let cancel = clock.after(RESOLV_CONF_MS, look);
  signal.addEventListener('abort', () => cancel(), { once: true });
}

function readOptional(file: string): string {
  try {
    return readFileSync(file, 'utf8');
  } catch (error) {
    if (hasCode(error, 'ENOENT')) return '';
    throw error;
  }
}
