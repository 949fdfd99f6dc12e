import { listAddresses } from '../kernel/rtnetlink/addresses.ts';
import { watchNetwork } from '../kernel/rtnetlink/events.ts';
import { findLink, type Link, openRouteSocket } from '../kernel/rtnetlink/links.ts';
import type { Clock } from '../lib/clock.ts';
import { messageOf } from '../lib/errors.ts';
import type { Logger } from '../lib/log.ts';
import { type LinkAnnouncer, openLinkAnnouncer } from '../loadbalancer/link-announcer.ts';
import type { Speaker } from '../loadbalancer/speaker.ts';

export interface AnnouncedLinkOptions {
  /** The interface's name; null: the one with the node's address. */
  readonly interface: string | null;
  readonly speaker: Speaker;
  readonly clock: Clock;
  readonly logger: Logger;
  /** Another host on the link uses an address of these Services. */
  readonly onConflict: (services: readonly string[], message: string) => void;
}

/** The link on which a speaker announces addresses. */
export interface AnnouncedLink {
  /** Returns the interface's name; '': there is none now. */
  name(): string;
  /** Sets the addresses of this machine's Node, which select the interface unless its name is configured. */
  setAddresses(addresses: readonly string[]): void;
  /** Stops announcing until the next `setAddresses`: the speaker releases its addresses. */
  suspend(): void;
  stopWatching(): void;
  /** Stops answering. */
  close(): void;
}

/** The conflicts of an address are reported at most once in this time. */
const CONFLICT_MS = 60_000;

/**
 * Returns a function that tells whether to report another host with an address. Any host on the link can claim addresses from as
 * many MACs as it sends frames: only the first claim in a minute is reported.
 */
export function conflictReports(clock: Clock): (address: string) => boolean {
  const reportedAt = new Map<string, number>();
  return (address) => {
    const now = clock.now();
    for (const [one, at] of reportedAt) if (now - at >= CONFLICT_MS) reportedAt.delete(one);
    if (reportedAt.has(address)) return false;
    reportedAt.set(address, now);
    return true;
  };
}

/** Announces a speaker's addresses on a link, while it is up and has a carrier. */
export function announceOnLink(options: AnnouncedLinkOptions): AnnouncedLink {
  const { speaker, clock, logger } = options;
  const mayReport = conflictReports(clock);
  let addresses: readonly string[] = [];
  let link: Link | null = null;
  let announcer: LinkAnnouncer | null = null;
  let isReported = false;
  let isSuspended = false;
  const openOn = (next: Link): LinkAnnouncer =>
    openLinkAnnouncer({
      device: next,
      clock,
      mayAnnounce: speaker.mayAnnounce,
      onConflict(address, mac) {
        if (!mayReport(address)) return;
        const message = `${mac} on ${next.name} also uses ${address}`;
        logger.warn({ address, mac }, message);
        options.onConflict(speaker.servicesOf(address), message);
      },
      onError: (error) => logger.warn({ err: error }, error.message),
    });
  const use = (next: Link | null) => {
    announcer?.close();
    announcer = null;
    link = next;
    try {
      if (next) announcer = openOn(next);
    } catch (error) {
      logger.error({ err: error }, `cannot announce addresses on ${next?.name}: ${messageOf(error)}`);
    }
    speaker.setAnnouncer(announcer);
  };
  /** Reopens the announcer when the device's MAC or index changes; closes it while it is down or has no carrier. */
  const look = () => {
    if (isSuspended) return;
    const found = findDevice(options.interface, addresses);
    const usable = found?.up && found.carrier ? found : null;
    if (link && usable && link.index === usable.index && link.mac === usable.mac) return;
    if (!link && !usable && announcer === null && isReported) return;
    // The Node's addresses are about to arrive.
    if (!usable && options.interface === null && addresses.length === 0) return;
    isReported = true;
    if (!usable)
      logger.warn(
        { interface: options.interface ?? '(of the node address)' },
        'no interface to announce addresses on',
      );
    use(usable);
  };
  look();
  const watch = watchNetwork(['link', 'address'], (event) => {
    // Events of pods' devices are frequent.
    if (event.kind === 'link' && link && event.link.index !== link.index) return;
    if (event.kind === 'address' && (link || options.interface !== null)) return;
    look();
  });
  return {
    name: () => link?.name ?? '',
    setAddresses(next) {
      const isNew = isSuspended || next.join() !== addresses.join();
      addresses = next;
      isSuspended = false;
      if (isNew && link === null) look();
    },
    suspend() {
      isSuspended = true;
      use(null);
    },
    stopWatching: () => watch.close(),
    close() {
      announcer?.close();
      announcer = null;
    },
  };
}

/** Returns the interface of this name; without a name, the interface with one of these addresses. */
function findDevice(name: string | null, addresses: readonly string[]): Link | null {
  using socket = openRouteSocket();
  if (name !== null) return findLink(socket, name);
  const address = listAddresses(socket).find((one) => addresses.includes(one.address));
  return address ? findLink(socket, address.device) : null;
}
