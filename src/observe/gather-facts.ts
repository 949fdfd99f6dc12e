import { createSocket } from 'node:dgram';
import { decodeMessage } from '../dns/decode.ts';
import { encodeQuestion } from '../dns/encode.ts';
import { rcodeName, TYPE } from '../dns/message.ts';
import { inControlGroup } from '../kernel/control-group.ts';
import { NETLINK_SOCK_DIAG, NetlinkSocket } from '../kernel/netlink/socket.ts';
import { bindUdpIn, type NetnsRef } from '../kernel/netns.ts';
import { listAddresses } from '../kernel/rtnetlink/addresses.ts';
import { openRouteSocket } from '../kernel/rtnetlink/links.ts';
import { findRoute, type Route } from '../kernel/rtnetlink/routes.ts';
import { listSockets } from '../kernel/sock-diag.ts';
import {
  canonicalAddress,
  cidrContains,
  familyOf,
  formatAddress,
  type IPFamily,
  parseCidr,
} from '../lib/address.ts';
import { messageOf } from '../lib/errors.ts';
import type { LocalFactRequest, Place } from './fact-requests.ts';
import type { FactAnswer, ListeningSocket, NameLog, NameTry } from './facts.ts';
import { hasFaultTable } from './planted-faults.ts';
import { readFilters } from './read-filters.ts';
import { addressesInHosts, namesToAsk, readResolverSettings } from './resolver-settings.ts';

/** A place on this machine. */
export interface LocalPlace {
  readonly netns: NetnsRef;
  /** The control group of its processes, which eBPF programs match; null if they belong to no node. */
  readonly controlGroup: string | null;
  readonly resolvConf: () => string;
  readonly hosts: () => string;
}

/** The timeout of a question; the cluster's DNS answers within milliseconds. */
const DNS_PATIENCE_MS = 1000;
/** RT_SCOPE_UNIVERSE of linux/rtnetlink.h. */
const SCOPE_GLOBAL = 0;
const TCP_LISTEN = 10;
/** TCP_CLOSE: the state of a UDP socket that is connected to no peer. */
const UDP_UNCONNECTED = 7;
const RCODES_OF_FAILED_SERVERS: ReadonlySet<string> = new Set(['SERVFAIL', 'REFUSED', 'NOTIMP', 'FORMERR']);

/**
 * Reads sockets, routes and planted faults through netlink, and resolves names with real queries from the place to its own name
 * servers; sends no other packets. Does not reject: errors are answers of the kind `failed`.
 */
export async function gatherFact(
  request: LocalFactRequest,
  placeOf: (place: Place) => LocalPlace,
): Promise<FactAnswer> {
  try {
    const place = placeOf(request.place);
    switch (request.kind) {
      case 'sockets':
        return { kind: 'sockets', sockets: listeningSockets(place.netns, request.protocol) };
      case 'route':
        return { kind: 'route', route: routeFrom(place.netns, request.destination) };
      case 'fault':
        return { kind: 'fault', isPlanted: hasFaultTable(place.netns) };
      case 'filters':
        return { kind: 'filters', filters: await readFilters(place.netns) };
      case 'names':
        return { kind: 'names', log: await resolveName(place, request.name, request.family) };
    }
  } catch (error) {
    return {
      kind: 'failed',
      reason: `failed to read ${request.kind} of ${placeText(request.place)}: ${messageOf(error)}`,
    };
  }
}

export function placeText(place: Place): string {
  switch (place.kind) {
    case 'pod':
    case 'host-pod':
      return `pod ${place.name}`;
    case 'node':
      return `node ${place.node}`;
    case 'host':
      return place.name;
  }
}

function listeningSockets(netns: NetnsRef, protocol: 'TCP' | 'UDP'): ListeningSocket[] {
  using socket = new NetlinkSocket({ protocol: NETLINK_SOCK_DIAG, netns });
  const wanted = protocol === 'TCP' ? TCP_LISTEN : UDP_UNCONNECTED;
  return (['ipv4', 'ipv6'] as const).flatMap((family) =>
    listSockets(socket, family, protocol === 'TCP' ? 'tcp' : 'udp', 1 << wanted)
      .filter(({ state }) => state === wanted)
      .map(({ local, localPort, v6Only, isFull }) => ({
        address: canonicalAddress(local) ?? local,
        port: localPort,
        v6Only,
        isFull,
      })),
  );
}

function routeFrom(netns: NetnsRef, destination: string) {
  using socket = openRouteSocket(netns);
  const route = findRoute(socket, destination);
  if (!route) return null;
  const source = route.source ?? null;
  const { type = 'unicast', via = null } = route;
  return {
    type,
    via,
    source,
    masqueradeSource: masqueradeSource(socket, route, destination) ?? source,
    device: route.device,
  };
}

/**
 * Returns the source address that masquerading uses, which takes no account of the source of the route; null: that source.
 * IPv4 (inet_select_addr in net/ipv4/devinet.c): of the primary global addresses of the device, the one whose network
 * contains the next hop, else the first. IPv6 (ipv6_dev_get_saddr, RFC 6724): a global address of the device.
 */
function masqueradeSource(socket: NetlinkSocket, route: Route, destination: string): string | null {
  const { device, via, source } = route;
  const family = familyOf(destination);
  if (device === undefined || family === null) return null;
  const own = listAddresses(socket, { device }).filter(
    (one) => familyOf(one.address) === family && one.scope === SCOPE_GLOBAL,
  );
  if (family === 'ipv6' && own.some(({ address }) => address === source)) return null;
  const near = own.find(({ address, prefix }) => {
    const network = parseCidr(`${address}/${prefix}`);
    return network !== null && cidrContains(network, via ?? destination);
  });
  return (near ?? own[0])?.address ?? null;
}

/** Resolves a name as glibc does (res_nsearch): full names in order, servers in order for each. */
async function resolveName(place: LocalPlace, name: string, family: IPFamily | null): Promise<NameLog> {
  const settings = readResolverSettings(place.resolvConf());
  const families = family === null ? (['ipv4', 'ipv6'] as const) : [family];
  const known = addressesInHosts(place.hosts(), name).filter((address) =>
    families.some((one) => one === familyOf(address)),
  );
  if (known.length > 0) return { ...settings, fromHosts: true, tries: [], addresses: known };
  const tries: NameTry[] = [];
  const result = (addresses: readonly string[]): NameLog => ({
    ...settings,
    fromHosts: false,
    tries,
    addresses,
  });
  for (const candidate of namesToAsk(name, settings)) {
    let isDecided = false;
    for (const server of settings.servers) {
      const answers = await Promise.all(families.map((one) => ask(place, server, candidate, one)));
      const addresses = answers.flatMap((answer) => answer.addresses);
      const best = answers.find((answer) => answer.addresses.length > 0) ?? answers[0];
      if (!best) continue;
      tries.push({ ...best, addresses });
      if (addresses.length > 0) return result(addresses);
      isDecided = best.isAnswered;
      if (isDecided && !RCODES_OF_FAILED_SERVERS.has(best.result)) break;
    }
    // If no server answers, glibc does not continue with the next name.
    if (!isDecided) break;
  }
  return result([]);
}

interface Asked extends NameTry {
  readonly isAnswered: boolean;
}

function ask(place: LocalPlace, server: string, name: string, family: IPFamily): Promise<Asked> {
  const type = family === 'ipv4' ? TYPE.A : TYPE.AAAA;
  const nothing = { name, server, aliases: [], addresses: [], isAnswered: false };
  return new Promise((resolve) => {
    const isV6 = server.includes(':');
    const socket = createSocket(isV6 ? 'udp6' : 'udp4');
    const finish = (asked: Asked) => {
      clearTimeout(timer);
      socket.removeAllListeners();
      socket.on('error', () => {});
      socket.close();
      resolve(asked);
    };
    const fail = (error: unknown) => finish({ ...nothing, result: codeText(error) });
    const timer = setTimeout(() => finish({ ...nothing, result: 'no answer' }), DNS_PATIENCE_MS);
    const id = 1 + (Math.floor(performance.now()) % 0xffff);
    socket.on('error', fail);
    socket.on('message', (bytes) => {
      const reply = decodeMessage(bytes);
      if (reply?.id !== id || !reply.response) return;
      const aliases = reply.answers.flatMap(({ type: one, data }) =>
        one === TYPE.CNAME && 'target' in data ? data.target : [],
      );
      const addresses = reply.answers.flatMap(({ type: one, data }) =>
        one === type && data instanceof Uint8Array ? formatAddress(data) : [],
      );
      finish({ name, server, result: rcodeName(reply.rcode), aliases, addresses, isAnswered: true });
    });
    try {
      const make = () => bindUdpIn(place.netns, isV6 ? '::' : '0.0.0.0', 0);
      const fd = inControlGroup(place.controlGroup, make);
      socket.bind({ fd, exclusive: true }, () =>
        socket.connect(53, server, (error?: Error | null) => {
          if (error) fail(error);
          else socket.send(encodeQuestion(id, name, type));
        }),
      );
    } catch (error) {
      fail(error);
    }
  });
}

/** Returns the code of an error, or else its message. */
export function codeText(error: unknown): string {
  return error instanceof Error && 'code' in error ? String(error.code) : messageOf(error);
}
