import { NETLINK_SOCK_DIAG, NetlinkSocket } from '../kernel/netlink/socket.ts';
import { preparePacketTaps } from '../kernel/packet-tap.ts';
import { listSockets, TCP_STATE } from '../kernel/sock-diag.ts';
import { sendSegment } from '../kernel/tcp-segment.ts';
import { canonicalAddress, familyOf } from '../lib/address.ts';
import { type Counters, type MovedCounter, movedCounters } from './counters.ts';
import { watchDroppingRules } from './dropping-rules.ts';
import type { End } from './hops.ts';
import { datagramPayload, filterOf, type Observation, type TracedPacket } from './observation.ts';
import type { SocketEnds } from './packet-sizes.ts';
import { type Probe, type ProbeOrigin, prepareTcpProbe, prepareUdpProbe } from './probe.ts';
import { readCounters } from './read-counters.ts';
import { openRecorder, type Recorder, type RecorderOptions, type TracedPlace } from './recorder.ts';

export interface LocalObservationOptions extends Pick<RecorderOptions, 'keeps'> {
  readonly places: readonly TracedPlace[];
  /** UDP port of VXLAN; null: none. */
  readonly tunnelPort: number | null;
  /** Where the packet is sent from, and to; null: it is sent elsewhere. */
  readonly send: { readonly origin: ProbeOrigin; readonly destination: End } | null;
  readonly sleep: (ms: number) => Promise<void>;
}

/** An observation whose places are namespaces of this machine. */
export interface LocalObservation extends Observation {
  readonly recorder: Recorder;
  /** Sends the packet. */
  send(): void;
}

/** How long the last frames and counters may take to arrive after the answer. */
const SETTLE_MS = 40;

/**
 * Attaches observers to places and prepares the packet, which must be sent in the same turn of the event loop, before its
 * socket notices that it is not connected. Whatever this opens ends with the process. Throws FairleadError if a place cannot
 * be observed.
 */
export async function observeHere<T>(
  packet: TracedPacket,
  { places, tunnelPort, send, sleep, ...options }: LocalObservationOptions,
  ready: (observation: LocalObservation) => T,
): Promise<T> {
  const taps = await preparePacketTaps(sleep);
  let probe: Probe | null = null;
  let dropping: ReturnType<typeof watchDroppingRules> | null = null;
  const close = () => {
    probe?.close();
    dropping?.close();
    taps.close();
  };
  try {
    const prepared = send && prepare(packet, send);
    probe = prepared && prepared.probe;
    const filter = filterOf(packet, prepared && prepared.port);
    const recorder = openRecorder(taps, { places, filter, tunnelPort, ...options });
    const { destination } = send ?? {};
    dropping =
      destination === undefined
        ? null
        : watchDroppingRules(places, packet, familyOf(destination.ip) ?? 'ipv4', destination.port);
    const before = new Map(places.map((place) => [place.name, readCounters(place.netns)]));
    return ready({
      recorder,
      clocks: null,
      send: () => send && probe?.send(send.destination.ip, send.destination.port),
      get sightings() {
        return recorder.sightings;
      },
      get result() {
        return probe?.result ?? 'open';
      },
      check: () => recorder.check(),
      async settle() {
        await sleep(SETTLE_MS);
        // On a busy machine the timer can come before the frames of the same turn.
        recorder.drain();
      },
      moved: (name) => places.filter((one) => one.name === name).flatMap((place) => moved(place, before)),
      sendSegment(name, segment) {
        const place = places.find((one) => one.name === name);
        if (place) sendSegment(segment, place.netns);
      },
      connections(name) {
        const place = places.find((one) => one.name === name);
        return place ? establishedIn(place.netns) : [];
      },
      rules: () => dropping?.rules() ?? [],
      lost: () => recorder.lost(),
      close,
    });
  } catch (error) {
    close();
    throw error;
  }
}

function establishedIn(netns: TracedPlace['netns']): SocketEnds[] {
  using socket = new NetlinkSocket({ protocol: NETLINK_SOCK_DIAG, netns });
  return (['ipv4', 'ipv6'] as const).flatMap((family) =>
    listSockets(socket, family, 'tcp', TCP_STATE.established).map(
      ({ local, localPort, remote, remotePort }) => ({
        local: { ip: canonicalAddress(local) ?? local, port: localPort },
        remote: { ip: canonicalAddress(remote) ?? remote, port: remotePort },
      }),
    ),
  );
}

function prepare(
  packet: TracedPacket,
  { origin, destination }: NonNullable<LocalObservationOptions['send']>,
): { readonly probe: Probe; readonly port: number | null } {
  const family = familyOf(destination.ip) ?? 'ipv4';
  if (packet.protocol === 'TCP')
    return { probe: prepareTcpProbe(origin, family, packet.sequence), port: null };
  const probe = prepareUdpProbe(origin, family, (port) => datagramPayload(packet, port));
  return { probe, port: probe.port };
}

function moved(place: TracedPlace, before: ReadonlyMap<string, Counters>): MovedCounter[] {
  return movedCounters(place.name, before.get(place.name) ?? new Map(), readCounters(place.netns));
}
