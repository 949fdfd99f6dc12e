import { formatAddress, type IPFamily } from '../../lib/address.ts';
import type { Codec, SetIndex } from './codec.ts';
import { isZero, prefixOf } from './codec.ts';
import { EXTENSION, INVERTED, LAYOUT, PROTOCOLS, VERDICTS } from './layout.ts';
import { matchesOf } from './matches.ts';
import { targetsOf } from './targets.ts';

/** Reads entries of x_tables as rules in iptables-save's form. */
export interface RuleDecoder {
  /** Returns a rule's text; null if it has options that `RuleEncoder` does not write. */
  read(bytes: Buffer, at: number, chainAt: (offset: number) => string | null): string | null;
  /** Returns the offset of the chain that any rule jumps to; null if it does not jump. */
  jumpOf(bytes: Buffer, at: number): number | null;
}

const PROTOCOL_NAMES = new Map([...PROTOCOLS].map(([name, number]) => [number, name]));

const VERDICT_NAMES = new Map([...VERDICTS].map(([name, value]) => [value, name]));

/** Returns a decoder of rules. */
export function createRuleDecoder(family: IPFamily, sets: SetIndex): RuleDecoder {
  const layout = LAYOUT[family];
  const matches = byNameBytes(matchesOf(family));
  const targets = byNameBytes(targetsOf(family));
  const knownInversions = INVERTED.source | INVERTED.destination | INVERTED.inInterface;

  /** Returns "! -s 10.0.0.0/8 "; empty without a mask, null for a mask that is not a prefix. */
  function network(
    bytes: Buffer,
    option: string,
    at: number,
    mask: number,
    inverted: boolean,
  ): string | null {
    const { addressBytes: length } = layout;
    if (isZero(bytes, mask, mask + length)) return inverted ? null : '';
    const prefix = prefixOf(bytes, mask, length);
    if (prefix === null) return null;
    const address =
      length === 4
        ? `${bytes[at]}.${bytes[at + 1]}.${bytes[at + 2]}.${bytes[at + 3]}`
        : formatAddress(bytes.subarray(at, at + length));
    return `${inverted ? '! ' : ''}${option} ${address}/${prefix} `;
  }

  /** Returns "-i eth0 "; empty without an interface, null for an outgoing one. */
  function interfaces(bytes: Buffer, at: number, inverted: boolean): string | null {
    // Incoming and outgoing names, then their masks: 16 bytes each.
    const [name, mask] = [at + layout.inInterface, at + layout.inMask];
    if (!isZero(bytes, mask + 16, mask + 32)) return null;
    let compared = 0;
    while (compared < 16 && bytes[mask + compared] === 0xff) compared++;
    if (!isZero(bytes, mask + compared, mask + 16)) return null;
    if (compared === 0) return inverted ? null : '';
    const end = bytes.subarray(name, name + compared).indexOf(0);
    const text = bytes.toString('latin1', name, name + (end < 0 ? compared : end));
    return `${inverted ? '! ' : ''}-i ${text}${end < 0 ? '+' : ''} `;
  }

  function header(bytes: Buffer, at: number): string | null {
    const flags = bytes[at + layout.flags] ?? 0;
    const inverted = bytes[at + layout.inverted] ?? 0;
    const protocol = bytes.readUInt16LE(at + layout.protocol);
    if ((inverted & ~knownInversions) !== 0 || (flags & ~(layout.goto | layout.protocolFlag)) !== 0)
      return null;
    const isInverted = (bit: number) => (inverted & bit) !== 0;
    const source = network(
      bytes,
      '-s',
      at + layout.source,
      at + layout.sourceMask,
      isInverted(INVERTED.source),
    );
    const destination = network(
      bytes,
      '-d',
      at + layout.destination,
      at + layout.destinationMask,
      isInverted(INVERTED.destination),
    );
    const device = interfaces(bytes, at, isInverted(INVERTED.inInterface));
    const name = protocol === 0 ? '' : PROTOCOL_NAMES.get(protocol);
    if (source === null || destination === null || device === null || name === undefined) return null;
    return source + destination + device + (name === '' ? '' : `-p ${name} `);
  }

  return {
    read(bytes, at, chainAt) {
      const start = header(bytes, at);
      if (start === null) return null;
      let text = start;
      const target = at + bytes.readUInt16LE(at + layout.target);
      for (let match = at + layout.bytes; match < target; match += bytes.readUInt16LE(match)) {
        const codec = find(matches, bytes, match);
        const options = codec?.read(bytes, match + EXTENSION.bytes, sets);
        if (!codec || options === undefined || options === null) return null;
        text += options === '' ? `-m ${codec.name} ` : `-m ${codec.name} ${options} `;
      }
      if (bytes[target + EXTENSION.name] !== 0) {
        const codec = find(targets, bytes, target);
        const options = codec?.read(bytes, target + EXTENSION.bytes, sets);
        return codec && options ? `${text}-j ${codec.name} ${options}` : null;
      }
      const verdict = bytes.readInt32LE(target + EXTENSION.bytes);
      if (verdict < 0) {
        const name = VERDICT_NAMES.get(verdict);
        return name === undefined ? null : `${text}-j ${name}`;
      }
      const isGoto = ((bytes[at + layout.flags] ?? 0) & layout.goto) !== 0;
      const chain = chainAt(verdict);
      return chain === null ? null : `${text}${isGoto ? '-g' : '-j'} ${chain}`;
    },
    jumpOf(bytes, at) {
      const target = at + bytes.readUInt16LE(at + layout.target);
      const verdict = bytes[target + EXTENSION.name] === 0 ? bytes.readInt32LE(target + EXTENSION.bytes) : -1;
      return verdict < 0 ? null : verdict;
    },
  };
}

type CodecsByName = ReadonlyMap<number, readonly { readonly codec: Codec; readonly name: Buffer }[]>;

/** Groups codecs by the first four bytes of their names, which are found without making text. */
function byNameBytes(codecs: readonly Codec[]): CodecsByName {
  const named = codecs.map((codec) => {
    const name = Buffer.alloc(EXTENSION.nameRoom);
    name.write(codec.name, 'latin1');
    return { codec, name };
  });
  return Map.groupBy(named, ({ name }) => name.readUInt32LE(0));
}

/** Returns the codec of the match or target at `at`; null for another name, revision or size. */
function find(codecs: CodecsByName, bytes: Buffer, at: number): Codec | null {
  for (const { codec, name } of codecs.get(bytes.readUInt32LE(at + EXTENSION.name)) ?? []) {
    let same = 4;
    while (same <= codec.name.length && bytes[at + EXTENSION.name + same] === name[same]) same++;
    const isThis =
      same > codec.name.length &&
      bytes[at + EXTENSION.revision] === codec.revision &&
      bytes.readUInt16LE(at) === EXTENSION.bytes + codec.bytes;
    if (isThis) return codec;
  }
  return null;
}
