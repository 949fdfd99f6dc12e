import { DATA_TYPE } from '../kernel/nftables/constants.ts';
import { PRIORITY } from '../kernel/nftables/priorities.ts';
import { macBytes } from '../kernel/rtnetlink/links.ts';
import { type Cidr, familyOf, type IPFamily } from '../lib/address.ts';
import { bytesOf, wordsOf, wordsOfAddress } from '../nft/encoding.ts';
import { mergedRanges } from '../nft/ranges.ts';
import {
  accept,
  addressFields,
  counter,
  deviceName,
  drop,
  type Field,
  goto,
  inSet,
  is,
  isNot,
  type Rule,
  type Statement,
} from '../nft/rule.ts';
import {
  type ChainSpec,
  type ElementGroup,
  type Elements,
  elements,
  group,
  rangeElements,
  type SetSpec,
  type TableSpec,
} from '../nft/spec.ts';
import { linkLocal } from './overlay-routes.ts';

/** The table of the family netdev. */
export const GUARD_TABLE = 'fairlead-guard';

/** The end of a pod's network on the node, and the sources of the pod's packets. */
export interface GuardedPort {
  /** The device on the node. */
  readonly port: string;
  /** "namespace/name" */
  readonly pod: string;
  /** The MAC of the pod's device. */
  readonly mac: string;
  readonly ips: readonly string[];
  /** Networks whose addresses the pod may use in addition. */
  readonly extra: readonly Cidr[];
}

/** The chains that count packets with another source than the pod's, and other packets that may not leave a pod. */
export const DROPPED = { forged: 'forged', stray: 'stray' } as const;
/** The ports, each of which counts its pod's forged packets. */
export const FORGERS = 'forgers';

const OWN: Readonly<Record<IPFamily, string>> = { ipv4: 'own-ipv4', ipv6: 'own-ipv6' };
const EXTRA: Readonly<Record<IPFamily, string>> = { ipv4: 'extra-ipv4', ipv6: 'extra-ipv6' };
const ETHERTYPE = { ipv4: [0x08, 0x00], arp: [0x08, 0x06], ipv6: [0x86, 0xdd] } as const;
const BROADCAST = new Uint8Array(6).fill(0xff);
const IPV6_GROUP_MAC = Uint8Array.of(0x33, 0x33);
const LINK_LOCAL = Uint8Array.of(0xfe, 0x80);
const LINK_LOCAL_MASK = Uint8Array.of(0xff, 0xc0);
const IPV6_GROUP = Uint8Array.of(0xff);
/** 224.0.0.0/4 and 240.0.0.0/4, of which 255.255.255.255 is one: three bits. */
const IPV4_GROUPS = Uint8Array.of(0xe0, 0, 0, 0);
/** ff00::/8 and fe80::/10 are parts of it. */
const IPV6_SPECIAL = Uint8Array.of(0xfe, 0, 0, 0);
const ICMP = 1;
const TCP = 6;
const UDP = 17;
const ICMPV6 = 58;
/** RFC 792; redirects (5) are an error, too: pods do not route. */
const ICMP_ERRORS = [3, 4, 5, 11, 12];
/** RFC 4443: the high bit of the type of an error is zero. */
const ICMPV6_ERROR_MASK = Uint8Array.of(0x80);
const ICMPV6_ERROR = Uint8Array.of(0);
/** Connection tracking takes an error for a part of the connection that it is about: policies do not see it. */
const ABOUT = { ipv4: 'icmp.about.ip.daddr', ipv6: 'icmp.about.ip6.daddr' } as const;
/** Ethernet and IPv4, with addresses of 6 and 4 bytes (RFC 826). */
const ARP_FORMAT = Uint8Array.of(0, 1, 8, 0, 6, 4);
/** RFC 4861. */
const ND = { solicitation: 135, advertisement: 136 } as const;
/** Messages that only routers send, or that ask for them. */
const ROUTER_MESSAGES = [133, 134, 137];

const hasType = (type: readonly number[]): Statement => is('ether.type', Uint8Array.from(type));
const ofPod = (family: IPFamily, mac: Field, address: Field): Statement =>
  inSet(OWN[family], 'meta.iifname', mac, address);

/**
 * Renders the chains that every packet of a pod passes first, at the device on the node, before the bridge sees it. A pod sends
 * IP packets to the gateway's MAC only, from its own MAC and addresses, and asks for neighbours and answers for itself.
 * ICMP errors are about packets that the pod received.
 * Everything else is dropped: packets to other pods' MACs, to groups and broadcast addresses, with VLAN tags, of other protocols.
 * `gatewayMac`: the bridge's.
 */
export function renderGuard(gatewayMac: string, ports: Iterable<GuardedPort>): TableSpec {
  const groups = new Map<string, ElementGroup>();
  for (const port of ports) groups.set(port.port, renderPort(gatewayMac, port));
  const gateway = macBytes(gatewayMac);
  const toGateway = is('ether.daddr', gateway);
  const isForged: Rule = [goto(DROPPED.forged)];
  const isStray: Rule = [goto(DROPPED.stray)];
  const extra = (family: IPFamily, address: Field): Rule => [
    inSet(EXTRA[family], 'meta.iifname', 'ether.saddr', address),
    accept,
  ];
  const ofOwnIpv6 = ofPod('ipv6', 'ether.saddr', 'ip6.saddr');
  // The node would forward a packet to the link-local address of another pod, which no policy knows.
  const outOfRoutes: Rule[] = [
    [is('ip6.daddr', IPV6_GROUP), ...isStray],
    [is('ip6.daddr', LINK_LOCAL, LINK_LOCAL_MASK), ...isStray],
  ];
  const ofOwnSources = (family: IPFamily): Rule[] => {
    const { source } = addressFields(family);
    return [[ofPod(family, 'ether.saddr', source), accept], extra(family, source), isForged];
  };
  const ofOwnArp = [
    ofPod('ipv4', 'ether.saddr', 'arp.saddr.ip'),
    ofPod('ipv4', 'arp.saddr.ether', 'arp.saddr.ip'),
  ];
  const chains: ChainSpec[] = [
    {
      name: 'frames',
      rules: [
        [hasType(ETHERTYPE.ipv4), goto('ipv4')],
        [hasType(ETHERTYPE.ipv6), goto('ipv6')],
        [hasType(ETHERTYPE.arp), goto('arp')],
        isStray,
      ],
    },
    {
      name: 'ipv4',
      rules: [
        [isNot('ether.daddr', gateway), ...isStray],
        [is('ip.daddr', IPV4_GROUPS, IPV4_GROUPS), ...isStray],
        [is('meta.l4proto', ICMP), goto('icmpv4')],
        ...ofOwnSources('ipv4'),
      ],
    },
    {
      name: 'icmpv4',
      rules: [
        ...ICMP_ERRORS.map((type): Rule => [is('icmp.type', Uint8Array.of(type)), goto('errors-ipv4')]),
        ...ofOwnSources('ipv4'),
      ],
    },
    ...(['ipv4', 'ipv6'] as const).map(
      (family): ChainSpec => ({
        name: `errors-${family}`,
        rules: [
          [ofPod(family, 'ether.saddr', ABOUT[family]), goto(`sources-${family}`)],
          [inSet(EXTRA[family], 'meta.iifname', 'ether.saddr', ABOUT[family]), goto(`sources-${family}`)],
          isStray,
        ],
      }),
    ),
    { name: 'sources-ipv4', rules: ofOwnSources('ipv4') },
    { name: 'sources-ipv6', rules: [...outOfRoutes, ...ofOwnSources('ipv6')] },
    {
      name: 'ipv6',
      rules: [
        [is('ip6.saddr', LINK_LOCAL, LINK_LOCAL_MASK), goto('neighbours')],
        [isNot('ether.daddr', gateway), goto('neighbours')],
        [is('meta.l4proto', ICMPV6), goto('icmpv6')],
        ...outOfRoutes,
        ...ofOwnSources('ipv6'),
      ],
    },
    {
      name: 'icmpv6',
      rules: [
        // A kernel reads neighbour discovery behind extension headers, too; nothing sends it so.
        ...[...ROUTER_MESSAGES, ...Object.values(ND)].map(
          (type): Rule => [isNot('ip6.nexthdr', ICMPV6), is('icmp.type', type), ...isStray],
        ),
        ...ROUTER_MESSAGES.map((type): Rule => [is('icmpv6.type', type), ...isStray]),
        [is('icmpv6.type', ND.solicitation), goto('neighbours')],
        [is('icmpv6.type', ND.advertisement), goto('neighbours')],
        [is('icmp.type', ICMPV6_ERROR, ICMPV6_ERROR_MASK), goto('errors-ipv6')],
        ...outOfRoutes,
        ...ofOwnSources('ipv6'),
      ],
    },
    {
      // Neighbour discovery is all that pods may send from link-local addresses and to groups.
      name: 'neighbours',
      rules: [
        [isNot('ip6.nexthdr', ICMPV6), ...isStray],
        [is('icmpv6.type', ND.solicitation), goto('solicitation')],
        [is('icmpv6.type', ND.advertisement), goto('advertisement')],
        isStray,
      ],
    },
    {
      name: 'solicitation',
      rules: [
        [toGateway, ofOwnIpv6, accept],
        [is('ether.daddr', IPV6_GROUP_MAC), ofOwnIpv6, accept],
        // Duplicate address detection, which pods do not need: no other pod can use their addresses.
        [is('ip6.saddr', new Uint8Array(16)), ...isStray],
        isForged,
      ],
    },
    {
      name: 'advertisement',
      rules: [
        [isNot('ether.daddr', gateway), ...isStray],
        [ofPod('ipv6', 'ether.saddr', 'nd.target'), ofOwnIpv6, accept],
        isForged,
      ],
    },
    {
      name: 'arp',
      rules: [
        [isNot('arp.format', ARP_FORMAT), ...isStray],
        [toGateway, ...ofOwnArp, accept],
        [is('ether.daddr', BROADCAST), ...ofOwnArp, accept],
        [...ofOwnArp, ...isStray],
        isForged,
      ],
    },
    {
      name: DROPPED.forged,
      rules: [
        [inSet(FORGERS, 'meta.iifname'), counter, drop],
        [counter, drop],
      ],
    },
    { name: DROPPED.stray, rules: [[counter, drop]] },
  ];
  return { family: 'netdev', name: GUARD_TABLE, sets: SETS, chains, groups };
}

const { interfaceName, etherAddress, ipv4Address, ipv6Address } = DATA_TYPE;
const SETS: readonly SetSpec[] = [
  { name: OWN.ipv4, key: [interfaceName, etherAddress, ipv4Address] },
  { name: OWN.ipv6, key: [interfaceName, etherAddress, ipv6Address] },
  { name: EXTRA.ipv4, key: [interfaceName, etherAddress, ipv4Address], interval: true },
  { name: EXTRA.ipv6, key: [interfaceName, etherAddress, ipv6Address], interval: true },
  { name: FORGERS, key: [interfaceName], counted: true },
];

/** Renders the elements and the chain of a pod's port. `gatewayMac`: the bridge's. */
export function renderPort(gatewayMac: string, { port, pod, mac, ips, extra }: GuardedPort): ElementGroup {
  const head = [...wordsOf(deviceName(port)), ...wordsOf(paddedMac(mac))];
  const own = (family: IPFamily, address: string): Elements =>
    elements(OWN[family], Uint32Array.from([...head, ...wordsOfAddress(address, family)]));
  const rendered = group([
    ...ips.map((address) => own(familyOf(address) ?? 'ipv4', address)),
    own('ipv6', linkLocal(mac)),
    ...(['ipv4', 'ipv6'] as const).flatMap((family) => {
      const ranges = mergedRanges(extra, family);
      return ranges.length === 0 ? [] : [rangeElements(EXTRA[family], ranges, Uint32Array.from(head))];
    }),
    elements(FORGERS, Uint32Array.from(wordsOf(deviceName(port))), { comment: pod.slice(0, 120) }),
  ]);
  const base = { type: 'filter', hook: 'ingress', priority: PRIORITY.first, device: port } as const;
  const rules = [...ips.flatMap((address) => renderUsual(gatewayMac, mac, address)), [goto('frames')]];
  return { ...rendered, chains: [{ name: `port-${port}`, base, rules }] };
}

/**
 * Renders the rules that accept what pods send most, TCP and UDP from an own address to the gateway's MAC: comparisons with
 * constants, most of which the kernel executes without a call. All that they accept, `frames` would accept.
 */
function renderUsual(gatewayMac: string, mac: string, address: string): Rule[] {
  const family = familyOf(address) ?? 'ipv4';
  const header = Uint8Array.of(...macBytes(gatewayMac), ...macBytes(mac), ...ETHERTYPE[family]);
  const source = bytesOf(wordsOfAddress(address, family));
  if (family === 'ipv4')
    return [
      [
        is('ether.header', header),
        is('ip.saddr', source),
        isNot('ip.daddr', IPV4_GROUPS, IPV4_GROUPS),
        isNot('ip.protocol', ICMP),
        accept,
      ],
    ];
  return [TCP, UDP].map((protocol) => [
    is('ip6.nexthdr', protocol),
    is('ether.header', header),
    is('ip6.saddr', source),
    isNot('ip6.daddr.start', IPV6_SPECIAL, IPV6_SPECIAL),
    accept,
  ]);
}

/** In a concatenation a field has a multiple of four bytes. */
function paddedMac(mac: string): Uint8Array {
  const bytes = new Uint8Array(8);
  bytes.set(macBytes(mac));
  return bytes;
}
