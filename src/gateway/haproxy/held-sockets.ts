import { closeSync } from 'node:fs';
import { copyDescriptors } from '../../kernel/copied-descriptors.ts';
import { listenTcpIn } from '../../kernel/netns.ts';
import { messageOf } from '../../lib/errors.ts';

/** A listening address of the node. */
export interface Place {
  readonly address: string;
  readonly port: number;
}

/**
 * The listening sockets of a node's gateways. This process holds them and its proxies inherit them: while one is replaced, or
 * started again after its death, the kernel keeps new connections.
 */
export interface HeldSockets {
  /** Opens what is missing, and returns the places that are open, in their order, and why others are not. */
  open(places: readonly Place[]): { readonly open: readonly Place[]; readonly problems: readonly string[] };
  /** Returns the descriptor of an open place. */
  descriptor(place: Place): number;
  /** Copies the sockets of a running proxy, of which `places` are the descriptors from `first` on. */
  adopt(pid: number, places: readonly Place[], first: number): void;
  /** Closes all but these. */
  keep(places: readonly Place[]): void;
}

export function createHeldSockets(): HeldSockets {
  const held = new Map<string, number>();
  return {
    open(places) {
      const problems: string[] = [];
      const open = places.filter((place) => {
        if (held.has(keyOf(place))) return true;
        try {
          held.set(keyOf(place), listenTcpIn(null, place.address, place.port));
          return true;
        } catch (error) {
          problems.push(messageOf(error));
          return false;
        }
      });
      return { open, problems };
    },
    descriptor: (place) => held.get(keyOf(place)) ?? -1,
    adopt(pid, places, first) {
      const copies = copyDescriptors(
        pid,
        places.map((_, i) => first + i),
      );
      for (const [i, place] of places.entries()) held.set(keyOf(place), copies[i] ?? -1);
    },
    keep(places) {
      const kept = new Set(places.map(keyOf));
      for (const [key, fd] of held) {
        if (kept.has(key)) continue;
        closeSync(fd);
        held.delete(key);
      }
    },
  };
}

export const keyOf = ({ address, port }: Place): string => `${address} ${port}`;
