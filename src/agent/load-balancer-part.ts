import { Gauge } from 'prom-client';
import { listAddresses } from '../kernel/rtnetlink/addresses.ts';
import { watchNetwork } from '../kernel/rtnetlink/events.ts';
import { findLink, type Link, openRouteSocket } from '../kernel/rtnetlink/links.ts';
import { createEventRecorder } from '../kube/events.ts';
import type { Informer } from '../kube/informer.ts';
import { ANNOUNCEMENT_LABEL, ANNOUNCEMENT_NAMESPACE, wantsAddress } from '../kube/load-balancer.ts';
import { type EndpointSlice, type Node, RESOURCES, type Service } from '../kube/types.ts';
import { messageOf } from '../lib/errors.ts';
import { type LinkAnnouncer, openLinkAnnouncer } from '../loadbalancer/link-announcer.ts';
import { type Speaker, startSpeaker } from '../loadbalancer/speaker.ts';
import { type AgentContext, addressesOf } from './agent-context.ts';
import type { LoadBalancerConfiguration } from './configuration.ts';

export interface LoadBalancerSources {
  readonly nodes: Informer<Node>;
  readonly services: Informer<Service>;
  readonly slices: Informer<EndpointSlice>;
}

/**
 * Announces this node's share of the load-balancer addresses, from when the first Service wants one: until then the node
 * renews no Lease for it. Call it after the node has programmed Services; resolves when those that exist can be announced.
 */
export async function startLoadBalancer(
  context: AgentContext,
  settings: LoadBalancerConfiguration,
  sources: LoadBalancerSources,
): Promise<void> {
  const { services } = sources;
  let speaker: Speaker | null = null;
  new Gauge({
    name: 'fairlead_load_balancer_announced_addresses',
    help: 'Load-balancer addresses that this node announces',
    registers: [context.registry],
    collect() {
      this.set(speaker?.announced.size ?? 0);
    },
  });
  await services.synced;
  const look = (service: Service) => {
    if (speaker || context.signal.aborted || !wantsAddress(service)) return;
    speaker = openSpeaker(context, settings, sources);
  };
  const stopLooking = services.handle({ onAdd: look, onUpdate: look });
  context.onClose(stopLooking);
  // The type checker does not see the calls of the handler.
  await (speaker as Speaker | null)?.ready;
}

function openSpeaker(
  context: AgentContext,
  settings: LoadBalancerConfiguration,
  { nodes, services, slices }: LoadBalancerSources,
): Speaker {
  const { client, announcer: owner, clock, random, signal, configuration } = context;
  const { nodeName } = configuration;
  const logger = context.logger.child({ part: 'load-balancer' });
  const events = createEventRecorder({
    client,
    component: 'fairlead-load-balancer',
    host: nodeName,
    clock,
    logger,
    signal,
  });
  let link: Link | null = null;
  let announcer: LinkAnnouncer | null = null;
  const report = (keys: readonly string[], type: 'Normal' | 'Warning', reason: string, message: string) => {
    for (const key of keys) {
      const service = services.get(key);
      if (service) events.event(service, type, reason, message, RESOURCES.services);
    }
  };
  const speaker = startSpeaker({
    client: owner,
    node: nodeName,
    nodes,
    services,
    slices,
    leases: context.follow(RESOURCES.leases, {
      as: owner,
      namespace: ANNOUNCEMENT_NAMESPACE,
      labelSelector: ANNOUNCEMENT_LABEL,
    }),
    leaseDurationMs: settings.leaseDurationMs,
    clock,
    steady: () => performance.now(),
    random,
    logger,
    signal,
    onStarted(address, keys, before) {
      const how = `${address.includes(':') ? 'neighbour discovery' : 'ARP'} on ${link?.name}`;
      const from = before === '' ? '' : `; ${before} announced it before`;
      report(keys, 'Normal', 'AddressAnnounced', `${nodeName} announces ${address} by ${how}${from}`);
    },
  });
  const conflicts = new Set<string>();
  const openOn = (next: Link): LinkAnnouncer =>
    openLinkAnnouncer({
      device: next,
      clock,
      mayAnnounce: speaker.mayAnnounce,
      onConflict(address, mac) {
        const known = `${address} ${mac}`;
        if (conflicts.has(known)) return;
        conflicts.add(known);
        clock.after(CONFLICT_MS, () => conflicts.delete(known));
        const message = `${mac} on ${next.name} also uses ${address}`;
        logger.warn({ address, mac }, message);
        report(speaker.servicesOf(address), 'Warning', 'AddressConflict', message);
      },
      onError: (error) => logger.warn({ err: error }, error.message),
    });
  /** Watches the device: reopens the announcer when its MAC or index changes; closes it while it is down or has no carrier. */
  const follow = () => {
    const found = findDevice(settings.interface, nodes.get(nodeName));
    const usable = found?.up && found.carrier ? found : null;
    if (link && usable && link.index === usable.index && link.mac === usable.mac) return;
    if (!link && !usable && announcer === null && isReported) return;
    isReported = true;
    announcer?.close();
    announcer = null;
    link = usable;
    try {
      if (usable) announcer = openOn(usable);
      else
        logger.warn(
          { interface: settings.interface ?? '(of the node address)' },
          'no interface to announce addresses on',
        );
    } catch (error) {
      logger.error({ err: error }, `cannot announce addresses on ${usable?.name}: ${messageOf(error)}`);
    }
    speaker.setAnnouncer(announcer);
  };
  let isReported = false;
  follow();
  const watch = watchNetwork(['link', 'address'], (event) => {
    // Events of pods' devices are frequent.
    if (event.kind === 'link' && link && event.link.index !== link.index) return;
    if (event.kind === 'address' && (link || settings.interface !== null)) return;
    follow();
  });
  // The address of a Node that was incomplete at the start selects the interface later.
  const look = ({ metadata }: Node) => {
    if (metadata?.name === nodeName && link === null && settings.interface === null) follow();
  };
  const stopLooking = nodes.handle({ onAdd: look, onUpdate: look });
  context.onClose(async () => {
    watch.close();
    stopLooking();
    await speaker.close();
    announcer?.close();
  });
  return speaker;
}

/** The same conflict is reported at most once in this time. */
const CONFLICT_MS = 60_000;

/** Returns the interface of this name; without a name, the interface with the node's address. */
function findDevice(name: string | null, node: Node | undefined): Link | null {
  const socket = openRouteSocket();
  try {
    if (name !== null) return findLink(socket, name);
    const own = new Set(node ? addressesOf(node) : []);
    const address = listAddresses(socket).find((one) => own.has(one.address));
    return address ? findLink(socket, address.device) : null;
  } finally {
    socket.close();
  }
}
