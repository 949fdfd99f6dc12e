import {
  be16,
  bytesOf,
  ends as endsOf,
  type IpOptions,
  icmp,
  icmpv6,
  ip,
  ipFrame,
  join,
  PROTOCOL,
  tcp,
  udp,
} from './forged-frames.ts';
import type { Family, ForgeryScene, Station } from './forged-packets.ts';

/** Packets from a pod's own MAC and address that its policies, or the receiver's, do not admit: of every protocol and shape. */

/** One way: the frames of one packet, sent by a station. */
export interface DeniedWay {
  readonly name: string;
  readonly from: Station;
  /** `mark` is in the last one's payload. */
  readonly frames: (mark: Uint8Array) => readonly Uint8Array[];
}

type Body = (ends: { source: string; destination: string }, mark: Uint8Array) => readonly Uint8Array[];

/** The DSCP value of connections that a proxy has compared with the policies. */
const CHECKED_TOS = 43 << 2;
/** TCP flags of packets in the middle of a connection. */
const TCP_FLAGS = {
  ACK: 0x10,
  'SYN and ACK': 0x12,
  'FIN and ACK': 0x11,
  RST: 0x04,
  none: 0,
  all: 0x3f,
} as const;
/** RFC 9260, and ASCONF of RFC 5061. */
const SCTP_CHUNKS = {
  DATA: 0,
  INIT: 1,
  'INIT ACK': 2,
  HEARTBEAT: 4,
  ABORT: 6,
  'COOKIE ECHO': 10,
  ASCONF: 193,
} as const;
/** Protocols of which no kernel reads a port: DCCP, GRE, ESP, AH, UDP-Lite, experiments; 0: none. */
const OTHER_PROTOCOLS = [0, 2, 33, 47, 50, 51, 103, 132, 136, 253, 255];
/** RFC 792: errors; RFC 4443: errors, two of which are experimental. */
const ERRORS = { 4: [3, 4, 11, 12], 6: [1, 2, 3, 4, 100, 127] } as const;
const NOT_ERRORS = { 4: [0, 8, 13, 17, 40], 6: [128, 129, 130, 131, 132, 139, 143, 200] } as const;

/** Returns the ways of one family. */
export function deniedWays(scene: ForgeryScene, family: Family, nodePort: number): DeniedWay[] {
  const { foe, walled, near, far, outside, nodes } = scene;
  const [node] = nodes;
  const own = (station: { readonly ip: Station['ip'] }) => station.ip[family] ?? '';
  const targets: [name: string, from: Station, to: string, port: number][] = [
    ['a server of this node', foe, own(near), 8080],
    ['a server of another node', foe, own(far), 8080],
    ['a host outside', walled, own(outside), 8080],
    ['a socket of the node', walled, own(node), nodePort],
    ['a socket at the gateway', walled, node.gateway[family] ?? '', nodePort],
  ];
  return targets.flatMap(([name, from, to, port]) => {
    const ends = { source: own(from), destination: to };
    const shapes = [
      ...sharedShapes(port),
      ...(family === 4 ? ipv4Shapes(port, node.gateway[4] ?? '') : ipv6Shapes(port, node.gateway[6] ?? '')),
    ];
    return shapes.map(
      ([shape, body]): DeniedWay => ({
        name: `IPv${family}: ${shape} to ${name}`,
        from,
        frames: (mark) =>
          body(ends, mark).map((packet) => ipFrame({ from: from.mac, to: node.gatewayMac }, packet)),
      }),
    );
  });
}

/** Shapes that both families have; a socket would receive the datagrams. */
function sharedShapes(port: number): [name: string, body: Body][] {
  const one = (name: string, protocol: number, payload: (mark: Uint8Array) => Uint8Array): [string, Body] => [
    name,
    (ends, mark) => [ip(ends, protocol, payload(mark))],
  ];
  return [
    ['a datagram', (ends, mark) => [ip(ends, PROTOCOL.udp, udp(ends, port, mark))]],
    [
      'a datagram that says that a proxy has compared it',
      (ends, mark) => [ip(ends, PROTOCOL.udp, udp(ends, port, mark), { trafficClass: CHECKED_TOS })],
    ],
    [
      'a datagram with a wrong checksum',
      (ends, mark) => [ip(ends, PROTOCOL.udp, join(udp(ends, port, mark).subarray(0, 6), [1, 2], mark))],
    ],
    ['a datagram from the port of DNS', (ends, mark) => [ip(ends, PROTOCOL.udp, udp(ends, port, mark, 53))]],
    ...Object.entries(TCP_FLAGS).map(([name, flags]): [string, Body] => [
      `TCP with the flags ${name}`,
      (ends, mark) => [ip(ends, PROTOCOL.tcp, tcp(ends, port, flags, mark))],
    ]),
    ...Object.entries(SCTP_CHUNKS).map(([name, type]) =>
      one(`SCTP ${name}`, PROTOCOL.sctp, (mark) => sctp(port, type, mark)),
    ),
    ...OTHER_PROTOCOLS.map((protocol) =>
      one(`protocol ${protocol}`, protocol, (mark) =>
        join(be16(40_000), be16(port), new Uint8Array(16), mark),
      ),
    ),
    [
      'a packet inside IP',
      (ends, mark) => [
        ip(
          ends,
          ends.source.includes(':') ? PROTOCOL.ipv6 : PROTOCOL.ipv4,
          ip(ends, PROTOCOL.udp, udp(ends, port, mark)),
        ),
      ],
    ],
  ];
}

const sctp = (port: number, type: number, mark: Uint8Array): Uint8Array => {
  const chunk = join([type, type === 0 ? 3 : 0], be16(20 + mark.length), new Uint8Array(16), mark);
  return join(be16(40_000), be16(port), type === 1 ? [0, 0, 0, 0] : [1, 2, 3, 4], [0, 0, 0, 0], chunk);
};

function ipv4Shapes(port: number, gateway: string): [name: string, body: Body][] {
  const withOptions = (name: string, options: (to: string) => Uint8Array, via = ''): [string, Body] => [
    name,
    (ends, mark) => [
      ip({ ...ends, destination: via || ends.destination }, PROTOCOL.udp, udp(ends, port, mark), {
        options: options(ends.destination),
      }),
    ],
  ];
  const part = (ends: Parameters<Body>[0], offset: number, more: boolean, bytes: Uint8Array) =>
    ip(ends, PROTOCOL.udp, bytes, { fragment: { offset, more } });
  return [
    withOptions('loose source routing by the gateway', (to) => join([131, 7, 4], bytesOf(to), [0]), gateway),
    withOptions('strict source routing by the gateway', (to) => join([137, 7, 4], bytesOf(to), [0]), gateway),
    withOptions('a router alert', () => Uint8Array.of(148, 4, 0, 0)),
    withOptions('time stamps', () => join([68, 12, 5, 0], new Uint8Array(8))),
    ...NOT_ERRORS[4].map((type): [string, Body] => [
      `ICMP ${type}`,
      (ends, mark) => [ip(ends, PROTOCOL.icmp, icmp(type, join([0, 0, 0, 0], mark)))],
    ]),
    ...ERRORS[4].map((type): [string, Body] => [
      `ICMP error ${type}`,
      (ends, mark) => {
        const back = endsOf(ends.destination, ends.source);
        const about = ip(back, PROTOCOL.udp, udp(back, 40_000, mark, port));
        return [ip(ends, PROTOCOL.icmp, icmp(type, join([0, 0, 0, 0], about)))];
      },
    ]),
    [
      'fragments in reverse order',
      (ends, mark) => {
        const whole = udp(ends, port, join(new Uint8Array(40), mark));
        return [
          part(ends, 4, false, whole.subarray(32)),
          part(ends, 2, true, whole.subarray(16, 32)),
          part(ends, 0, true, whole.subarray(0, 16)),
        ];
      },
    ],
    [
      'fragments that overlap',
      (ends, mark) => {
        const whole = udp(ends, port, join(new Uint8Array(40), mark));
        return [
          part(ends, 0, true, join(be16(40_000), be16(53), whole.subarray(4, 24))),
          part(ends, 0, true, whole.subarray(0, 16)),
          part(ends, 2, false, whole.subarray(16)),
        ];
      },
    ],
    [
      'the beginning of a datagram after its end',
      (ends, mark) => {
        const whole = udp(ends, port, mark);
        return [part(ends, 1, false, whole.subarray(8)), part(ends, 0, true, whole.subarray(0, 8))];
      },
    ],
  ];
}

function ipv6Shapes(port: number, gateway: string): [name: string, body: Body][] {
  const padding = (next: number) => [next, 0, 1, 4, 0, 0, 0, 0];
  const headers = (
    name: string,
    first: number,
    bytes: readonly number[],
    options?: IpOptions,
  ): [string, Body] => [name, (ends, mark) => [ip(ends, first, join(bytes, udp(ends, port, mark)), options)]];
  const fragment = (next: number, offset: number, more: boolean) => [
    next,
    0,
    ...be16((offset << 3) | (more ? 1 : 0)),
    ...[0, 0, 0, 9],
  ];
  const { udp: UDP, destinationOptions, hopByHop, routing, authentication, fragment: FRAGMENT } = PROTOCOL;
  const routed = (type: number): [string, Body] => [
    `routing header ${type} by the gateway`,
    (ends, mark) => {
      const route = type === 4 ? [UDP, 2, 4, 1, 0, 0, 0, 0] : [UDP, 2, type, 1, 0, 0, 0, 0];
      const bytes = join(route, bytesOf(ends.destination), udp(ends, port, mark));
      return [ip({ ...ends, destination: gateway }, routing, bytes)];
    },
  ];
  const inFragments = (name: string, parts: (ends: Parameters<Body>[0], whole: Uint8Array) => Uint8Array[]) =>
    [
      name,
      (ends: Parameters<Body>[0], mark: Uint8Array) =>
        parts(ends, udp(ends, port, join(new Uint8Array(40), mark))),
    ] satisfies [string, Body];
  const piece = (
    ends: Parameters<Body>[0],
    offset: number,
    more: boolean,
    bytes: Uint8Array,
    next: number = UDP,
  ) => ip(ends, FRAGMENT, join(fragment(next, offset, more), bytes));
  return [
    headers('hop-by-hop options', hopByHop, padding(UDP)),
    headers('a router alert', hopByHop, [UDP, 0, 5, 2, 0, 0, 1, 0]),
    headers('destination options', destinationOptions, padding(UDP)),
    headers(
      'eight headers of options',
      destinationOptions,
      Array.from({ length: 8 }, (_, i) => padding(i === 7 ? UDP : destinationOptions)).flat(),
    ),
    headers('an authentication header', authentication, [UDP, 1, 0, 0, 0, 0, 0, 1, 0, 0, 0, 1]),
    headers('an authentication header of 16 bytes', authentication, [
      UDP,
      2,
      ...new Array<number>(14).fill(0),
    ]),
    headers('a fragment header alone', FRAGMENT, fragment(UDP, 0, false)),
    headers('two fragment headers', FRAGMENT, [...fragment(FRAGMENT, 0, false), ...fragment(UDP, 0, false)]),
    headers('a header of mobility', 135, padding(UDP)),
    headers('no next header', 59, []),
    ...[0, 2, 3, 4].map(routed),
    ...NOT_ERRORS[6].map((type): [string, Body] => [
      `ICMPv6 ${type}`,
      (ends, mark) => [ip(ends, PROTOCOL.icmpv6, icmpv6(ends, type, join([0, 0, 0, 0], mark)))],
    ]),
    ...ERRORS[6].flatMap((type): [string, Body][] => {
      const error = (ends: Parameters<Body>[0], mark: Uint8Array) => {
        const back = endsOf(ends.destination, ends.source);
        return icmpv6(ends, type, join([0, 0, 0, 0], ip(back, UDP, udp(back, 40_000, mark, port))));
      };
      return [
        [`ICMPv6 error ${type}`, (ends, mark) => [ip(ends, PROTOCOL.icmpv6, error(ends, mark))]],
        [
          `ICMPv6 error ${type} behind a fragment header`,
          (ends, mark) => [ip(ends, FRAGMENT, join(fragment(PROTOCOL.icmpv6, 0, false), error(ends, mark)))],
        ],
      ];
    }),
    inFragments('fragments in reverse order', (ends, whole) => [
      piece(ends, 4, false, whole.subarray(32)),
      piece(ends, 2, true, whole.subarray(16, 32)),
      piece(ends, 0, true, whole.subarray(0, 16)),
    ]),
    inFragments('fragments that overlap', (ends, whole) => [
      piece(ends, 0, true, join(be16(40_000), be16(53), whole.subarray(4, 24))),
      piece(ends, 0, true, whole.subarray(0, 16)),
      piece(ends, 2, false, whole.subarray(16)),
    ]),
    // RFC 7112: the first fragment has all headers; a kernel that assembles others would read a port that no filter saw.
    inFragments('a first fragment that ends inside its options', (ends, whole) => [
      piece(ends, 0, true, Uint8Array.from([UDP, 2, 1, 20, 0, 0, 0, 0]), destinationOptions),
      piece(ends, 1, false, join(new Uint8Array(16), whole), destinationOptions),
    ]),
  ];
}
