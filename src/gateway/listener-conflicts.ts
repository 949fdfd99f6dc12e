import { verdict } from './conditions.ts';
import { intersectHosts } from './host-pattern.ts';
import type { Listener } from './listener.ts';

/** Protocols that can share a port; those of different families cannot. */
const FAMILY = { HTTP: 'http', HTTPS: 'tls', TLS: 'tls', TCP: 'tcp', UDP: 'udp' } as const;

/**
 * Finds the listeners that cannot be told apart. Within one object none of them is accepted; a ListenerSet's also yield to
 * those of the Gateway and of older sets, which keep what they have. `groups`: the listeners of each object, in that order.
 */
export function markConflicts(groups: readonly (readonly Listener[])[]): void {
  const taken: Listener[] = [];
  for (const listeners of groups) {
    const valid = listeners.filter(({ accepted }) => accepted.holds);
    const own: Listener[] = [];
    for (const listener of valid) {
      const yields = conflictAmong(listener, taken);
      if (yields === null) own.push(listener);
      else refuse(listener, yields);
    }
    // A place that an object disputes with itself is free for no later one.
    const disputed = own.map((listener) =>
      conflictAmong(
        listener,
        own.filter((other) => other !== listener),
      ),
    );
    own.forEach((listener, index) => {
      const found = disputed[index] ?? null;
      if (found !== null) refuse(listener, found);
    });
    taken.push(...own);
  }
  markOverlaps(taken.filter(({ conflict }) => conflict === null));
}

type Conflict = 'ProtocolConflict' | 'HostnameConflict';

/** A port of another protocol counts before an equal hostname. */
function conflictAmong(listener: Listener, others: readonly Listener[]): Conflict | null {
  let hostname = false;
  for (const other of others) {
    const kind = conflictOf(listener, other);
    if (kind === 'ProtocolConflict') return kind;
    hostname ||= kind !== null;
  }
  return hostname ? 'HostnameConflict' : null;
}

function conflictOf(a: Listener, b: Listener): Conflict | null {
  if (a.port !== b.port || a.protocol === null || b.protocol === null) return null;
  if ((a.protocol === 'UDP') !== (b.protocol === 'UDP')) return null;
  if (FAMILY[a.protocol] !== FAMILY[b.protocol]) return 'ProtocolConflict';
  if (a.protocol === 'TCP' || a.protocol === 'UDP') return 'HostnameConflict';
  return a.hostname === b.hostname ? 'HostnameConflict' : null;
}

/** Says nothing about the other listener: it can belong to somebody else. */
function refuse(listener: Listener, reason: Conflict): void {
  const message =
    reason === 'ProtocolConflict'
      ? `port ${listener.port} has listeners of protocols that cannot share it`
      : `another listener has port ${listener.port}${listener.hostname === '' ? '' : ` and hostname ${listener.hostname}`}`;
  listener.conflict = verdict(true, reason, message);
  listener.accepted = verdict(false, reason, message);
}

/** Names TLS listeners whose hostnames intersect: clients that reuse connections can reach the wrong one (421 then). */
function markOverlaps(listeners: readonly Listener[]): void {
  const secure = listeners.filter(({ protocol }) => protocol === 'HTTPS' || protocol === 'TLS');
  for (const listener of secure)
    for (const other of secure)
      if (
        other !== listener &&
        other.port === listener.port &&
        intersectHosts(listener.hostname, other.hostname) !== null
      )
        listener.overlap ??= `hostname ${listener.hostname || '(all)'} intersects with that of another listener of port ${listener.port}`;
}
