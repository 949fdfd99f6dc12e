import type { FlowSighting } from './flow.ts';

/** The answer to the client. */
export type Answer =
  | { readonly kind: 'answered' }
  /** `by`: the place where the reset or ICMP error was first seen; null: the socket refused it before any packet. */
  | { readonly kind: 'refused'; readonly text: string; readonly by: string | null }
  | { readonly kind: 'unreachable'; readonly text: string; readonly by: string | null }
  /** `last`: the last place and device where the request was seen; null: it was not seen at all. */
  | { readonly kind: 'nothing'; readonly last: { readonly place: string; readonly device: string } | null };

/** The reports of the client's socket. */
export type SocketResult = 'open' | 'connected' | { readonly error: string };

const SOCKET_REFUSALS: ReadonlySet<string> = new Set(['ECONNREFUSED', 'EPERM', 'EACCES', 'ECONNRESET']);
const SOCKET_UNREACHABLE: ReadonlySet<string> = new Set([
  ...['ENETUNREACH', 'EHOSTUNREACH', 'EADDRNOTAVAIL', 'EINVAL'],
]);

/**
 * Judges the sightings of a flow, in order of time. `relayed`: those of the connections that a proxy opened for it; null: no
 * proxy. An answer counts once it is seen at `origin`, the client's place. Null: undecided, something may still come.
 */
export function answerOf(
  sightings: readonly FlowSighting[],
  relayed: readonly FlowSighting[] | null,
  socket: SocketResult,
  origin: string,
): Answer | null {
  const back = (list: readonly FlowSighting[]) => list.filter(({ way }) => way === 'back');
  const own = sightings.filter(answersTo(sightings, origin));
  const failure = own.find(({ kind }) => kind === 'RST' || kind === 'error');
  if (failure) {
    // Behind a proxy the endpoint's own refusal is the cause; where it was seen first, it was made.
    const refusals = [...(relayed ?? []), ...sightings].filter(
      ({ way, kind }) => way === 'back' && (kind === 'RST' || kind === 'error'),
    );
    return { ...refusal(refusals[0] ?? failure), kind: refusal(failure).kind };
  }
  const isAccepted = own.some(({ kind }) => kind === 'SYN-ACK' || kind === 'answer');
  if (isAccepted && relayed === null) return { kind: 'answered' };
  if (relayed && isAccepted && back(relayed).some(({ kind }) => kind === 'SYN-ACK'))
    return { kind: 'answered' };
  if (typeof socket !== 'string') {
    const { error } = socket;
    if (SOCKET_REFUSALS.has(error)) return { kind: 'refused', text: error, by: null };
    if (SOCKET_UNREACHABLE.has(error)) return { kind: 'unreachable', text: error, by: null };
  }
  return null;
}

/**
 * Returns a function that tells whether a sighting shows what came back to the client, which is at `origin`. At its place a
 * proxy's own connections can be seen, too.
 */
export function answersTo(
  sightings: readonly FlowSighting[],
  origin: string,
): (sighting: FlowSighting) => boolean {
  const first = sightings.find(({ way, place }) => way === 'there' && place.name === origin)?.packet;
  return ({ way, place, packet }) => {
    if (way !== 'back' || place.name !== origin) return false;
    if (!first) return true;
    const about = packet.icmp?.about;
    return about
      ? isEnd(about.source, about.ports?.source)
      : isEnd(packet.destination, packet.ports?.destination);
  };
  function isEnd(ip: string, port: number | undefined): boolean {
    return ip === first?.source && port === first.ports?.source;
  }
}

/** Judges a flow without an answer after the time that was given to it. */
export function unanswered(
  sightings: readonly FlowSighting[],
  relayed: readonly FlowSighting[] | null,
): Answer {
  const there = [...sightings, ...(relayed ?? [])].filter(({ way }) => way === 'there');
  const first = there[0];
  // The furthest hop of the first packet; later ones are the same packet sent again.
  const last = furthest(relayed?.filter(({ kind }) => kind === 'SYN') ?? []) ?? furthest(there);
  if (!first || !last) return { kind: 'nothing', last: null };
  return { kind: 'nothing', last: { place: last.place.name, device: last.device.text } };
}

function furthest(sightings: readonly FlowSighting[]): FlowSighting | null {
  const seen = new Set<string>();
  let last: FlowSighting | null = null;
  for (const one of sightings) {
    if (one.kind !== 'SYN' && one.kind !== 'datagram') continue;
    const key = `${one.place.name} ${one.device.name} ${one.direction} ${one.packet.destination}`;
    // A repeat begins the way again.
    if (seen.has(key)) continue;
    seen.add(key);
    last = one;
  }
  return last;
}

function refusal({
  packet,
  place,
}: FlowSighting): Extract<Answer, { readonly kind: 'refused' | 'unreachable' }> {
  const { icmp } = packet;
  if (!icmp) return { kind: 'refused', text: 'RST', by: place.name };
  const kind = icmp.meaning === 'unreachable' ? 'unreachable' : 'refused';
  return { kind, text: `ICMP ${icmp.text}`, by: place.name };
}
