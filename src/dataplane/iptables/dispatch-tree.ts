import type { IPFamily } from '../../lib/address.ts';
import type { Protocol } from '../../service/model.ts';
import { treeChain } from './chain-names.ts';
import { addressDigits, go, networkOf, type Rule, rule, sameRules } from './rule.ts';

/**
 * Maximum number of entries of a chain; more are split by their next differing hexadecimal digit, so that a packet passes
 * about a dozen rules among ten thousand Services, where a flat chain has ten thousand.
 */
const LEAF_ENTRIES = 8;

/** Chains to write completely, and chains to delete. */
export interface ChainChanges {
  readonly written: ReadonlyMap<string, readonly Rule[]>;
  readonly deleted: readonly string[];
}

/**
 * Chains that find the rules for a destination by the digits of its key. A key is hexadecimal: the digits
 * of the address (none for node ports), one for the protocol, four for the port; the last two parts may be
 * missing. The chain "KUBE-IP-0a60" has the keys that begin with these digits (10.96.0.0/16), "KUBE-NP-67"
 * TCP node ports 0x7000 to 0x7fff; names that would be too long end in a hash, and the rule that jumps
 * there matches the network. "…ALL" is the root. The shape depends only on the set of keys, not on the
 * order of changes, so a restarted agent finds the tree that it would build.
 */
export interface DispatchTree {
  readonly size: number;
  /** Sets the rules of keys, null to remove. Returns the changed chains. */
  update(changes: ReadonlyMap<string, readonly Rule[] | null>): ChainChanges;
  /**
   * Returns the chains that a packet with this key passes, from the root, and the key's rules; null if it
   * has none.
   */
  locate(key: string): { readonly chains: readonly string[]; readonly rules: readonly Rule[] } | null;
  /** Returns every chain. */
  render(): Map<string, readonly Rule[]>;
}

const PROTOCOL_DIGIT: Readonly<Record<Protocol, string>> = { TCP: '6', UDP: '1', SCTP: '8' };
const DIGIT_PROTOCOL: Readonly<Record<string, Protocol>> = { 6: 'TCP', 1: 'UDP', 8: 'SCTP' };

/** Returns the key of an address, port and protocol; `address` null for a node port. */
export function dispatchKey(address: string | null, protocol?: Protocol, port?: number): string {
  const digits = address === null ? '' : addressDigits(address);
  if (protocol === undefined || port === undefined) return digits;
  return digits + PROTOCOL_DIGIT[protocol] + port.toString(16).padStart(4, '0');
}

/**
 * Creates an empty tree. The names of its chains begin with `prefix`; `addressed`: keys begin with an
 * address.
 */
export function createDispatchTree(prefix: string, family: IPFamily, addressed: boolean): DispatchTree {
  const addressLength = addressed ? (family === 'ipv4' ? 8 : 32) : 0;
  let keys: string[] = [];
  const rules = new Map<string, readonly Rule[]>();

  /** Returns the rule that matches keys with these first digits and jumps to their chain. */
  function branch(digits: string): Rule {
    const target = go(treeChain(prefix, digits));
    const destination = addressed ? networkOf(digits.slice(0, addressLength), family) : undefined;
    const rest = digits.slice(addressLength);
    const protocol = DIGIT_PROTOCOL[rest[0] ?? ''];
    if (protocol === undefined) return rule({ destination }, target);
    if (rest.length === 1) return rule({ destination, protocol }, target);
    const low = Number.parseInt(rest.slice(1).padEnd(4, '0'), 16);
    const high = Number.parseInt(rest.slice(1).padEnd(4, 'f'), 16);
    return rule({ destination, protocol, port: low === high ? low : `${low}:${high}` }, target);
  }

  /**
   * Renders the chain of `digits`, whose keys are keys[from..to), and those below it. With `touched`
   * (sorted keys) renders only chains that can depend on one of them. The existence of a chain depends on
   * the keys that share all but the last of its digits, and its contents on the keys that share all of
   * them: if none of the former is touched, the chain is unchanged, even under another parent.
   */
  function renderChain(
    digits: string,
    from: number,
    to: number,
    touched: readonly string[] | null,
    out: Map<string, readonly Rule[]>,
  ): void {
    const lines: Rule[] = [];
    out.set(treeChain(prefix, digits), lines);
    if (to - from <= LEAF_ENTRIES) {
      for (let i = from; i < to; i++) lines.push(...(rules.get(keys[i] ?? '') ?? []));
      return;
    }
    const shared = commonPrefix(keys[from] ?? '', keys[to - 1] ?? '');
    const below = touched === null || touchesPrefix(touched, (keys[from] ?? '').slice(0, shared));
    for (let start = from; start < to; ) {
      const child = (keys[start] ?? '').slice(0, shared + 1);
      const end = lowerBound(keys, `${child}~`, start, to);
      if (end - start === 1) {
        lines.push(...(rules.get(keys[start] ?? '') ?? []));
      } else {
        lines.push(branch(child));
        if (below) renderChain(child, start, end, touched, out);
      }
      start = end;
    }
  }

  return {
    get size() {
      return keys.length;
    },
    update(changes) {
      const touched = [...changes.keys()].sort();
      const before = new Map<string, readonly Rule[]>();
      const after = new Map<string, readonly Rule[]>();
      renderChain('', 0, keys.length, touched, before);
      for (const [key, value] of changes) {
        if (value === null) rules.delete(key);
        else rules.set(key, value);
      }
      keys = merge(keys, touched, (key) => rules.has(key));
      renderChain('', 0, keys.length, touched, after);
      const written = new Map<string, readonly Rule[]>();
      for (const [chain, lines] of after) {
        if (!sameRules(before.get(chain), lines)) written.set(chain, lines);
      }
      return { written, deleted: [...before.keys()].filter((chain) => !after.has(chain)) };
    },
    locate(key) {
      const found = rules.get(key);
      if (!found) return null;
      const chains = [treeChain(prefix, '')];
      for (let from = 0, to = keys.length; to - from > LEAF_ENTRIES; ) {
        const shared = commonPrefix(keys[from] ?? '', keys[to - 1] ?? '');
        const child = key.slice(0, shared + 1);
        from = lowerBound(keys, child, from, to);
        to = lowerBound(keys, `${child}~`, from, to);
        if (to - from > 1) chains.push(treeChain(prefix, child));
      }
      return { chains, rules: found };
    },
    render() {
      const out = new Map<string, readonly Rule[]>();
      renderChain('', 0, keys.length, null, out);
      return out;
    },
  };
}

function touchesPrefix(touched: readonly string[], digits: string): boolean {
  return touched[lowerBound(touched, digits, 0, touched.length)]?.startsWith(digits) ?? false;
}

/** Returns the first index in [from, to) whose key is not less than `key`; "~" sorts after every digit. */
function lowerBound(keys: readonly string[], key: string, from: number, to: number): number {
  let low = from;
  let high = to;
  while (low < high) {
    const middle = (low + high) >> 1;
    if ((keys[middle] ?? '') < key) low = middle + 1;
    else high = middle;
  }
  return low;
}

function commonPrefix(a: string, b: string): number {
  let length = 0;
  while (length < a.length && a[length] === b[length]) length++;
  return length;
}

/** Merges two sorted lists without duplicates; from `b` only the wanted keys. */
function merge(a: readonly string[], b: readonly string[], wanted: (key: string) => boolean): string[] {
  const out: string[] = [];
  let i = 0;
  for (const key of b) {
    while (i < a.length && (a[i] ?? '') < key) out.push(a[i++] ?? '');
    if (a[i] === key) i++;
    if (wanted(key)) out.push(key);
  }
  while (i < a.length) out.push(a[i++] ?? '');
  return out;
}
