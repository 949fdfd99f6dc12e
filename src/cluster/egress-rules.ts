import { PRIORITY } from '../kernel/nftables/priorities.ts';
import { addressBytes, type Cidr, type IPFamily } from '../lib/address.ts';
import { maskOf } from '../nft/ranges.ts';
import {
  accept,
  addressFields,
  deviceName,
  drop,
  hasAny,
  IPS_DST_NAT,
  is,
  isNot,
  masquerade,
  type Rule,
} from '../nft/rule.ts';
import type { TableSpec } from '../nft/spec.ts';

export const FAMILIES: readonly IPFamily[] = ['ipv4', 'ipv6'];

/** The table of a cluster's egress in the machine's network, in each family. */
export const egressTable = (cluster: string) => `fairlead-egress-${cluster}`;

/** 53, in network order. */
const DNS_PORT = Uint8Array.of(0, 53);
/** NF_CT_STATE_BIT: established, related. */
const KNOWN_FLOW = 2 | 4;
/** The machine's devices of local clusters (`machineDevice`). */
const DEVICE_PREFIX = 'fl-';
/** TCP, UDP, SCTP: ICMP and neighbour discovery are exempt. */
const TRANSPORTS = [6, 17, 132];

/**
 * Renders the rules of the machine that forwards a cluster's connections to external networks: they are masqueraded as the
 * machine's, and nothing else gains a way. Connections from outside to the wire are dropped; so are those from pods to
 * programs of the machine other than its name servers, unless `hasHostAccess`. On the uplinks in `closedUplinks`, where forwarding was off, other
 * forwarding remains off, except for published ports of other programs (DNAT).
 */
export function renderEgressRules(options: {
  readonly cluster: string;
  /** The machine's device on the wire. */
  readonly device: string;
  readonly wire: Cidr;
  readonly hasHostAccess: boolean;
  readonly closedUplinks: readonly string[];
  /** Addresses of the machine with its name servers, other than loopback; of the wire's family. */
  readonly nameServers: readonly string[];
  /** Addresses to which nothing is forwarded but queries of `nameServers`: those of the machine that is behind an uplink. */
  readonly closedDestinations: readonly string[];
}): TableSpec {
  const { cluster, device, wire, hasHostAccess, closedUplinks, nameServers, closedDestinations } = options;
  const { family } = wire;
  const { source, destination } = addressFields(family);
  const fromWire = is('meta.iifname', deviceName(device));
  const toWire = is('meta.oifname', deviceName(device));
  const known: Rule = [hasAny('ct.state', KNOWN_FLOW), accept];
  const queries = nameServers
    .flatMap((address) => addressBytes(address) ?? [])
    .map((bytes): Rule => [fromWire, is(destination, bytes), is('th.dport', DNS_PORT), accept]);
  const closed = closedDestinations
    .flatMap((address) => addressBytes(address) ?? [])
    .map((bytes): Rule => [fromWire, is(destination, bytes), drop]);
  return {
    family,
    name: egressTable(cluster),
    sets: [],
    chains: [
      {
        name: 'forward',
        base: { type: 'filter', hook: 'forward', priority: PRIORITY.filter },
        rules: [
          known,
          [toWire, drop],
          ...(closed.length > 0 ? queries : []),
          ...closed,
          [fromWire, accept],
          ...closedUplinks.map(
            (uplink): Rule => [
              is('meta.iifname', deviceName(uplink)),
              isNot('meta.oifname', deviceName(DEVICE_PREFIX, DEVICE_PREFIX.length)),
              is('ct.status', 0, IPS_DST_NAT),
              drop,
            ],
          ),
        ],
      },
      {
        name: 'input',
        base: { type: 'filter', hook: 'input', priority: PRIORITY.filter },
        rules: hasHostAccess
          ? []
          : [
              known,
              ...queries,
              ...TRANSPORTS.map((protocol): Rule => [fromWire, is('meta.l4proto', protocol), drop]),
            ],
      },
      {
        name: 'postrouting',
        base: { type: 'nat', hook: 'postrouting', priority: PRIORITY.natSource },
        rules: [
          [is(source, wire.bytes, maskOf(wire)), isNot('meta.oifname', deviceName(device)), masquerade],
        ],
      },
    ],
    groups: new Map(),
  };
}
