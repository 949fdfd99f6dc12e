import { addressBytes, formatAddress, hostPort, type IPFamily } from '../../lib/address.ts';
import { type Codec, isZero } from './codec.ts';
import { SOURCE_OF_ONE, writeSource } from './matches.ts';
import type { Words } from './words.ts';

/** struct xt_mark_tginfo2 (linux/netfilter/xt_mark.h): u32 mark, mask. */
const MARK: Codec = {
  name: 'MARK',
  revision: 2,
  bytes: 8,
  write(words, out, at) {
    words.expect('--set-xmark');
    out.u32[at >> 2] = words.number(0xffff_ffff);
    if (!words.isNext('/')) throw words.unknown();
    out.u32[(at + 4) >> 2] = words.number(0xffff_ffff);
    words.end();
  },
  read: (bytes, at) =>
    `--set-xmark 0x${bytes.readUInt32LE(at).toString(16)}/0x${bytes.readUInt32LE(at + 4).toString(16)}`,
};

// linux/netfilter/nf_nat.h
const NF_NAT_RANGE_MAP_IPS = 1;
const NF_NAT_RANGE_PROTO_SPECIFIED = 2;
const NF_NAT_RANGE_PROTO_RANDOM_FULLY = 16;

/** IPv4: struct nf_nat_ipv4_multi_range_compat: u32 rangesize, flags, …; IPv6: struct nf_nat_range: u32 flags, …. */
function masquerade(family: IPFamily): Codec {
  const bytes = family === 'ipv4' ? 24 : 40;
  const flags = family === 'ipv4' ? 4 : 0;
  return {
    name: 'MASQUERADE',
    revision: 0,
    bytes,
    write(words, out, at) {
      words.expect('--random-fully');
      if (family === 'ipv4') out.u32[at >> 2] = 1;
      out.u32[(at + flags) >> 2] = NF_NAT_RANGE_PROTO_RANDOM_FULLY;
    },
    read(data, at) {
      const isOne = family === 'ipv6' || data.readUInt32LE(at) === 1;
      const isKnown = isOne && data.readUInt32LE(at + flags) === NF_NAT_RANGE_PROTO_RANDOM_FULLY;
      return isKnown && isZero(data, at + flags + 4, at + bytes) ? '--random-fully' : null;
    },
  };
}

/** struct nf_nat_range2: u32 flags; nf_inet_addr min, max; be16 min_proto, max_proto, base_proto. */
const RANGE = { min: 4, max: 20, minPort: 36, maxPort: 38, basePort: 40, bytes: 48 } as const;

/** Takes "[fd00::1]". */
function takeBracketed(words: Words, out: Buffer, at: number): void {
  const address = words.isNext('[') ? addressBytes(words.takeUntil(']')) : null;
  if (address?.length !== 16) throw words.unknown();
  out.set(address, at);
}

function dnat(family: IPFamily): Codec {
  const length = family === 'ipv4' ? 4 : 16;
  return {
    name: 'DNAT',
    revision: 2,
    bytes: RANGE.bytes,
    write(words, out, at) {
      words.expect('--to-destination');
      if (family === 'ipv4') words.dotted(out.bytes, at + RANGE.min);
      else takeBracketed(words, out.bytes, at + RANGE.min);
      const port = words.isNext(':') ? words.number(0xffff) : 0;
      if (port === 0) throw words.unknown();
      words.end();
      out.u32[at >> 2] = NF_NAT_RANGE_MAP_IPS | NF_NAT_RANGE_PROTO_SPECIFIED;
      out.bytes.copyWithin(at + RANGE.max, at + RANGE.min, at + RANGE.min + length);
      out.bytes.writeUInt16BE(port, at + RANGE.minPort);
      out.bytes.writeUInt16BE(port, at + RANGE.maxPort);
    },
    read(bytes, at) {
      const flags = bytes.readUInt32LE(at);
      if (flags !== (NF_NAT_RANGE_MAP_IPS | NF_NAT_RANGE_PROTO_SPECIFIED)) return null;
      for (let i = 0; i < length; i++)
        if (bytes[at + RANGE.min + i] !== bytes[at + RANGE.max + i]) return null;
      const port = bytes.readUInt16BE(at + RANGE.minPort);
      if (port !== bytes.readUInt16BE(at + RANGE.maxPort) || bytes.readUInt16BE(at + RANGE.basePort) !== 0)
        return null;
      const ip = formatAddress(bytes.subarray(at + RANGE.min, at + RANGE.min + length));
      return `--to-destination ${hostPort({ ip, port })}`;
    },
  };
}

/** enum ipt_reject_with (linux/netfilter_ipv4/ipt_REJECT.h), ip6t_reject_with (linux/netfilter_ipv6/ip6t_REJECT.h). */
const REJECTIONS: Readonly<Record<IPFamily, readonly (readonly [word: string, value: number])[]>> = {
  ipv4: [
    ['icmp-port-unreachable', 3],
    ['tcp-reset', 7],
  ],
  ipv6: [
    ['icmp6-port-unreachable', 4],
    ['tcp-reset', 6],
  ],
};

/** struct ipt_reject_info, ip6t_reject_info: u32 with. */
function reject(family: IPFamily): Codec {
  return {
    name: 'REJECT',
    revision: 0,
    bytes: 8,
    write(words, out, at) {
      words.expect('--reject-with');
      const word = words.take();
      const known = REJECTIONS[family].find(([name]) => name === word);
      if (!known) throw words.unknown();
      out.u32[at >> 2] = known[1];
    },
    read(bytes, at) {
      const value = bytes.readUInt32LE(at);
      const known = REJECTIONS[family].find(([, number]) => number === value);
      return known ? `--reject-with ${known[0]}` : null;
    },
  };
}

/** IPSET_FLAG_EXIST (linux/netfilter/ipset/ip_set.h), and IPSET_INVALID_ID in a struct xt_set_info. */
const EXIST = 1;
const NO_SET = 0xffff;

/** struct xt_set_info_target_v3: xt_set_info add_set, del_set, map_set; u32 flags, timeout. */
const SET: Codec = {
  name: 'SET',
  revision: 3,
  bytes: 24,
  write(words, out, at, sets) {
    writeSource('--add-set', words, out, at, sets);
    words.expect('--exist');
    out.u32[(at + 4) >> 2] = NO_SET;
    out.u32[(at + 8) >> 2] = NO_SET;
    out.u32[(at + 12) >> 2] = EXIST;
    out.u32[(at + 16) >> 2] = 0xffff_ffff;
  },
  read(bytes, at, sets) {
    const isKnown =
      bytes.readUInt16LE(at + 2) === SOURCE_OF_ONE &&
      bytes.readUInt32LE(at + 4) === NO_SET &&
      bytes.readUInt32LE(at + 8) === NO_SET &&
      bytes.readUInt32LE(at + 12) === EXIST &&
      bytes.readUInt32LE(at + 16) === 0xffff_ffff;
    const name = isKnown ? sets.nameOf(bytes.readUInt16LE(at)) : null;
    return name === null ? null : `--add-set ${name} src --exist`;
  },
};

/** Returns the targets that can be written, without verdicts and jumps. */
export const targetsOf = (family: IPFamily): readonly Codec[] => [
  MARK,
  masquerade(family),
  dnat(family),
  reject(family),
  SET,
];
