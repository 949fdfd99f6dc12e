import { type MessagePort, parentPort, workerData } from 'node:worker_threads';
import { createClient } from '../kube/client.ts';
import { follow } from '../kube/informer.ts';
import { ANNOUNCEMENT_LABEL, ANNOUNCEMENT_NAMESPACE } from '../kube/load-balancer.ts';
import { contactOf } from '../kube/server-contact.ts';
import { RESOURCES } from '../kube/types.ts';
import { type Clock, systemClock } from '../lib/clock.ts';
import { messageOf } from '../lib/errors.ts';
import { type Logger, silentLogger } from '../lib/log.ts';
import { startMigratingSpeaker } from '../loadbalancer/migrating-speaker.ts';
import { watchAlive } from './alive-watch.ts';
import { holdEgressAddresses } from './announcer-egress.ts';
import { announceOnLink } from './announcer-link.ts';
import type { AnnouncerSettings, FromAnnouncer, LogLevel, ToAnnouncer } from './announcer-messages.ts';
import { connectToApi } from './api-connection.ts';

/** An agent that has not run for this long does not come back by itself: it must not keep its addresses. */
const MAX_SILENT_SECONDS = 15;

/**
 * Announces load-balancer addresses in a thread of its own: programming many Services, or another mode, keeps the
 * agent's event loop busy for longer than the Lease of its addresses lasts, and hosts on the link wait for answers.
 */
function announce(port: MessagePort, settings: AnnouncerSettings, clock: Clock): void {
  const tell = (message: FromAnnouncer) => port.postMessage(message);
  const logger = loggerTo(tell);
  const ending = new AbortController();
  const { signal } = ending;
  const random = Math.random;
  let servers: readonly string[] = [];
  const contactLogger = settings.logsContact ? logger : silentLogger;
  const transport = connectToApi(settings, {
    ...{ clock, random, logger: contactLogger },
    known: () => servers,
    onReturn: () => contact.wake(),
    onAnswer: (answer) => tell({ kind: 'answer', answer }),
    onBody: (...body) => tell({ kind: 'body', body }),
  });
  const client = createClient(transport, settings.userAgent);
  const contact = contactOf(client, { clock, logger: contactLogger });
  const count = () => tell({ kind: 'announced', count: speaker.announced.size });
  const egress = holdEgressAddresses({
    ...{ node: settings.node, clock, logger: logger.child({ part: 'egress' }) },
    leaseDurationMs: settings.leaseDurationMs,
    isHeld: (address) => speaker.announced.has(address),
    onHolders: (holders) => tell({ kind: 'holders', holders: [...holders] }),
  });
  const speaker = startMigratingSpeaker({
    ...{ client, clock, random, logger, signal },
    node: settings.node,
    follow(namespace, until) {
      const leases = follow({ client, clock, random, logger, signal: until }, RESOURCES.leases, {
        contact,
        namespace,
        labelSelector: ANNOUNCEMENT_LABEL,
        ...(namespace === ANNOUNCEMENT_NAMESPACE
          ? { onMissingRule: (rule) => tell({ kind: 'missing-rule', rule }) }
          : { optional: true }),
      });
      if (namespace === ANNOUNCEMENT_NAMESPACE) egress.follow(leases);
      return leases;
    },
    leaseDurationMs: settings.leaseDurationMs,
    steady: () => performance.now(),
    onStarted(address, services, before) {
      const how = `${address.includes(':') ? 'neighbour discovery' : 'ARP'} on ${link.name()}`;
      const from = before === '' ? '' : `; ${before} announced it before`;
      const message = `${settings.node} announces ${address} by ${how}${from}`;
      tell({ kind: 'event', services, type: 'Normal', reason: 'AddressAnnounced', message });
      if (egress.started(address)) tell({ kind: 'egress-started', address, before });
      count();
    },
    onStopped(address) {
      egress.stopped(address);
      count();
    },
  });
  speaker.ready.then(
    () => tell({ kind: 'ready' }),
    // The agent ends.
    () => {},
  );
  const link = announceOnLink({
    interface: settings.interface,
    speaker,
    clock,
    logger,
    onConflict(services, message) {
      tell({ kind: 'event', services, type: 'Warning', reason: 'AddressConflict', message });
    },
  });
  const watch = watchAlive({
    clock,
    seconds: MAX_SILENT_SECONDS,
    onSilent() {
      logger.error({}, `the agent has not run for ${MAX_SILENT_SECONDS} s: other nodes take its addresses`);
      link.suspend();
    },
  });
  const close = async () => {
    watch.close();
    link.stopWatching();
    egress.close();
    await speaker.close();
    link.close();
    ending.abort();
    transport.close();
    tell({ kind: 'closed' });
    port.close();
  };
  port.on('message', (message: ToAnnouncer) => {
    switch (message.kind) {
      case 'candidates':
        speaker.setCandidates(message.candidates);
        break;
      case 'alive':
        watch.report();
        servers = message.servers;
        link.setAddresses(message.addresses);
        break;
      case 'egress':
        egress.configure(message.settings);
        break;
      case 'close':
        void close();
        break;
    }
  });
}

/** Returns a logger whose lines the agent writes. */
function loggerTo(tell: (message: FromAnnouncer) => void, common: object = {}): Logger {
  const at = (level: LogLevel) => (fields: object, message: string) =>
    tell({ kind: 'log', level, fields: { ...common, ...plainFields(fields) }, message });
  return {
    debug: at('debug'),
    info: at('info'),
    warn: at('warn'),
    error: at('error'),
    child: (fields) => loggerTo(tell, { ...common, ...fields }),
  };
}

/** Errors lose their fields on the way to another thread. */
const plainFields = (fields: object): object =>
  Object.fromEntries(
    Object.entries(fields).map(([name, value]: [string, unknown]) => [
      name,
      value instanceof Error ? messageOf(value) : value,
    ]),
  );

if (parentPort) announce(parentPort, workerData as AnnouncerSettings, systemClock);
