import type { ServerResponse } from 'node:http';
import { setTimeout as sleep } from 'node:timers/promises';
import { OWN_NETNS } from '../kernel/netns.ts';
import { TCP_FLAG, TUNNEL_PORT } from '../kernel/packet.ts';
import { preparePacketTaps } from '../kernel/packet-tap.ts';
import { messageOf } from '../lib/errors.ts';
import type { MovedCounter } from '../trace/counters.ts';
import { createFlowSelector } from '../trace/flow.ts';
import { observeHere } from '../trace/local-observation.ts';
import { datagramText, keyOf, type TracedPacket } from '../trace/observation.ts';
import type { SocketResult } from '../trace/outcome.ts';
import { type PacketLine, packetLine } from '../trace/packet-line.ts';
import { openRecorder, type Recorder, type TracedPlace } from '../trace/recorder.ts';
import type { ObservedDevice, ObservedPlace, Sighting } from '../trace/sighting.ts';
import type { AgentConfiguration } from './agent-configuration.ts';
import { CommandRefused } from './command-authorization.ts';
import { createNetnsFinder } from './node-facts.ts';
import { observedNode, observedPlace } from './observed-devices.ts';
import {
  type CheckedTrace,
  HANDSHAKES,
  readTraceBody,
  type TraceBody,
  type WatchedConnections,
} from './trace-body.ts';

/** One line of the answer to a TraceBody. Devices come first, then `start`. */
export type TraceLine =
  | {
      readonly type: 'device';
      readonly number: number;
      readonly place: Pick<ObservedPlace, 'kind' | 'name'>;
      readonly device: ObservedDevice;
    }
  /** The observers are attached. `timeNs`: by the clock that stamps packets. */
  | { readonly type: 'start'; readonly timeNs: string }
  | {
      readonly type: 'sighting';
      /** Of its device. */
      readonly number: number;
      /** Nanoseconds since 1970. */
      readonly timeNs: string;
      readonly direction: 'in' | 'out';
      readonly packet: PacketLine;
    }
  /** The report of the client's socket. */
  | { readonly type: 'result'; readonly result: SocketResult }
  /** Whatever was seen or counted before was sent; `counters`: those that have risen since the last such line. */
  | { readonly type: 'tick'; readonly counters: readonly MovedCounter[]; readonly lost: number }
  | { readonly type: 'error'; readonly message: string };

/** Requests of one node that are answered at the same time. */
const MAX_TRACES = 4;
/** Longer than a packet of a trace is waited for. Connections of others may be watched for longer. */
const MAX_TRACE_MS = 30_000;
/** How often sightings are sent; the API server, through which they pass, sends them every 200 ms. */
const POLL_MS = 50;
const TICK_MS = 200;
/** The maximum number of buffered bytes for a reader. */
const MAX_WAITING = 8 << 20;

export type TraceAnswerer = (body: Partial<TraceBody> | null, response: ServerResponse) => Promise<void>;

/**
 * Returns a function that attaches observers to this node and its pods, may send the packet of a trace from one of them, and
 * streams what they see, one TraceLine per line, until the reader disconnects.
 */
export function createNodeTrace({ nodeName, network }: AgentConfiguration): TraceAnswerer {
  const findNetns = createNetnsFinder();
  const tunnelPort = network?.overlay === 'vxlan' ? TUNNEL_PORT : null;
  let running = 0;
  return async (body, response) => {
    const asked = readTraceBody(body);
    if (running >= MAX_TRACES) throw new CommandRefused(429, `${MAX_TRACES} traces of this node are running`);
    const pods = asked.pods.flatMap(({ name, addresses }): TracedPlace[] => {
      try {
        return [observedPlace('pod', `pod ${name}`, findNetns(addresses), (link) => link.name)];
      } catch (error) {
        if (asked.send?.pod === name) throw error;
        // It ended meanwhile, or its namespace is not mounted: the node's devices show its packets.
        return [];
      }
    });
    const places = [observedNode(nodeName, OWN_NETNS, pods), ...pods];
    running++;
    try {
      await stream(response, asked, places, tunnelPort);
    } finally {
      running--;
    }
  };
}

/** The observation of a node for a request. */
interface NodeObservation {
  readonly recorder: Pick<Recorder, 'drain' | 'take' | 'check'>;
  readonly result: SocketResult;
  moved(): readonly MovedCounter[];
  lost(): number;
  /** Sends the packet, if this node does. */
  send(): void;
  close(): void;
}

/** Resolves when the reader has disconnected, or the observation has failed. */
async function stream(
  response: ServerResponse,
  asked: CheckedTrace,
  places: readonly TracedPlace[],
  tunnelPort: number | null,
): Promise<void> {
  const end = Promise.withResolvers<void>();
  response.once('close', end.resolve);
  response.writeHead(200, { 'content-type': 'application/x-ndjson' });
  const writer = createTraceWriter(response, places, asked.observed);
  let limit: NodeJS.Timeout | undefined;
  try {
    const observation = await observe(asked, places, tunnelPort, (opened) => {
      writer.begin();
      opened.send();
      return opened;
    });
    try {
      if ('protocol' in asked.observed) limit = setTimeout(end.resolve, MAX_TRACE_MS);
      await Promise.race([end.promise, writer.follow(observation, end.promise)]);
    } finally {
      observation.close();
    }
  } catch (error) {
    writer.fail(error);
  } finally {
    clearTimeout(limit);
    response.end();
  }
}

async function observe(
  { observed, send }: CheckedTrace,
  places: readonly TracedPlace[],
  tunnelPort: number | null,
  ready: (observation: NodeObservation) => NodeObservation,
): Promise<NodeObservation> {
  const pause = (ms: number) => sleep(ms);
  if (!('protocol' in observed)) {
    const taps = await preparePacketTaps(pause);
    try {
      const keeps = isWatched(observed);
      const recorder = openRecorder(taps, { places, filter: HANDSHAKES, tunnelPort, keeps });
      const { lost } = recorder;
      return ready({ recorder, result: 'open', moved: () => [], lost, send() {}, close: () => taps.close() });
    } catch (error) {
      taps.close();
      throw error;
    }
  }
  const client =
    send &&
    places.find(({ kind, name }) => (send.pod === null ? kind === 'node' : name === `pod ${send.pod}`));
  const options = {
    places,
    tunnelPort,
    send: client
      ? { origin: { netns: client.netns, controlGroup: null }, destination: send.destination }
      : null,
    keeps: isOfPacket(observed),
    sleep: pause,
  };
  return await observeHere(observed, options, (opened) =>
    ready({
      recorder: opened.recorder,
      get result() {
        return opened.result;
      },
      moved: () => places.flatMap(({ name }) => opened.moved(name)),
      lost: opened.lost,
      send: opened.send,
      close: opened.close,
    }),
  );
}

/** Selects the packets of connections that others open. */
function isWatched({ addresses, ports }: WatchedConnections): (sighting: Sighting) => boolean {
  const wanted = new Set(addresses);
  const wantedPorts = new Set(ports);
  return ({ packet }) => {
    const { source, destination, ports: ends } = packet.icmp?.about ?? packet;
    if (wanted.has(source) || wanted.has(destination)) return true;
    return ends !== null && (wantedPorts.has(ends.source) || wantedPorts.has(ends.destination));
  };
}

/** Selects the packets of a trace, and the first and last ones of connections that a proxy may have opened for it. */
function isOfPacket(packet: TracedPacket): (sighting: Sighting) => boolean {
  const partOf = createFlowSelector(keyOf(packet));
  const relayPorts = new Set(packet.protocol === 'TCP' ? packet.relayPorts : []);
  return (sighting) => {
    if (partOf(sighting) !== null) return true;
    const { tcp, ports, icmp } = sighting.packet;
    const ends = icmp ? (icmp.about?.ports ?? null) : ports;
    if (!ends || !(relayPorts.has(ends.source) || relayPorts.has(ends.destination))) return false;
    return icmp !== null || (tcp !== null && (tcp.flags & (TCP_FLAG.syn | TCP_FLAG.rst)) !== 0);
  };
}

function createTraceWriter(
  response: ServerResponse,
  places: readonly TracedPlace[],
  observed: TracedPacket | WatchedConnections,
) {
  const text = 'id' in observed ? datagramText(observed.id) : null;
  const numbers = new Map<ObservedDevice, number>();
  const counted = new Map<string, number>();
  let reported: SocketResult = 'open';
  let dropped = 0;
  const write = (line: TraceLine) => {
    if (!response.writableEnded) response.write(`${JSON.stringify(line)}\n`);
  };
  const writeSightings = (recorder: NodeObservation['recorder']) => {
    recorder.drain();
    for (const { device, direction, timeNs, packet } of recorder.take()) {
      const number = numbers.get(device) ?? 0;
      if (response.writableLength > MAX_WAITING) dropped++;
      else
        write({
          type: 'sighting',
          number,
          timeNs: String(timeNs),
          direction,
          packet: packetLine(packet, text),
        });
    }
  };
  const writeResult = (result: SocketResult) => {
    if (result === reported) return;
    reported = result;
    write({ type: 'result', result });
  };
  /** Counters that have risen since the last call, by how much since the beginning. */
  const risen = (moved: readonly MovedCounter[]) =>
    moved.filter(({ place, name, by }) => {
      const key = `${place} ${name}`;
      const before = counted.get(key);
      counted.set(key, by);
      return by !== before;
    });
  return {
    begin() {
      for (const place of places) {
        const { kind, name } = place;
        for (const device of place.devices.values()) {
          const number = numbers.size;
          numbers.set(device, number);
          write({ type: 'device', number, place: { kind, name }, device });
        }
      }
      write({ type: 'start', timeNs: String(BigInt(Date.now()) * 1_000_000n) });
    },
    /** Sends what is observed until `ended` resolves. Throws FairleadError if a place can no longer be observed. */
    async follow(observation: NodeObservation, ended: Promise<void>): Promise<void> {
      let isOver = false;
      ended.then(() => {
        isOver = true;
      });
      for (let sinceTick = TICK_MS; ; sinceTick += POLL_MS) {
        await sleep(POLL_MS);
        if (isOver) return;
        observation.recorder.check();
        writeResult(observation.result);
        const isTick = sinceTick >= TICK_MS;
        // Before the sightings: a packet that was counted has passed.
        const counters = isTick ? risen(observation.moved()) : [];
        writeSightings(observation.recorder);
        if (!isTick) continue;
        write({ type: 'tick', counters, lost: dropped + observation.lost() });
        dropped = 0;
        sinceTick = 0;
      }
    },
    fail(error: unknown) {
      write({ type: 'error', message: messageOf(error) });
    },
  };
}
