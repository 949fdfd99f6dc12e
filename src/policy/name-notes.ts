import { hash } from 'node:crypto';
import { PRIORITY } from '../kernel/nftables/priorities.ts';
import { PROTOCOL_NUMBER } from '../kernel/protocol-numbers.ts';
import { addressBytes, type IPFamily } from '../lib/address.ts';
import {
  accept,
  addressFields,
  drop,
  goto,
  is,
  isNot,
  jump,
  type Rule,
  remember,
  typesOf,
} from '../nft/rule.ts';
import type { Fragment } from '../nft/spec.ts';
import { LIFETIMES, MAX_ADDRESSES_OF_NODE } from './name-limits.ts';
import { nameSetOf } from './policy-chain-names.ts';

// An address that a pod got for a name is written by a datagram of the agent to its own loopback ("note"), which a rule of the
// output hook puts into a set and drops. A transaction of nf_tables would wait for each other one of the namespace (they share a
// mutex): for a second behind one that programs 10,000 Services. The rule has run when send(2) returns, with EPERM.

const NOTES = 'name-notes';
const GROUPS = 'name-notes-of';
const UDP_HEADER = 8;
const TOKEN_BYTES = 16;

export const LOOPBACK_ADDRESS: Readonly<Record<IPFamily, string>> = { ipv4: '127.0.0.1', ipv6: '::1' };

/** Returns what a note about a group has to contain; other processes of the node do not know it. */
export const noteToken = (secret: string, group: string): Uint8Array =>
  Buffer.from(hash('sha256', `${secret} ${group}`, 'hex'), 'hex').subarray(0, TOKEN_BYTES);

/** Returns the payload of a note. `lifetime`: an index of LIFETIMES. The addresses: of one family, in bytes. */
export function noteBytes(
  token: Uint8Array,
  lifetime: number,
  pod: Uint8Array,
  address: Uint8Array,
): Uint8Array {
  const bytes = new Uint8Array(TOKEN_BYTES + 4 + pod.length + address.length);
  bytes.set(token);
  bytes.set(numberBytes(lifetime), TOKEN_BYTES);
  bytes.set(pod, TOKEN_BYTES + 4);
  bytes.set(address, TOKEN_BYTES + 4 + pod.length);
  return bytes;
}

const numberBytes = (value: number): Uint8Array => Uint8Array.of(0, 0, 0, value);

/** The chains that apply notes. Fragments of the same group are the same object. */
export interface NoteChains {
  /** Returns what the set of a group needs. */
  of(group: string): Fragment[];
}

export function createNoteChains(family: IPFamily, secret: string): NoteChains {
  const { source, destination } = addressFields(family);
  const loopback = addressBytes(LOOPBACK_ADDRESS[family]) ?? new Uint8Array();
  const length = UDP_HEADER + TOKEN_BYTES + 4 + 2 * loopback.length;
  const key =
    family === 'ipv4'
      ? (['note.ip.saddr', 'note.ip.daddr'] as const)
      : (['note.ip6.saddr', 'note.ip6.daddr'] as const);
  const common: Fragment = {
    sets: [],
    chains: [
      {
        name: NOTES,
        // Before the rules of others, one of which might drop a note, and before connection tracking.
        base: { type: 'filter', hook: 'output', priority: PRIORITY.first },
        rules: [
          [isNot('meta.l4proto', PROTOCOL_NUMBER.UDP), accept],
          [is('udp.length', Uint8Array.of(0, length)), is(destination, loopback), jump(GROUPS)],
        ],
      },
      { name: GROUPS, rules: [] },
    ],
    rules: [],
  };
  const groups = new Map<string, Fragment>();
  const made = (group: string): Fragment => {
    const name = `note-${group}`;
    const set = nameSetOf(group);
    return {
      sets: [{ name: set, key: typesOf(source, destination), dynamic: true, size: MAX_ADDRESSES_OF_NODE }],
      chains: [
        {
          name,
          rules: LIFETIMES.map(
            (timeoutMs, index): Rule => [
              is('note.number', numberBytes(index)),
              remember(set, key, timeoutMs),
              drop,
            ],
          ),
        },
      ],
      rules: [{ name: GROUPS, rules: [[is('note.token', noteToken(secret, group)), goto(name)]] }],
    };
  };
  return {
    of(group) {
      const known = groups.get(group) ?? made(group);
      groups.set(group, known);
      return [common, known];
    },
  };
}
