import type { Sink } from '../forwarding-table.ts';
import { formatMapped } from '../kernel-contents.ts';
import { ENDPOINT_WORDS, type RouteEntry, readFrontend } from '../layout.ts';
import type { Maps } from '../socket-programs.ts';
import { keyText } from '../verify.ts';

const text = (bytes: Uint8Array) => Buffer.from(bytes).toString('latin1');

/** What a program would find, written out: free of the numbers that depend on history. */
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
  /** Those that a client may come back to. */
  readonly members: readonly string[];
}

/** The maps of the socket programs, kept in memory. */
export class MemoryMaps implements Sink {
  readonly frontends = new Map<string, Uint8Array>();
  readonly slots = new Map<number, Uint32Array>();
  readonly members = new Map<string, number>();
  readonly departed = new Set<string>();

  /** A copy of what the kernel holds. */
  static read(maps: Maps): MemoryMaps {
    const copy = new MemoryMaps();
    for (const [key, value] of maps.frontends.entries()) copy.frontends.set(text(key), value);
    for (const [key, value] of maps.endpoints.entries()) {
      const words = new Uint32Array(value.slice().buffer);
      if (words.some((word) => word !== 0))
        copy.slots.set(new Uint32Array(key.slice().buffer)[0] ?? -1, words);
    }
    for (const [key, value] of maps.members.entries()) {
      copy.members.set(text(key), new Uint32Array(value.slice().buffer)[0] ?? -1);
    }
    for (const [key] of maps.departed.entries()) copy.departed.add(text(key));
    return copy;
  }

  readonly writeBackends: Sink['writeBackends'] = (elements) => {
    elements.count = 0;
  };

  readonly writeSlots: Sink['writeSlots'] = (elements) => {
    for (let i = 0; i < elements.count; i++) {
      const at = i * ENDPOINT_WORDS;
      this.slots.set(elements.keys[i] ?? -1, elements.values.slice(at, at + ENDPOINT_WORDS));
    }
    elements.count = 0;
  };

  readonly writeMembers: Sink['writeMembers'] = (elements) => {
    const keys = new Uint8Array(elements.keys.buffer);
    for (let i = 0; i < elements.count; i++) {
      this.members.set(text(keys.subarray(i * 24, i * 24 + 24)), elements.values[i] ?? -1);
    }
    elements.count = 0;
  };

  readonly writeFrontends: Sink['writeFrontends'] = (elements) => {
    const keys = new Uint8Array(elements.keys.buffer);
    const values = new Uint8Array(elements.values.buffer);
    for (let i = 0; i < elements.count; i++) {
      this.frontends.set(text(keys.subarray(i * 20, i * 20 + 20)), values.slice(i * 36, i * 36 + 36));
    }
    elements.count = 0;
  };

  readonly deleteFrontends: Sink['deleteFrontends'] = (keys) => {
    for (const key of keys) this.frontends.delete(text(key));
  };

  readonly deleteMembers: Sink['deleteMembers'] = (keys) => {
    for (const key of keys) this.members.delete(text(key));
  };

  readonly writeDeparted: Sink['writeDeparted'] = (keys) => {
    for (const key of keys) this.departed.add(text(key));
  };

  readonly deleteDeparted: Sink['deleteDeparted'] = (keys) => {
    for (const key of keys) this.departed.delete(text(key));
  };

  /** Throws where a program would meet another frontend's slots, two numbers of one endpoint, or strangers as members. */
  resolve(): Map<string, ResolvedFrontend> {
    const numbers = new Map<string, number>();
    let members = 0;
    const out = new Map<string, ResolvedFrontend>();
    for (const [key, value] of this.frontends) {
      const { id, affinitySeconds, balance, pod, node } = readFrontend(value);
      const protocol = key.charCodeAt(18);
      const resolve = ({ action, first, count }: RouteEntry, counted: boolean): ResolvedRoute => {
        const endpoints: string[] = [];
        for (let i = first; i < first + count; i++) {
          const slot = this.slots.get(i);
          if (!slot || slot[5] !== id)
            throw new Error(`slot ${i} of ${keyText(key)} belongs to ${slot?.[5]}`);
          const bytes = new Uint8Array(slot.buffer, slot.byteOffset, slot.byteLength);
          const port = ((bytes[16] ?? 0) << 8) | (bytes[17] ?? 0);
          const endpoint = `${formatMapped(bytes.subarray(0, 16))} ${port}`;
          const number = slot[6] ?? -1;
          const name = `${endpoint} ${protocol}`;
          if ((numbers.get(name) ?? number) !== number) throw new Error(`${name} has two numbers`);
          numbers.set(name, number);
          endpoints.push(endpoint);
        }
        const prefix = text(new Uint8Array(Uint32Array.of(first).buffer));
        const own = [...this.members.keys()].filter((member) => count > 0 && member.startsWith(prefix));
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
    for (const key of this.departed) {
      const name = `${formatMapped(new Uint8Array(Buffer.from(key.slice(0, 16), 'latin1')))} ${(key.charCodeAt(16) << 8) | key.charCodeAt(17)} ${key.charCodeAt(18)}`;
      if (numbers.has(name)) throw new Error(`${name} has departed and is in use`);
    }
    if (members !== this.members.size)
      throw new Error(`${this.members.size - members} members are left over`);
    if (new Set(numbers.values()).size !== numbers.size) throw new Error('two endpoints have one number');
    return out;
  }
}

function memberText(key: string): string {
  const bytes = new Uint8Array(Buffer.from(key, 'latin1'));
  return `${formatMapped(bytes.subarray(4, 20))} ${((bytes[20] ?? 0) << 8) | (bytes[21] ?? 0)}`;
}
