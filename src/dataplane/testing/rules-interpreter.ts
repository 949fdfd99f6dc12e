import { readAttributes, readBe32, readText } from '../../kernel/netlink/attributes.ts';
import type { DumpedElement } from '../../kernel/nftables/dump.ts';
import { PROTOCOL_NUMBER } from '../../kernel/protocol-numbers.ts';
import { addressBytes, familyOf, formatAddress } from '../../lib/address.ts';
import { hexOf } from '../../nft/encoding.ts';
import type { Packet } from '../../service/model.ts';
import type { KernelTable, ShownExpression } from './kernel-table.ts';

/** A possible outcome for a packet, and its probability. */
export interface Outcome {
  readonly odds: number;
  readonly action: 'forward' | 'reject' | 'drop' | 'pass';
  /** "address port" after translation; null untranslated. */
  readonly target: string | null;
  readonly masquerade: boolean;
}

/** A packet that opens a flow, with its metadata in the kernel. */
export interface KernelPacket {
  readonly packet: Packet;
  readonly destinationIsLocal: boolean;
  /** Returns true if an endpoint's address is one of this node. */
  readonly isOwnEndpoint: (address: string) => boolean;
  /** Null: sent by a process of this node. */
  readonly inInterface: string | null;
}

/** The state of a packet during the walk. */
export interface State {
  readonly odds: number;
  readonly mark: number;
  readonly target: { readonly address: Uint8Array; readonly port: number } | null;
  readonly masquerade: boolean;
}

type End = 'accept' | 'drop' | 'reject' | 'return' | null;

/** One path through a chain. */
export interface Step {
  readonly state: State;
  readonly end: End;
}

type Verdict =
  | { readonly code: 'drop' | 'accept' | 'return' }
  | { readonly code: 'jump' | 'goto'; chain: string };

const IPS_DST_NAT = 0x20;
const RTN_UNICAST = 1;
const RTN_LOCAL = 2;
/** NF_CT_STATE_BIT(IP_CT_NEW). */
const CT_NEW = 8;

export const UNTOUCHED: State = { odds: 1, mark: 0, target: null, masquerade: false };

/**
 * Walks a flow's first packet through a table as nf_tables would, following every outcome of random draws.
 */
export function interpret(table: KernelTable, input: KernelPacket): Outcome[] {
  const { packet, destinationIsLocal, isOwnEndpoint, inInterface } = input;
  const hook = createWalk(table, packet, {
    inInterface,
    isLocal: ({ target }) =>
      target === null ? destinationIsLocal : isOwnEndpoint(formatAddress(target.address)),
  });
  return hook(inInterface === null ? 'output' : 'prerouting', UNTOUCHED).flatMap(
    ({ state, end }): Outcome[] => {
      if (end === 'drop' || end === 'reject') return [outcome(state, end)];
      const stays = destinationIsLocal && state.target === null;
      return hook(stays ? 'input' : 'postrouting', state).map((last) =>
        outcome(last.state, state.target === null ? 'pass' : 'forward'),
      );
    },
  );
}

/**
 * Walks through single chains. `isLocal`: the packet's destination, translated or not, is an address of
 * this node; `inInterface` null: sent by a process of this node.
 */
export function createWalk(
  table: KernelTable,
  packet: Packet,
  { isLocal, inInterface }: { isLocal(state: State): boolean; readonly inInterface: string | null },
): (chain: string, state: State) => Step[] {
  const v4 = familyOf(packet.destination) === 'ipv4';
  const [source, destination] = [bytesOf(packet.source), bytesOf(packet.destination)];
  const scene: Scene = { table, packet, source, destination, v4, isLocal, inInterface };
  return run;

  function run(chain: string, state: State): Step[] {
    const rules = table.chains.get(chain);
    if (!rules) throw new Error(`there is no chain ${chain}`);
    const done: Step[] = [];
    let open = [state];
    for (const rule of rules) {
      const next: State[] = [];
      for (const current of open) {
        for (const step of evaluate(rule, 0, new Uint8Array(64), current)) {
          if (step.end === null) next.push(step.state);
          else done.push(step);
        }
      }
      open = next;
    }
    const ended = done.map((step): Step => (step.end === 'return' ? { ...step, end: null } : step));
    return [...ended, ...open.map((state): Step => ({ state, end: null }))];
  }

  /** Evaluates an expression. `end` null: continue with the next rule. */
  function evaluate(
    rule: readonly ShownExpression[],
    at: number,
    registers: Uint8Array,
    state: State,
  ): Step[] {
    let now = state;
    for (let i = at; i < rule.length; i++) {
      const expression = rule[i];
      if (!expression) break;
      const { name, attributes } = expression;
      const { number, value, put, get } = operands(attributes, registers);
      switch (name) {
        case 'payload':
          put(1, header(scene, number(2), number(3), number(4), now));
          continue;
        case 'meta':
          if (attributes.has(3))
            now = { ...now, mark: new DataView(get(3, 4).slice().buffer).getUint32(0, true) };
          else put(1, metaOf(scene, number(2), now));
          continue;
        case 'ct':
          put(1, conntrack(scene, number(2), now));
          continue;
        case 'fib':
          put(1, word(isLocal(now) ? RTN_LOCAL : RTN_UNICAST));
          continue;
        case 'bitwise': {
          const length = number(3);
          const [mask, xor] = [value(4), value(5)];
          const from = get(1, length).slice();
          put(
            2,
            from.map((byte, n) => (byte & (mask[n] ?? 0)) ^ (xor[n] ?? 0)),
          );
          continue;
        }
        case 'cmp': {
          const wanted = value(3);
          const equal = Buffer.compare(get(1, wanted.length), wanted) === 0;
          if (equal !== (number(2) === 0)) return [{ state: now, end: null }];
          continue;
        }
        case 'lookup': {
          const set = readText(attributes.get(1) ?? new Uint8Array(1));
          const offset = offsetOf(number(2));
          const found = find(scene, set, registers.subarray(offset));
          if ((found === null) !== ((number(5) & 1) !== 0)) return [{ state: now, end: null }];
          if (!found || !attributes.has(3)) continue;
          if (found.verdict !== null) return follow(run, verdictOf(found.verdict), now);
          put(3, found.data ?? new Uint8Array(0));
          continue;
        }
        case 'numgen': {
          const modulus = number(2);
          return Array.from({ length: modulus }, (_, drawn) => {
            const copy = registers.slice();
            const to = offsetOf(number(1));
            copy.set(word(drawn), to);
            return evaluate(rule, i + 1, copy, { ...now, odds: now.odds / modulus });
          }).flat();
        }
        case 'immediate':
          return follow(run, verdictOf(shownVerdict(attributes.get(2))), now);
        case 'nat': {
          const address = get(3, v4 ? 4 : 16).slice();
          const port = get(5, 2);
          return [
            {
              state: { ...now, target: { address, port: ((port[0] ?? 0) << 8) | (port[1] ?? 0) } },
              end: 'accept',
            },
          ];
        }
        case 'masq':
          return [{ state: { ...now, masquerade: true }, end: 'accept' }];
        case 'reject':
          return [{ state: now, end: 'reject' }];
        case 'dynset':
          continue;
        default:
          throw new Error(`the interpreter does not know the expression ${name}`);
      }
    }
    return [{ state: now, end: null }];
  }
}

/** Follows a verdict. `run`: walks through a chain. */
function follow(run: (chain: string, state: State) => Step[], verdict: Verdict, state: State): Step[] {
  switch (verdict.code) {
    case 'accept':
    case 'drop':
    case 'return':
      return [{ state, end: verdict.code }];
    case 'jump':
      return run(verdict.chain, state);
    case 'goto':
      // After a goto the rest of the calling chain is skipped, as if the chain had returned.
      return run(verdict.chain, state).map((step) => (step.end === null ? { ...step, end: 'return' } : step));
  }
}

/** Returns functions that read the attributes of an expression, and the registers that they name. */
function operands(attributes: ShownExpression['attributes'], registers: Uint8Array) {
  const number = (type: number) => readBe32(attributes.get(type) ?? new Uint8Array(4));
  const value = (type: number) =>
    readAttributes(attributes.get(type) ?? new Uint8Array(0)).get(1) ?? new Uint8Array(0);
  const put = (type: number, bytes: Uint8Array) => {
    const offset = offsetOf(number(type));
    registers.fill(0, offset, offset + Math.ceil(bytes.length / 4) * 4);
    registers.set(bytes, offset);
  };
  const get = (type: number, length: number) => {
    const offset = offsetOf(number(type));
    return registers.subarray(offset, offset + length);
  };
  return { number, value, put, get };
}

/** The properties of a packet that expressions read. */
interface Scene {
  readonly table: KernelTable;
  readonly packet: Packet;
  readonly source: Uint8Array;
  readonly destination: Uint8Array;
  readonly v4: boolean;
  readonly isLocal: (state: State) => boolean;
  readonly inInterface: string | null;
}

function header(
  { packet, source, destination, v4 }: Scene,
  base: number,
  offset: number,
  length: number,
  state: State,
): Uint8Array {
  const at = v4 ? { source: 12, destination: 16 } : { source: 8, destination: 24 };
  if (base === 1 && offset === at.source) return source.slice(0, length);
  if (base === 1 && offset === at.destination) return (state.target?.address ?? destination).slice(0, length);
  if (base === 2 && offset === 2) {
    const port = state.target?.port ?? packet.port;
    return Uint8Array.of(port >> 8, port & 255);
  }
  throw new Error(`the interpreter does not know offset ${offset} of base ${base}`);
}

function metaOf({ packet, isLocal, inInterface }: Scene, key: number, state: State): Uint8Array {
  switch (key) {
    case 3:
      return word(state.mark);
    case 6:
      return deviceName(inInterface ?? '');
    case 7:
      return deviceName(isLocal(state) ? 'lo' : 'elsewhere');
    case 16:
      return Uint8Array.of(PROTOCOL_NUMBER[packet.protocol]);
    default:
      throw new Error(`the interpreter does not know meta key ${key}`);
  }
}

/** Reads the original direction, except for the status. */
function conntrack({ packet, source, destination }: Scene, key: number, state: State): Uint8Array {
  switch (key) {
    case 0:
      return word(CT_NEW);
    case 2:
      return word(state.target === null ? 0 : IPS_DST_NAT);
    case 12:
      return Uint8Array.of(packet.port >> 8, packet.port & 255);
    case 19:
    case 21:
      return source;
    case 20:
    case 22:
      return destination;
    default:
      throw new Error(`the interpreter does not know conntrack key ${key}`);
  }
}

function find({ table, v4 }: Scene, set: string, key: Uint8Array): DumpedElement | null {
  const elements = table.sets.get(set);
  if (!elements) throw new Error(`there is no set ${set}`);
  const first = elements.values().next().value;
  if (!first) return null;
  const { length } = first.key;
  const wanted = key.subarray(0, length);
  if (set === 'allowed-sources') {
    const head = length - (v4 ? 4 : 16);
    for (const element of elements.values()) {
      const end = element.keyEnd ?? element.key;
      if (Buffer.compare(wanted.subarray(0, head), element.key.subarray(0, head)) !== 0) continue;
      if (Buffer.compare(wanted, element.key) >= 0 && Buffer.compare(wanted, end) <= 0) return element;
    }
    return null;
  }
  if (!set.endsWith('-networks')) return elements.get(hexOf(wanted)) ?? null;
  const below = [...elements.values()].filter((element) => Buffer.compare(element.key, wanted) <= 0);
  const last = below
    .sort((a, b) => Buffer.compare(a.key, b.key) || Number(b.intervalEnd) - Number(a.intervalEnd))
    .at(-1);
  return last && !last.intervalEnd ? last : null;
}

function outcome({ odds, target, masquerade }: State, action: Outcome['action']): Outcome {
  return {
    odds,
    action,
    target: target && `${formatAddress(target.address)} ${target.port}`,
    masquerade,
  };
}

/**
 * Returns the byte offset of a register by the kernel's number: 1 to 4 have 16 bytes, from 8 on 4 bytes.
 */
const offsetOf = (register: number): number => (register < 8 ? (register - 1) * 16 : (register - 8) * 4);

function word(value: number): Uint8Array {
  const bytes = new Uint8Array(4);
  new DataView(bytes.buffer).setUint32(0, value, true);
  return bytes;
}

/** IFNAMSIZ bytes. */
function deviceName(name: string): Uint8Array {
  const bytes = new Uint8Array(16);
  bytes.set(Buffer.from(name));
  return bytes;
}

function bytesOf(address: string): Uint8Array {
  const bytes = addressBytes(address);
  if (!bytes) throw new Error(`${address} is not an address`);
  return bytes;
}

/** Returns "goto chain", "drop". */
function verdictOf(text: string): Verdict {
  const [code = '', chain = ''] = text.split(' ');
  if (code === 'jump' || code === 'goto') return { code, chain };
  if (code === 'drop' || code === 'accept' || code === 'return') return { code };
  throw new Error(`the interpreter does not know the verdict ${text}`);
}

function shownVerdict(data: Uint8Array | undefined): string {
  const verdict = readAttributes(readAttributes(data ?? new Uint8Array(0)).get(2) ?? new Uint8Array(0));
  const code = readBe32(verdict.get(1) ?? new Uint8Array(4)) | 0;
  const chain = verdict.get(2);
  const name = { 0: 'drop', 1: 'accept', [-3]: 'jump', [-4]: 'goto', [-5]: 'return' }[code] ?? String(code);
  return chain ? `${name} ${readText(chain)}` : name;
}
