import type { NetnsRef } from '../kernel/netns.ts';
import { readFrame } from '../kernel/packet.ts';
import type { PacketTap, PacketTaps } from '../kernel/packet-tap.ts';
import type { FairleadError } from '../lib/errors.ts';
import { type FlowFilter, flowFilter } from './flow-filter.ts';
import type { ObservedPlace, Sighting } from './sighting.ts';

/** A place whose network namespace can be entered. */
export interface TracedPlace extends ObservedPlace {
  /** Indexes of devices that are not observed. */
  readonly hidden: ReadonlySet<number>;
  readonly netns: NetnsRef;
}

export interface RecorderOptions {
  readonly places: readonly TracedPlace[];
  readonly filter: FlowFilter;
  /** UDP port of VXLAN; null: none. */
  readonly tunnelPort: number | null;
  /** Selects the frames to keep among those that pass the filter; default: all. */
  readonly keeps?: (sighting: Sighting) => boolean;
}

/** The frames that the devices of some places pass. */
export interface Recorder {
  readonly sightings: readonly Sighting[];
  /** Reads the frames that have arrived. */
  drain(): void;
  /** Forgets the sightings that are older than this. */
  forget(afterMs: number): void;
  /** Returns the sightings and forgets them. */
  take(): readonly Sighting[];
  /** Throws the error of a place that can no longer be read. */
  check(): void;
  /** Returns how many frames were lost since the previous call, because the machine was too busy. */
  lost(): number;
}

/** Enough for the headers, also inside VXLAN, and the nonce of a datagram. */
const SNAP_BYTES = 320;
/** Sightings are kept in memory up to this number. */
const MAX_SIGHTINGS = 200_000;

/** Starts to record; the taps close it. Throws FairleadError if a place cannot be observed. */
export function openRecorder(
  opener: PacketTaps,
  { places, filter, tunnelPort, keeps = () => true }: RecorderOptions,
): Recorder {
  let sightings: Sighting[] = [];
  let overflow = 0;
  const failures: FairleadError[] = [];
  const program = flowFilter(filter, tunnelPort, SNAP_BYTES);
  const taps = places.map(
    (place): PacketTap =>
      opener.open({
        netns: place.netns,
        filter: program,
        snapBytes: SNAP_BYTES,
        onFrame({ data, device: index, direction, isForOther, timeNs }) {
          const device = place.devices.get(index);
          if (!device || (isForOther && !device.isPort)) return;
          const packet = readFrame(data, tunnelPort);
          if (!packet) return;
          const sighting = { place, device, direction, timeNs, packet };
          if (!keeps(sighting)) return;
          if (sightings.length < MAX_SIGHTINGS) sightings.push(sighting);
          else overflow++;
        },
        onError(error) {
          // A device went down; the others continue.
          if (error.code !== 'ENETDOWN') failures.push(error);
        },
      }),
  );
  return {
    get sightings() {
      return sightings;
    },
    drain() {
      for (const tap of taps) tap.drain();
    },
    forget(afterMs) {
      const beforeNs = BigInt(Date.now() - afterMs) * 1_000_000n;
      sightings = sightings.filter(({ timeNs }) => timeNs >= beforeNs);
    },
    take() {
      const taken = sightings;
      sightings = [];
      return taken;
    },
    check() {
      if (failures[0]) throw failures[0];
    },
    lost() {
      const count = taps.reduce((sum, tap) => sum + tap.dropped(), overflow);
      overflow = 0;
      return count;
    },
  };
}
