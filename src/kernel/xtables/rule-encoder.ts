import type { IPFamily } from '../../lib/address.ts';
import { type Codec, type Output, type SetIndex, takeNetwork } from './codec.ts';
import { EXTENSION, INVERTED, LAYOUT, PROTOCOLS, STANDARD_BYTES, VERDICTS } from './layout.ts';
import { matchesOf } from './matches.ts';
import { targetsOf } from './targets.ts';
import { createWords, UnknownRule } from './words.ts';

/** More than the bytes of any rule that can be written: half of it for the matches. */
export const MAX_RULE_BYTES = 2048;

/** Codes of the options that are letters. */
const LETTER = { d: 0x64, g: 0x67, i: 0x69, j: 0x6a, m: 0x6d, p: 0x70, s: 0x73 } as const;

/** Writes rules in iptables-save's form as entries of x_tables. */
export interface RuleEncoder {
  /**
   * Writes a rule into zeroed memory. Returns its length; calls `jump` with the place of a jump's verdict and the chain's
   * name. Throws UnknownRule if the text, or the kernel's revision of an extension, is not known.
   */
  write(rule: string, out: Output, at: number, jump: (at: number, chain: string) => void): number;
}

export interface EncoderOptions {
  readonly family: IPFamily;
  readonly sets: SetIndex;
  /** Whether the kernel knows this revision of an extension. */
  readonly isSupported: (kind: 'match' | 'target', codec: Codec) => boolean;
}

/** Returns an encoder; each extension is asked for once. */
export function createRuleEncoder({ family, sets, isSupported }: EncoderOptions): RuleEncoder {
  const layout = LAYOUT[family];
  const matches = matchesOf(family).map(extensionOf);
  const targets = new Map(targetsOf(family).map((codec) => [codec.name, extensionOf(codec)]));
  const supported = new Set<Codec>();
  const words = createWords();

  function refuseUnsupported(kind: 'match' | 'target', codec: Codec): void {
    if (supported.has(codec)) return;
    if (!isSupported(kind, codec)) throw new UnknownRule(`${kind} ${codec.name}, revision ${codec.revision}`);
    supported.add(codec);
  }

  /** Takes the name of a match. */
  function takeMatch(): Extension {
    for (const match of matches) {
      if (!words.takeIf(match.codec.name)) continue;
      refuseUnsupported('match', match.codec);
      return match;
    }
    throw words.unknown();
  }

  function inInterface(out: Output, at: number): void {
    const name = words.take();
    if (!/^[^\s"!/]{1,15}$/.test(name) || name === '+') throw words.unknown();
    out.bytes.write(name, at + layout.inInterface, 'latin1');
    // With "+" the first characters are compared, otherwise all with the final zero.
    const compared = name.endsWith('+') ? name.length - 1 : name.length + 1;
    out.bytes.fill(0xff, at + layout.inMask, at + layout.inMask + compared);
  }

  function setBits(out: Output, at: number, bits: number): void {
    out.bytes[at] = (out.bytes[at] ?? 0) | bits;
  }

  /** Writes the options before the first match or the target. Returns the letter of the latter's option. */
  function writeHeader(out: Output, at: number): number {
    for (;;) {
      const inverted = words.isNext('!');
      if (inverted) words.end();
      const letter = words.option();
      let bit = 0;
      if (letter === LETTER.m || letter === LETTER.j || letter === LETTER.g) {
        if (inverted) throw words.unknown();
        return letter;
      }
      if (letter === LETTER.s) {
        takeNetwork(words, family, out.bytes, at + layout.source, at + layout.sourceMask);
        bit = INVERTED.source;
      } else if (letter === LETTER.d) {
        takeNetwork(words, family, out.bytes, at + layout.destination, at + layout.destinationMask);
        bit = INVERTED.destination;
      } else if (letter === LETTER.i) {
        inInterface(out, at);
        bit = INVERTED.inInterface;
      } else if (letter === LETTER.p && !inverted) {
        const number = PROTOCOLS.get(words.take());
        if (number === undefined) throw words.unknown();
        out.bytes[at + layout.protocol] = number;
        setBits(out, at + layout.flags, layout.protocolFlag);
      } else throw words.unknown();
      if (inverted) setBits(out, at + layout.inverted, bit);
    }
  }

  function writeExtension({ codec, head }: Extension, out: Output, at: number): number {
    for (let i = 0; i < head.length; i++) out.u32[(at >> 2) + i] = head[i] ?? 0;
    codec.write(words, out, at + EXTENSION.bytes, sets);
    return EXTENSION.bytes + codec.bytes;
  }

  return {
    write(rule, out, at, jump) {
      words.open(rule);
      let letter = writeHeader(out, at);
      let end = at + layout.bytes;
      for (; letter === LETTER.m; letter = words.option()) {
        end += writeExtension(takeMatch(), out, end);
        if (end - at > MAX_RULE_BYTES / 2) throw words.unknown();
      }
      out.u16[(at + layout.target) >> 1] = end - at;
      const isGoto = letter === LETTER.g;
      if (isGoto) setBits(out, at + layout.flags, layout.goto);
      else if (letter !== LETTER.j) throw words.unknown();
      const name = words.take();
      const target = isGoto ? undefined : targets.get(name);
      if (target) {
        refuseUnsupported('target', target.codec);
        end += writeExtension(target, out, end);
      } else {
        const verdict = VERDICTS.get(name);
        out.u16[end >> 1] = STANDARD_BYTES;
        if (verdict === undefined) jump(end + EXTENSION.bytes, name);
        else if (isGoto) throw words.unknown();
        else out.u32[(end + EXTENSION.bytes) >> 2] = verdict;
        end += STANDARD_BYTES;
      }
      if (!words.isEmpty()) throw words.unknown();
      out.u16[(at + layout.next) >> 1] = end - at;
      return end - at;
    },
  };
}

/** A codec with the head of its struct: size, name and revision. */
interface Extension {
  readonly codec: Codec;
  readonly head: Uint32Array;
}

function extensionOf(codec: Codec): Extension {
  const bytes = Buffer.alloc(EXTENSION.bytes);
  bytes.writeUInt16LE(EXTENSION.bytes + codec.bytes);
  bytes.write(codec.name, EXTENSION.name, 'latin1');
  bytes[EXTENSION.revision] = codec.revision;
  const head = Uint32Array.from({ length: EXTENSION.bytes / 4 }, (_, i) => bytes.readUInt32LE(4 * i));
  return { codec, head };
}
