import { ENDPOINT_WORDS, formatMapped, keyText, type RouteEntry, readFrontend } from '../entries.ts';
import { ENDPOINT, FRONTEND_KEY, MEMBER, MEMBERSHIP } from '../generated/layout.ts';
import type { Sink } from '../map-writer.ts';
import type { Maps } from '../maps.ts';

const text = (bytes: Uint8Array) => Buffer.from(bytes).toString('latin1');
const bytesOf = (key: string) => new Uint8Array(Buffer.from(key, 'latin1'));

/** The result of a program's lookup for a frontend, without the numbers that depend on history. */
export interface ResolvedFrontend {
  readonly affinitySeconds: number;
  readonly balance: number;
  readonly pod: ResolvedRoute;
  readonly node: ResolvedRoute;
}

interface ResolvedRoute {
  readonly action: number;
  /** "10.244.1.2 8080", in the order of the slots. */
  readonly endpoints: readonly string[];
  /** Endpoints that a client with affinity, or an unconnected UDP socket, may continue to use. */
  readonly members: readonly string[];
}

/** The maps of the socket programs, in memory. */
export class MemoryMaps implements Sink {
  readonly #values: Record<'frontends' | 'members' | 'removed_backends', Map<string, Uint8Array>> = {
    frontends: new Map(),
    members: new Map(),
    removed_backends: new Map(),
  };
  readonly #slots = new Map<number, Uint32Array>();

  /** Returns a copy of the kernel's maps. */
  static read(maps: Maps): MemoryMaps {
    const copy = new MemoryMaps();
    for (const name of ['frontends', 'members', 'removed_backends'] as const) {
      for (const [key, value] of maps[name].entries()) copy.#values[name].set(text(key), value);
    }
    for (const [key, value] of maps.endpoints.entries()) {
      const words = new Uint32Array(value.slice().buffer);
      if (words.some((word) => word !== 0))
        copy.#slots.set(new Uint32Array(key.slice().buffer)[0] ?? -1, words);
    }
    return copy;
  }

  readonly write: Sink['write'] = (map, elements) => {
    const { count, keys, values } = elements;
    elements.count = 0;
    if (map === 'backends') return;
    for (let i = 0; i < count; i++) {
      if (map === 'endpoints') {
        const at = i * ENDPOINT_WORDS;
        this.#slots.set(keys[i] ?? -1, values.slice(at, at + ENDPOINT_WORDS));
      } else {
        const [key, value] = elements.bytesAt(i);
        this.#values[map].set(text(key), value.slice());
      }
    }
  };

  readonly delete: Sink['delete'] = (map, keys) => {
    for (const key of keys) this.#values[map].delete(text(key));
  };

  /**
   * Resolves all frontends. Throws if a program would read another frontend's slots, two numbers of one
   * endpoint, or unknown members.
   */
  resolve(): Map<string, ResolvedFrontend> {
    const numbers = new Map<string, number>();
    const membersOf = Map.groupBy(this.#values.members.keys(), (member) => member.slice(0, MEMBER.address));
    let members = 0;
    const out = new Map<string, ResolvedFrontend>();
    for (const [key, value] of this.#values.frontends) {
      const { id, affinitySeconds, balance, pod, node } = readFrontend(value);
      const protocol = key.charCodeAt(FRONTEND_KEY.protocol);
      const resolve = ({ action, first, count }: RouteEntry, counted: boolean): ResolvedRoute => {
        const endpoints: string[] = [];
        for (let i = first; i < first + count; i++) {
          const slot = this.#slots.get(i);
          const owner = slot?.[ENDPOINT.owner / 4];
          if (!slot || owner !== id) throw new Error(`slot ${i} of ${keyText(key)} belongs to ${owner}`);
          const endpoint = endpointText(new Uint8Array(slot.buffer), ENDPOINT.address, ENDPOINT.port);
          const number = slot[ENDPOINT.backend / 4] ?? -1;
          const name = `${endpoint} ${protocol}`;
          if ((numbers.get(name) ?? number) !== number) throw new Error(`${name} has two numbers`);
          numbers.set(name, number);
          endpoints.push(endpoint);
        }
        const own = count > 0 ? (membersOf.get(runOf(first)) ?? []) : [];
        for (const member of own) {
          const value = this.#values.members.get(member);
          const number = value ? new Uint32Array(value.slice().buffer)[MEMBERSHIP.backend / 4] : undefined;
          const name = `${memberText(member)} ${protocol}`;
          if (number === undefined || (numbers.get(name) ?? number) !== number)
            throw new Error(`${name} has two numbers`);
          numbers.set(name, number);
        }
        if (counted) members += own.length;
        return { action, endpoints, members: own.map(memberText).sort() };
      };
      out.set(keyText(key), {
        affinitySeconds,
        balance,
        pod: resolve(pod, true),
        node: resolve(node, pod.count === 0 || node.first !== pod.first),
      });
    }
    for (const key of this.#values.removed_backends.keys()) {
      const name = `${endpointText(bytesOf(key), FRONTEND_KEY.address, FRONTEND_KEY.port)} ${key.charCodeAt(FRONTEND_KEY.protocol)}`;
      if (numbers.has(name)) throw new Error(`${name} is marked as removed but is in use`);
    }
    if (members !== this.#values.members.size)
      throw new Error(`${this.#values.members.size - members} members are left over`);
    if (new Set(numbers.values()).size !== numbers.size) throw new Error('two endpoints have one number');
    return out;
  }
}

/** Returns the first field of a member's key. */
const runOf = (first: number): string => text(new Uint8Array(Uint32Array.of(first).buffer));
const memberText = (key: string): string => endpointText(bytesOf(key), MEMBER.address, MEMBER.port);

function endpointText(bytes: Uint8Array, address: number, port: number): string {
  return `${formatMapped(bytes.subarray(address, address + 16))} ${((bytes[port] ?? 0) << 8) | (bytes[port + 1] ?? 0)}`;
}
