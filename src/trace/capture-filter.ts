import { IP_PROTOCOL, type Packet } from '../kernel/packet.ts';
import { type Cidr, canonicalAddress, cidrContains, parseCidr } from '../lib/address.ts';
import { FairleadError } from '../lib/errors.ts';

/** Whether a packet is captured; null: not IP, or unreadable. */
export type PacketTest = (packet: Packet | null) => boolean;

/** Returns the addresses of a name: "pod/x", "svc/x", "node/x", "outside". Throws FairleadError if there is none. */
export type AddressLookup = (name: string) => readonly string[];

/** The grammar, for help texts. */
export const FILTER_GRAMMAR =
  '[src|dst] host NAME, [src|dst] net CIDR, [src|dst] port N[-M], tcp, udp, icmp, joined by and, or, not and parentheses; NAME is an address, pod/NAME, svc/NAME, node/NAME or outside';

type Side = 'src' | 'dst' | null;

/**
 * Compiles a filter expression into a test of packets:
 *
 *     filter  = both { "or" both }
 *     both    = one { "and" one }
 *     one     = "not" one | "(" filter ")" | "tcp" | "udp" | "icmp"
 *             | [ "src" | "dst" ] ( "host" NAME | "net" CIDR | "port" N [ "-" M ] )
 *
 * Of packets inside VXLAN the inner addresses count. Throws FairleadError "bad-argument", and the errors of `lookup`.
 */
export function compileFilter(text: string, lookup: AddressLookup): PacketTest {
  const words = text.match(/[()]|[^\s()]+/g) ?? [];
  let at = 0;
  const next = () => words[at++];
  const wrong = (what: string) =>
    new FairleadError(`filter ${JSON.stringify(text)}: ${what}`, {
      op: 'read filter',
      code: 'bad-argument',
      hint: FILTER_GRAMMAR,
    });
  const value = (of: string): string => {
    const word = next();
    if (word === undefined || word === '(' || word === ')') throw wrong(`${of} needs a value`);
    return word;
  };

  const either = (): PacketTest => {
    const tests = [both()];
    while (words[at] === 'or') {
      at++;
      tests.push(both());
    }
    return tests.length === 1 ? (tests[0] ?? never) : (packet) => tests.some((test) => test(packet));
  };
  const both = (): PacketTest => {
    const tests = [one()];
    while (words[at] === 'and') {
      at++;
      tests.push(one());
    }
    return tests.length === 1 ? (tests[0] ?? never) : (packet) => tests.every((test) => test(packet));
  };
  const one = (): PacketTest => {
    const word = next();
    switch (word) {
      case undefined:
        throw wrong('it ends too early');
      case 'not': {
        const test = one();
        return (packet) => !test(packet);
      }
      case '(': {
        const test = either();
        if (next() !== ')') throw wrong('a closing parenthesis is missing');
        return test;
      }
      case 'tcp':
        return ofProtocols([IP_PROTOCOL.tcp]);
      case 'udp':
        return ofProtocols([IP_PROTOCOL.udp]);
      case 'icmp':
        return ofProtocols([IP_PROTOCOL.icmp, IP_PROTOCOL.icmp6]);
      case 'src':
      case 'dst':
        return field(word, value(word));
      default:
        return field(null, word);
    }
  };
  const field = (side: Side, kind: string): PacketTest => {
    switch (kind) {
      case 'host': {
        const name = value(kind);
        const address = canonicalAddress(name);
        return hasAddress(side, address === null ? lookup(name) : [address]);
      }
      case 'net': {
        const name = value(kind);
        const cidr = parseCidr(name);
        if (!cidr) throw wrong(`${name} is not a network such as 10.244.0.0/16`);
        return inNetwork(side, cidr);
      }
      case 'port': {
        const [, first, last] = /^(\d{1,5})(?:-(\d{1,5}))?$/.exec(value(kind)) ?? [];
        const [from, to] = [Number(first), Number(last ?? first)];
        if (!(from <= to && to <= 65_535)) throw wrong(`${words[at - 1]} is not a port or a range of ports`);
        return hasPort(side, from, to);
      }
      default:
        throw wrong(`${JSON.stringify(kind)} is not known`);
    }
  };

  const test = either();
  if (at < words.length) throw wrong(`"and" or "or" is missing before ${JSON.stringify(words[at])}`);
  return test;
}

const never: PacketTest = () => false;

const ofProtocols =
  (protocols: readonly number[]): PacketTest =>
  (packet) =>
    packet !== null && protocols.includes(packet.protocol);

function ofSide(side: Side, test: (packet: Packet, end: 'source' | 'destination') => boolean): PacketTest {
  const ends =
    side === null
      ? (['source', 'destination'] as const)
      : ([side === 'src' ? 'source' : 'destination'] as const);
  return (packet) => packet !== null && ends.some((end) => test(packet, end));
}

function hasAddress(side: Side, addresses: readonly string[]): PacketTest {
  const wanted = new Set(addresses);
  return ofSide(side, (packet, end) => wanted.has(packet[end]));
}

const inNetwork = (side: Side, cidr: Cidr): PacketTest =>
  ofSide(side, (packet, end) => cidrContains(cidr, packet[end]));

const hasPort = (side: Side, from: number, to: number): PacketTest =>
  ofSide(side, ({ ports }, end) => ports !== null && from <= ports[end] && ports[end] <= to);
