import type { Packet } from '../kernel/packet.ts';

/** A network device of an observed place. */
export interface ObservedDevice {
  readonly name: string;
  /** In words: "eth0", "veth of default/client", "bridge fl0". */
  readonly text: string;
  /** A bridge's port, where frames for others are normal. */
  readonly isPort: boolean;
  /** The size of the largest packet that it sends; absent: not known. */
  readonly mtu?: number;
}

/** A network namespace whose frames are read. */
export interface ObservedPlace {
  readonly kind: 'pod' | 'node' | 'host';
  /** "pod default/client", "node-1", "outside". */
  readonly name: string;
  /** By their indexes. */
  readonly devices: ReadonlyMap<number, ObservedDevice>;
}

/** A packet as one device passed it. */
export interface Sighting {
  readonly place: ObservedPlace;
  readonly device: ObservedDevice;
  readonly direction: 'in' | 'out';
  /** Nanoseconds since 1970, by the kernel's clock. */
  readonly timeNs: bigint;
  readonly packet: Packet;
}

/**
 * Orders sightings of several places by time. Those of one place keep the order in which they were read, which is the true
 * one: a bridge leaves the timestamp of its port.
 */
export function inOrder(sightings: readonly Sighting[]): Sighting[] {
  const queues = new Map<ObservedPlace, Sighting[]>();
  for (const one of sightings) {
    const queue = queues.get(one.place);
    if (queue) queue.push(one);
    else queues.set(one.place, [one]);
  }
  const heads = [...queues.values()].map((queue) => ({ queue, next: 0 }));
  const ordered: Sighting[] = [];
  while (ordered.length < sightings.length) {
    let first: { head: (typeof heads)[number]; sighting: Sighting } | null = null;
    for (const head of heads) {
      const sighting = head.queue[head.next];
      if (sighting && (!first || sighting.timeNs < first.sighting.timeNs)) first = { head, sighting };
    }
    if (!first) break;
    first.head.next++;
    ordered.push(first.sighting);
  }
  return ordered;
}
