import { type Packet, readFrame } from '../kernel/packet.ts';
import { type PacketTap, preparePacketTaps, type TappedFrame } from '../kernel/packet-tap.ts';
import type { FairleadError } from '../lib/errors.ts';
import { enhancedPacket, interfaceDescription, nameResolution, sectionHeader } from './pcapng.ts';
import type { TracedPlace } from './recorder.ts';
import type { ObservedDevice, ObservedPlace } from './sighting.ts';
import { createTranslationNotes } from './translation-notes.ts';

/** A frame of a capture. */
export interface CapturedFrame {
  readonly place: Pick<ObservedPlace, 'kind' | 'name'>;
  readonly device: ObservedDevice;
  /** Number of the device in the capture, from 0. */
  readonly number: number;
  readonly frame: TappedFrame;
  /** Null: not IP, or unreadable. */
  readonly packet: Packet | null;
  /** The translation since the previous device; null: there was none. */
  readonly note: string | null;
}

export interface CaptureOptions {
  readonly places: readonly TracedPlace[];
  /** How much of a frame is kept. */
  readonly snapBytes: number;
  readonly tunnelPort: number | null;
  /** Whether a frame is captured. */
  readonly wants: (packet: Packet | null) => boolean;
  /** A device that the capture had not described: always before its first frame. */
  readonly onDevice: (place: TracedPlace, device: ObservedDevice, number: number) => void;
  readonly onFrame: (frame: CapturedFrame) => void;
  readonly onError: (error: FairleadError) => void;
  readonly sleep: (ms: number) => Promise<void>;
}

/** How long frames wait for earlier ones of other places. */
const HOLD_MS = 200;

export interface Capture {
  /** Returns how many frames were lost since the previous call, because the machine was too busy. */
  lost(): number;
  /** Stops, after it has passed on the frames that wait. */
  close(): void;
}

/** Passes frames of several places on in the order of their times, with notes on translations. */
export interface FrameOrder {
  add(frame: Omit<CapturedFrame, 'note'>): void;
  /** Passes on the frames that wait. */
  close(): void;
}

/**
 * `holdMs`: how long frames wait for earlier ones of other places. `drain`: adds the frames that have passed, of which a busy
 * process may have read those of some places only.
 */
export function createFrameOrder(
  holdMs: number,
  onFrame: (frame: CapturedFrame) => void,
  drain: () => void = () => {},
): FrameOrder {
  const noteOf = createTranslationNotes();
  let waiting: Omit<CapturedFrame, 'note'>[] = [];
  const pass = (untilNs: bigint | null) => {
    drain();
    const ordered = waiting.sort((a, b) => Number(a.frame.timeNs - b.frame.timeNs));
    const next = untilNs === null ? -1 : ordered.findIndex(({ frame }) => frame.timeNs > untilNs);
    waiting = next < 0 ? [] : ordered.slice(next);
    for (const one of next < 0 ? ordered : ordered.slice(0, next))
      onFrame({ ...one, note: one.packet && noteOf(one.packet) });
  };
  const timer = setInterval(() => pass(BigInt(Date.now() - holdMs) * 1_000_000n), holdMs / 2);
  return {
    add: (frame) => waiting.push(frame),
    close() {
      clearInterval(timer);
      pass(null);
    },
  };
}

/**
 * Captures frames of all devices of some places, in order of time. The kernel ends it with the process. Throws
 * FairleadError.
 */
export async function startCapture(options: CaptureOptions): Promise<Capture> {
  const { places, snapBytes, tunnelPort, wants, onDevice, onFrame, onError, sleep } = options;
  const opener = await preparePacketTaps(sleep);
  const taps: PacketTap[] = [];
  const order = createFrameOrder(HOLD_MS, onFrame, () => {
    for (const tap of taps) tap.drain();
  });
  let count = 0;
  const close = () => {
    order.close();
    opener.close();
  };
  try {
    for (const place of places) {
      const numbers = new Map<number, { device: ObservedDevice; number: number }>();
      const describe = (index: number, device: ObservedDevice) => {
        const described = { device, number: count++ };
        numbers.set(index, described);
        onDevice(place, device, described.number);
        return described;
      };
      for (const [index, device] of place.devices) describe(index, device);
      taps.push(
        opener.open({
          netns: place.netns,
          filter: null,
          snapBytes,
          onFrame(frame) {
            if (place.hidden.has(frame.device)) return;
            const packet = readFrame(frame.data, tunnelPort);
            if (!wants(packet)) return;
            const { device, number } =
              numbers.get(frame.device) ?? describe(frame.device, laterDevice(frame.device));
            order.add({ place, device, number, frame, packet });
          },
          onError(error) {
            // A device went down; the others continue.
            if (error.code !== 'ENETDOWN') onError(error);
          },
        }),
      );
    }
  } catch (error) {
    close();
    throw error;
  }
  return { lost: () => taps.reduce((sum, tap) => sum + tap.dropped(), 0), close };
}

function laterDevice(index: number): ObservedDevice {
  return { name: `if${index}`, text: `device ${index}, made during the capture`, isPort: false };
}

/** Renders the beginning of a pcapng file. `names`: of addresses. */
export function fileHead(application: string, names: Iterable<readonly [string, string]>): Uint8Array[] {
  return [sectionHeader(application), nameResolution(names)];
}

/** Renders the description of a device: its name with that of its place, and both in words. */
export function deviceBlock(
  place: CapturedFrame['place'],
  device: ObservedDevice,
  snapBytes: number,
): Uint8Array {
  return interfaceDescription(`${place.name} ${device.name}`, `${device.text} in ${place.name}`, snapBytes);
}

/** Renders a frame, with its translation as the comment. */
export function frameBlock({ number, frame, note }: CapturedFrame): Uint8Array {
  const { timeNs, data, length, direction } = frame;
  return enhancedPacket({ device: number, timeNs, data, length, direction, comment: note });
}
