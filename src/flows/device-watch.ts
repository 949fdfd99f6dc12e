import { readFrame } from '../kernel/packet.ts';
import { type PacketTaps, preparePacketTaps } from '../kernel/packet-tap.ts';
import { listLinks, openRouteSocket } from '../kernel/rtnetlink/links.ts';
import type { SocketAddress } from '../lib/address.ts';
import { messageOf } from '../lib/errors.ts';
import { MAX_SAMPLE, nextSample, SAMPLING_MS } from '../lib/sampling.ts';
import { createConnectionTable, type SeenConnection } from './connection-table.ts';
import { createNameLookups, type NameLookup } from './name-lookups.ts';
import { connectionFilter, fullSegmentFilter } from './packet-filter.ts';
import { createStalledSegments, type StalledSegment } from './stalled-segments.ts';

export interface DeviceWatchOptions {
  /** Domain of the cluster. */
  readonly domain: string;
  readonly onConnection: (seen: SeenConnection) => void;
  readonly onLookup: (lookup: NameLookup) => void;
  /** Why the DNS questions of a client to a server are not answered, as the tables of the node say; null: they may be. */
  readonly whyUnanswered: (client: SocketAddress, server: SocketAddress) => string | null;
  readonly onStall: (stalled: StalledSegment) => void;
  /** Says in words what is not shown from now on, and why. */
  readonly onNotice: (text: string) => void;
  readonly sleep: (ms: number) => Promise<void>;
}

/** A watch that has begun. */
export interface DeviceWatch {
  /** Resolves when packets are read, or a notice has said why they are not. */
  readonly ready: Promise<void>;
  close(): void;
}

/** The first bytes of a DNS answer; of a TCP segment much less is needed. */
const SNAP_BYTES = 768;
const SWEEP_MS = 250;
const DNS_PORT = 53;

/**
 * Reports the outcome of the TCP connections and DNS lookups whose packets pass the devices of this process's namespace.
 * Above a rate of packets only a sample is read, so that the cost stays bounded. The kernel ends it with the process.
 */
export function watchDevices(options: DeviceWatchOptions): DeviceWatch {
  let closed = false;
  let close = () => {};
  const ready = open(options).then(
    (opened) => {
      if (closed) opened();
      else close = opened;
    },
    (error: unknown) =>
      options.onNotice(`cannot read packets, only flows through Services are shown: ${messageOf(error)}`),
  );
  return {
    ready,
    close() {
      closed = true;
      close();
    },
  };
}

async function open({
  domain,
  onConnection,
  onLookup,
  whyUnanswered,
  onStall,
  onNotice,
  sleep,
}: DeviceWatchOptions): Promise<() => void> {
  const taps = await preparePacketTaps(sleep);
  const connections = createConnectionTable(onConnection);
  const lookups = createNameLookups(domain, onLookup, whyUnanswered);
  let devices = readDevices();
  let frames = 0;
  let sample = 1;
  let isDiscarding = false;
  const deviceOf = (index: number) => {
    // A device of a pod that has started since.
    if (!devices.has(index)) devices = readDevices();
    const known = devices.get(index) ?? { isBridge: false, isPort: false };
    devices.set(index, known);
    return known;
  };
  try {
    const tap = taps.open({
      netns: { path: '/proc/thread-self/ns/net' },
      filter: connectionFilter(sample, SNAP_BYTES),
      snapBytes: SNAP_BYTES,
      onFrame({ data, device, direction, isForOther, timeNs }) {
        frames++;
        if (isDiscarding) return;
        const { isBridge, isPort } = deviceOf(device);
        // A bridge shows again what its ports have shown.
        if (isBridge || (isForOther && !isPort)) return;
        const packet = readFrame(data, null);
        if (!packet) return;
        const { ports, source, destination, payload, tcp, icmp } = packet;
        if (ports && !tcp && !icmp && (ports.source === DNS_PORT || ports.destination === DNS_PORT)) {
          const [from, to] = [
            { ip: source, port: ports.source },
            { ip: destination, port: ports.destination },
          ];
          lookups.datagram(from, to, payload, timeNs);
        } else connections.packet(packet, direction === 'out', timeNs);
      },
      onError(error) {
        // A device went down; the others continue.
        if (error.code !== 'ENETDOWN') onNotice(`packets were not read: ${messageOf(error)}`);
      },
    });
    const stalls = watchFullSegments(taps, onStall);
    const sweep = setInterval(() => {
      // After a pause, the answers that have arrived come first.
      tap.drain();
      const now = BigInt(Date.now()) * 1_000_000n;
      connections.expire(now);
      lookups.expire(now);
    }, SWEEP_MS);
    let adapted = performance.now();
    const adapt = setInterval(() => {
      const lost = tap.dropped();
      const before = adapted;
      adapted = performance.now();
      const next = nextSample(sample, frames + lost, adapted - before);
      const hasChanged = next !== sample;
      if (hasChanged) {
        sample = next;
        tap.setFilter(connectionFilter(sample, SNAP_BYTES));
        // Packets that have passed the previous filter and wait would cost as much as before.
        isDiscarding = true;
        tap.drain();
        isDiscarding = false;
        onNotice(samplingText(sample));
      }
      frames = 0;
      // Connections whose answers were not read would count as unanswered.
      if (hasChanged || lost > 0) {
        connections.clear();
        lookups.clear();
      }
      if (lost > 0) onNotice(`${lost} packets were not read because the machine was too busy`);
    }, SAMPLING_MS);
    sweep.unref();
    adapt.unref();
    return () => {
      clearInterval(sweep);
      clearInterval(adapt);
      stalls.close();
      taps.close();
    };
  } catch (error) {
    taps.close();
    throw error;
  }
}

/** Reads headers only. */
const SEGMENT_SNAP_BYTES = 128;

/** Reports connections whose full segments are sent again without an acknowledgment. Above a rate only a sample of segments is read. */
function watchFullSegments(taps: PacketTaps, onStall: DeviceWatchOptions['onStall']): { close(): void } {
  const stalled = createStalledSegments(onStall);
  const largest = Math.max(MIN_MTU, ...readMtus());
  let sample = 1;
  let frames = 0;
  const filter = () => fullSegmentFilter(largest, sample, SEGMENT_SNAP_BYTES);
  const tap = taps.open({
    netns: { path: '/proc/thread-self/ns/net' },
    filter: filter(),
    snapBytes: SEGMENT_SNAP_BYTES,
    onFrame({ data, device, timeNs }) {
      frames++;
      const packet = readFrame(data, null);
      if (packet) stalled.segment(packet, device, timeNs);
    },
    // The tap of handshakes reports the same errors.
    onError() {},
  });
  let adapted = performance.now();
  const adapt = setInterval(() => {
    tap.drain();
    const before = adapted;
    adapted = performance.now();
    const next = nextSample(sample, frames + tap.dropped(), adapted - before);
    frames = 0;
    if (next === sample) return;
    sample = next;
    tap.setFilter(filter());
    stalled.clear();
  }, SAMPLING_MS);
  adapt.unref();
  return { close: () => clearInterval(adapt) };
}

/** The least MTU of IPv6. */
const MIN_MTU = 1280;

function readMtus(): number[] {
  using socket = openRouteSocket();
  return listLinks(socket)
    .filter(({ name }) => name !== 'lo')
    .map(({ mtu }) => mtu);
}

function samplingText(sample: number): string {
  if (sample === 1) return 'all connections and DNS lookups are shown again';
  const most = sample === MAX_SAMPLE ? ', the lowest share' : '';
  return `too many packets: from now on 1 in ${sample} of the failing connections, of those without a Service, and of the DNS lookups is shown${most}`;
}

interface DeviceFacts {
  readonly isBridge: boolean;
  readonly isPort: boolean;
}

function readDevices(): Map<number, DeviceFacts> {
  using socket = openRouteSocket();
  return new Map(
    listLinks(socket).map(({ index, kind, master }) => [
      index,
      { isBridge: kind === 'bridge', isPort: master !== null },
    ]),
  );
}
