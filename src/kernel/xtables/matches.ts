import type { IPFamily } from '../../lib/address.ts';
import { type Codec, isZero, type Output, prefixOf, takeNetwork } from './codec.ts';
import { isPlain, UnknownRule, type Words } from './words.ts';

/** linux/netfilter/xt_comment.h */
const COMMENT_ROOM = 256;

/** struct xt_comment_info: char comment[256]. */
const comment: Codec = {
  name: 'comment',
  revision: 0,
  bytes: COMMENT_ROOM,
  write(words, out, at) {
    words.expect('--comment');
    words.quoted(out.bytes, at, COMMENT_ROOM - 1);
  },
  read(bytes, at) {
    let end = at;
    for (let code = bytes[end] ?? 0; code !== 0; code = bytes[++end] ?? 0) {
      if (!isPlain(code) || end === at + COMMENT_ROOM) return null;
    }
    return `--comment "${bytes.toString('latin1', at, end)}"`;
  },
};

/** linux/netfilter/xt_conntrack.h and nf_conntrack_common.h; in the order of iptables-save. */
const STATES: readonly (readonly [name: string, bit: number])[] = [
  ['INVALID', 0x001],
  ['NEW', 0x008],
  ['RELATED', 0x004],
  ['ESTABLISHED', 0x002],
  ['UNTRACKED', 0x100],
  ['SNAT', 0x040],
  ['DNAT', 0x080],
];
const XT_CONNTRACK_STATE = 0x01;
const XT_CONNTRACK_ORIGDST = 0x08;
/**
 * struct xt_conntrack_mtinfo3: eight addresses and masks of 16 bytes each, the third and fourth for the original
 * destination; u16 match_flags, invert_flags, state_mask; 164 bytes in all.
 */
const CT = {
  origDst: 32,
  origDstMask: 48,
  matchFlags: 146,
  invertFlags: 148,
  stateMask: 150,
  bytes: 168,
} as const;

/** States; in IPv4 also with a network that the first packet was sent to. */
const conntrack = (family: IPFamily): Codec => ({
  name: 'conntrack',
  revision: 3,
  bytes: CT.bytes,
  write(words, out, at) {
    const inverted = words.takeIf('!');
    words.expect('--ctstate');
    let mask = 0;
    for (const name of words.take().split(',')) {
      const state = STATES.find(([known]) => known === name);
      if (!state) throw words.unknown();
      mask |= state[1];
    }
    let flags = XT_CONNTRACK_STATE;
    if (family === 'ipv4' && words.takeIf('--ctorigdst')) {
      flags |= XT_CONNTRACK_ORIGDST;
      takeNetwork(words, family, out.bytes, at + CT.origDst, at + CT.origDstMask);
    }
    out.u16[(at + CT.matchFlags) >> 1] = flags;
    out.u16[(at + CT.invertFlags) >> 1] = inverted ? XT_CONNTRACK_STATE : 0;
    out.u16[(at + CT.stateMask) >> 1] = mask;
  },
  read(bytes, at) {
    const mask = bytes.readUInt16LE(at + CT.stateMask);
    const flags = bytes.readUInt16LE(at + CT.matchFlags);
    const inverted = bytes.readUInt16LE(at + CT.invertFlags);
    const hasNetwork = family === 'ipv4' && (flags & XT_CONNTRACK_ORIGDST) !== 0;
    const isKnown =
      (hasNetwork ? flags & ~XT_CONNTRACK_ORIGDST : flags) === XT_CONNTRACK_STATE &&
      (inverted === 0 || inverted === XT_CONNTRACK_STATE) &&
      isZero(bytes, at, at + CT.origDst) &&
      isZero(bytes, at + CT.origDst + (hasNetwork ? 4 : 0), at + CT.origDstMask) &&
      isZero(bytes, at + CT.origDstMask + (hasNetwork ? 4 : 0), at + CT.matchFlags) &&
      isZero(bytes, at + CT.stateMask + 2, at + CT.bytes);
    if (!isKnown) return null;
    const names = STATES.filter(([, bit]) => mask & bit).map(([name]) => name);
    const states = `${inverted ? '! ' : ''}--ctstate ${names.join(',')}`;
    if (!hasNetwork) return states;
    const prefix = prefixOf(bytes, at + CT.origDstMask, 4);
    // The program prints neither of these with its prefix.
    if (prefix === null || prefix === 0 || prefix === 32) return null;
    const address = bytes.subarray(at + CT.origDst, at + CT.origDst + 4);
    return `${states} --ctorigdst ${address.join('.')}/${prefix}`;
  },
});

/** struct xt_mark_mtinfo1: u32 mark, mask; u8 invert. */
const mark: Codec = {
  name: 'mark',
  revision: 1,
  bytes: 16,
  write(words, out, at) {
    out.bytes[at + 8] = words.takeIf('!') ? 1 : 0;
    words.expect('--mark');
    out.u32[at >> 2] = words.number(0xffff_ffff);
    out.u32[(at + 4) >> 2] = words.isNext('/') ? words.number(0xffff_ffff) : 0xffff_ffff;
    words.end();
  },
  read(bytes, at) {
    const mask = bytes.readUInt32LE(at + 4);
    const value = `0x${bytes.readUInt32LE(at).toString(16)}`;
    return `${bytes[at + 8] ? '! ' : ''}--mark ${value}${mask === 0xffff_ffff ? '' : `/0x${mask.toString(16)}`}`;
  },
};

/** 1 << RTN_LOCAL (linux/rtnetlink.h). */
const LOCAL = 1 << 2;

/** struct xt_addrtype_info_v1: u16 source, dest; u32 flags. */
const addrtype: Codec = {
  name: 'addrtype',
  revision: 1,
  bytes: 8,
  write(words, out, at) {
    const option = words.take();
    words.expect('LOCAL');
    if (option === '--src-type') out.u16[at >> 1] = LOCAL;
    else if (option === '--dst-type') out.u16[(at + 2) >> 1] = LOCAL;
    else throw words.unknown();
  },
  read(bytes, at) {
    if (!isZero(bytes, at + 4, at + 8)) return null;
    const [source, destination] = [bytes.readUInt16LE(at), bytes.readUInt16LE(at + 2)];
    if (source === LOCAL && destination === 0) return '--src-type LOCAL';
    return source === 0 && destination === LOCAL ? '--dst-type LOCAL' : null;
  },
};

/** xt_statistic counts probabilities in units of 2^-31. */
export const PROBABILITY_UNITS = 0x8000_0000;
/** struct xt_statistic_info: u16 mode (0: random), flags; u32 probability, …, count. */
const STATISTIC = { probability: 4, count: 12, bytes: 24 } as const;

const statistic: Codec = {
  name: 'statistic',
  revision: 0,
  bytes: STATISTIC.bytes,
  write(words, out, at) {
    words.expect('--mode');
    words.expect('random');
    words.expect('--probability');
    const word = words.take();
    const units = Math.round(Number(word) * PROBABILITY_UNITS);
    if (!/^[01]\.\d{11}$/.test(word) || units > PROBABILITY_UNITS) throw words.unknown();
    out.u32[(at + STATISTIC.probability) >> 2] = units;
    // The program sets this too, though the mode does not use it.
    out.u32[(at + STATISTIC.count) >> 2] = units;
  },
  read(bytes, at) {
    if (!isZero(bytes, at, at + STATISTIC.probability)) return null;
    const units = bytes.readUInt32LE(at + STATISTIC.probability);
    return `--mode random --probability ${probabilityText(units)}`;
  },
};

/** Returns a probability in units of 2^-31 with the digits that iptables prints. */
export function probabilityText(units: number): string {
  let probability = units / PROBABILITY_UNITS;
  // Exactly halfway between two texts (1/4096) iptables prints the even one, as C does, and toFixed the larger one.
  if ((units & 0xf_ffff) === 0x8_0000) probability = (2 * Math.round((probability * 1e11) / 2)) / 1e11;
  return probability.toFixed(11);
}

/** A set's first dimension is the source; struct xt_set_info: u16 index, u8 dim, u8 flags (1 << dimension: source). */
export const SOURCE_OF_ONE = 0x0201;

/** Writes struct xt_set_info for "OPTION NAME src". Throws UnknownRule if the set does not exist. */
export const writeSource: (option: string, ...of: Parameters<Codec['write']>) => void = (
  option,
  words,
  out,
  at,
  sets,
) => {
  words.expect(option);
  const name = words.take();
  const number = sets.numberOf(name);
  if (number === null) throw new UnknownRule(`set ${name} does not exist`);
  words.expect('src');
  out.u16[at >> 1] = number;
  out.u16[(at + 2) >> 1] = SOURCE_OF_ONE;
};

/** struct xt_set_info_match_v4: xt_set_info, counters to compare, u32 flags. */
const set: Codec = {
  name: 'set',
  revision: 4,
  bytes: 48,
  write: (...of) => writeSource('--match-set', ...of),
  read(bytes, at, sets) {
    if (bytes.readUInt16LE(at + 2) !== SOURCE_OF_ONE || !isZero(bytes, at + 4, at + 48)) return null;
    const name = sets.nameOf(bytes.readUInt16LE(at));
    return name === null ? null : `--match-set ${name} src`;
  },
};

const MAX_PORT = 0xffff;

/** Takes "--dport 80" or "--dport 80:90" into u16[2]. Returns false if there is no port. */
function takePorts(words: Words, out: Output, at: number): boolean {
  if (!words.takeIf('--dport')) return false;
  const first = words.number(MAX_PORT);
  out.u16[at >> 1] = first;
  out.u16[(at + 2) >> 1] = words.isNext(':') ? words.number(MAX_PORT) : first;
  words.end();
  return true;
}

const portsText = (first: number, last: number): string =>
  first === last ? `--dport ${first}` : `--dport ${first}:${last}`;

/** struct xt_tcp and xt_udp (linux/netfilter/xt_tcpudp.h) begin alike: u16 spts[2], dpts[2]. */
function tcpudp(name: 'tcp' | 'udp'): Codec {
  return {
    name,
    revision: 0,
    bytes: 16,
    write(words, out, at) {
      out.u16[(at + 2) >> 1] = MAX_PORT;
      if (!takePorts(words, out, at + 4)) out.u16[(at + 6) >> 1] = MAX_PORT;
    },
    read(bytes, at) {
      if (bytes.readUInt32LE(at) !== 0xffff_0000 || !isZero(bytes, at + 8, at + 12)) return null;
      const [first, last] = [bytes.readUInt16LE(at + 4), bytes.readUInt16LE(at + 6)];
      return first === 0 && last === MAX_PORT ? '' : portsText(first, last);
    },
  };
}

/** struct xt_sctp_info: u16 dpts[2], spts[2]; chunks, flag_info[4] of 3 bytes each; u32 flags, invflags. */
const SCTP = { flagInfo: 268, flags: 284, bytes: 296 } as const;
const XT_SCTP_DEST_PORTS = 0x02;

const sctp: Codec = {
  name: 'sctp',
  revision: 0,
  bytes: SCTP.bytes,
  write(words, out, at) {
    if (takePorts(words, out, at)) out.u32[(at + SCTP.flags) >> 2] = XT_SCTP_DEST_PORTS;
    // The program marks the four chunk types as absent.
    for (let i = 0; i < 4; i++) out.bytes[at + SCTP.flagInfo + 3 * i] = 0xff;
  },
  read(bytes, at) {
    const flags = bytes.readUInt32LE(at + SCTP.flags);
    if ((flags & ~XT_SCTP_DEST_PORTS) !== 0 || bytes.readUInt32LE(at + SCTP.flags + 4) !== 0) return null;
    return flags === 0 ? '' : portsText(bytes.readUInt16LE(at), bytes.readUInt16LE(at + 2));
  },
};

/** Returns the matches that can be written, the frequent ones first. */
export const matchesOf = (family: IPFamily): readonly Codec[] => [
  comment,
  statistic,
  tcpudp('tcp'),
  tcpudp('udp'),
  set,
  conntrack(family),
  mark,
  addrtype,
  sctp,
];
