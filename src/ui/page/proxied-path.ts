import type { ExplainStep } from '../../observe/explanation.ts';
import { type Change, endText, type Leg } from '../../trace/hops.ts';
import { legTitle } from '../../trace/leg-title.ts';
import type { Drawing } from './path-drawing.ts';

/** A proxy in userspace: the process that receives the client's packets, and sends others to the server. */
export interface Proxy {
  readonly node: string;
  /** "fairlead proxy (process 9443), listener tcp 172.30.0.12:43317" */
  readonly label: string;
  /** "172.30.0.12:43317" */
  readonly listener: string;
  /** The rules that redirect the client's packets to the listener, in the words of explain. */
  readonly tables: readonly string[];
}

const LISTENER = /^fairlead: listener ((?:tcp|udp) (\S+)) of pool .*, process (\d+)$/;

/** Returns the proxy that the legs of a flow reached; null: no proxy is on its way, or none of its packets came from it. */
export function findProxy(explained: readonly ExplainStep[], legs: readonly Leg[]): Proxy | null {
  const objects = explained.flatMap(({ ruleOrKey }) => ruleOrKey ?? []);
  const found = objects.map((one) => LISTENER.exec(one)).find((match) => match !== null);
  const node = placeOfProxy(legs);
  if (!found || node === null) return null;
  const [, socket, listener = '', process] = found;
  return {
    node,
    label: `fairlead proxy (process ${process}), listener ${socket}`,
    listener,
    tables: objects.filter((one) => one.startsWith('nft: ')),
  };
}

/** The namespace in which a proxy sends: an answer on the client's connection, its own connection, or a datagram. */
function placeOfProxy(legs: readonly Leg[]): string | null {
  for (const { way, kind, isRelayed, hops } of legs) {
    const isSent = isRelayed ? way === 'there' : way === 'back' && (kind === 'SYN-ACK' || kind === 'RST');
    const relayed = hops.find(isByProxy);
    const place = isSent ? hops[0]?.place : relayed?.place;
    if (place !== undefined) return place;
  }
  return null;
}

const isListener = (object: string): boolean => LISTENER.test(object);
const isByProxy = ({ changes }: { readonly changes: readonly Change[] }): boolean =>
  changes.some(({ by }) => by.some(isListener));

/** The part of changes that the rules make, or the proxy. */
const changesBy = (changes: readonly Change[], who: 'rules' | 'proxy'): Change[] =>
  changes.map((change) => ({
    ...change,
    by: change.by.filter((one) => isListener(one) === (who === 'proxy')),
  }));

/**
 * Draws a leg of a flow through a proxy. A connection of the client ends in the proxy, which opens another: its legs are told
 * apart by `isRelayed`. Datagrams are one leg, whose ends change at the proxy.
 */
export function drawProxied(drawing: Drawing, leg: Leg, proxy: Proxy): void {
  const { way, kind, hops } = leg;
  if (kind === 'datagram' || kind === 'answer') {
    drawDatagram(drawing, leg, proxy);
    return;
  }
  const step = stepOf(leg, leg.isRelayed);
  const isFromProxy = leg.isRelayed === (way === 'there');
  if (isFromProxy) drawing.proxy(step, proxy.node, proxy.label, changesBy(hops[0]?.changes ?? [], 'proxy'));
  let isRedirected = isFromProxy;
  for (const hop of hops) {
    // A connection of the proxy begins with its own addresses: they are not translated.
    const changes = isFromProxy && leg.isRelayed ? [] : changesBy(hop.changes, 'rules');
    if (changes.length > 0) {
      drawing.change(step, hop.place, changes);
      isRedirected = true;
    }
    drawing.hop(step, hop, changes);
  }
  if (isFromProxy || hops.at(-1)?.place !== proxy.node) return;
  if (!isRedirected && way === 'there') drawRedirection(drawing, leg, proxy);
  drawing.proxy(step, proxy.node, proxy.label, []);
}

const stepOf = (leg: Leg, isRelayed: boolean) =>
  ({
    way: leg.way,
    connection: isRelayed ? 'proxy' : 'client',
    packet: legTitle({ ...leg, isRelayed }, true),
  }) as const;

/** Draws what no device shows: the rules redirect the packet after the last device, to a socket of the same namespace. */
function drawRedirection(drawing: Drawing, leg: Leg, { node, listener, tables }: Proxy): void {
  const destination = leg.hops.at(-1)?.destination;
  if (destination === undefined) return;
  const before = endText(destination);
  drawing.change(stepOf(leg, false), node, [{ field: 'destination', before, after: listener, by: tables }]);
}

/** Draws a datagram on both sides of the proxy. */
function drawDatagram(drawing: Drawing, leg: Leg, proxy: Proxy): void {
  const { way, hops } = leg;
  let isRelayed = way === 'back';
  for (const [i, hop] of hops.entries()) {
    const isAtProxy = hop.place === proxy.node && (way === 'there' ? isByProxy(hop) : hop.changes.length > 0);
    if (isAtProxy) {
      if (way === 'there' && i > 0) drawRedirection(drawing, { ...leg, hops: hops.slice(0, i) }, proxy);
      isRelayed = !isRelayed;
      drawing.proxy(stepOf(leg, isRelayed), proxy.node, proxy.label, changesBy(hop.changes, 'proxy'));
    } else if (hop.changes.length > 0) {
      drawing.change(stepOf(leg, isRelayed), hop.place, hop.changes);
    }
    drawing.hop(stepOf(leg, isRelayed), hop, isAtProxy ? [] : hop.changes);
  }
}
