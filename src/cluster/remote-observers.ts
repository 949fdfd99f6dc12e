import { createInterface } from 'node:readline';
import { Readable } from 'node:stream';
import type { TraceLine } from '../agent/node-trace.ts';
import type { TraceBody } from '../agent/trace-body.ts';
import { FairleadError } from '../lib/errors.ts';
import type { ClockBounds, PlaceClocks } from '../trace/clocks.ts';
import type { MovedCounter } from '../trace/counters.ts';
import type { SocketResult } from '../trace/outcome.ts';
import { readPacketLine } from '../trace/packet-line.ts';
import type { ObservedDevice, ObservedPlace, Sighting } from '../trace/sighting.ts';
import { problemText, type RemoteCluster } from './remote-cluster.ts';

/** The observers of a trace on the nodes of a cluster, whose agents send what they see. */
export interface RemoteObservers {
  readonly sightings: readonly Sighting[];
  /** The report of the client's socket. */
  readonly result: SocketResult;
  /** The nodes whose observers are attached. */
  readonly nodes: readonly string[];
  /** Attaches the observers of a node. Throws FairleadError if its agent refuses, or cannot. */
  open(node: string, body: TraceBody): Promise<void>;
  /** The error of the node that sends the packet, or of all nodes; null: none. */
  failure(): unknown;
  /** Resolves when all nodes have sent what they saw before, or after a few seconds. */
  settle(): Promise<void>;
  clocks(reference: string): PlaceClocks;
  moved(place: string): readonly MovedCounter[];
  lost(): number;
  /** Forgets the sightings that arrived longer ago than this. */
  forget(afterMs: number): void;
  close(): void;
}

export interface RemoteObserversOptions {
  readonly cluster: Pick<RemoteCluster, 'trace' | 'ended'>;
  /** Called for a node whose stream ends, while others continue. */
  readonly onProblem: (node: string, problem: string) => void;
  /** Milliseconds since 1970. */
  readonly now: () => number;
  readonly sleep: (ms: number) => Promise<void>;
}

/** After a packet was seen, two lines of each node show that it has sent what it saw before. */
const SETTLE_TICKS = 2;
const SETTLE_MS = 3000;
const CHECK_EVERY_MS = 20;
const MAX_SIGHTINGS = 200_000;

/** The stream of one node. */
interface NodeStream {
  readonly node: string;
  readonly sends: boolean;
  ticks: number;
  isOpen: boolean;
}

const readSighting = ({ direction, timeNs, packet }: Extract<TraceLine, { type: 'sighting' }>) => ({
  direction,
  timeNs: BigInt(timeNs),
  packet: readPacketLine(packet),
});

/** The agent read its clock after the request was sent and before the line arrived; to a millisecond. */
const boundsOf = (timeNs: bigint, askedAt: number, arrivedAt: number): ClockBounds => ({
  low: timeNs - BigInt(arrivedAt + 1) * 1_000_000n,
  high: timeNs + 1_000_000n - BigInt(askedAt) * 1_000_000n,
});

export function createRemoteObservers({
  cluster,
  onProblem,
  now,
  sleep,
}: RemoteObserversOptions): RemoteObservers {
  const end = new AbortController();
  const streams: NodeStream[] = [];
  const bounds = new Map<string, ClockBounds>();
  const machines = new Map<ObservedPlace, string>();
  const counters = new Map<string, MovedCounter>();
  let sightings: Sighting[] = [];
  let arrivals: number[] = [];
  let result: SocketResult = 'open';
  let lost = 0;
  let failure: unknown = null;

  const keep = (sighting: Sighting): void => {
    if (sightings.length >= MAX_SIGHTINGS) lost++;
    else {
      sightings.push(sighting);
      arrivals.push(now());
    }
  };
  /** Reads lines until the stream ends, which is an error; `onStart` is called when the observers are attached. */
  const read = async (stream: NodeStream, body: TraceBody, onStart: () => void): Promise<never> => {
    try {
      await readLines(stream, body, onStart);
    } catch (error) {
      // Without a message of the agent, the connection broke.
      throw error instanceof FairleadError ? error : cluster.ended(stream.node, error);
    }
    throw cluster.ended(stream.node);
  };
  const readLines = async (stream: NodeStream, body: TraceBody, onStart: () => void): Promise<void> => {
    const { node } = stream;
    const askedAt = now();
    const input = Readable.from(await cluster.trace(node, body, end.signal), { objectMode: false });
    // The loop below sees the end.
    input.on('error', () => {});
    const devices = new Map<number, { readonly place: ObservedPlace; readonly device: ObservedDevice }>();
    const places = new Map<string, ObservedPlace & { readonly devices: Map<number, ObservedDevice> }>();
    for await (const text of createInterface({ input })) {
      const line = JSON.parse(text) as TraceLine;
      switch (line.type) {
        case 'device': {
          const place = places.get(line.place.name) ?? { ...line.place, devices: new Map() };
          places.set(place.name, place);
          machines.set(place, node);
          place.devices.set(line.number, line.device);
          devices.set(line.number, { place, device: line.device });
          break;
        }
        case 'start': {
          bounds.set(node, boundsOf(BigInt(line.timeNs), askedAt, now()));
          stream.isOpen = true;
          onStart();
          break;
        }
        case 'sighting': {
          const described = devices.get(line.number);
          if (described) keep({ ...described, ...readSighting(line) });
          break;
        }
        case 'result':
          result = line.result;
          break;
        case 'tick':
          for (const counter of line.counters) counters.set(`${counter.place} ${counter.name}`, counter);
          lost += line.lost;
          stream.ticks++;
          break;
        case 'error':
          throw new FairleadError(line.message, { op: `observe ${node}`, code: 'ended' });
      }
    }
  };

  return {
    get sightings() {
      return sightings;
    },
    get result() {
      return result;
    },
    get nodes() {
      return streams.filter(({ isOpen }) => isOpen).map(({ node }) => node);
    },
    async open(node, body) {
      const stream: NodeStream = { node, sends: body.send !== null, ticks: 0, isOpen: false };
      streams.push(stream);
      const started = Promise.withResolvers<void>();
      read(stream, body, started.resolve).catch((error: unknown) => {
        const wasOpen = stream.isOpen;
        stream.isOpen = false;
        started.reject(error);
        if (end.signal.aborted || !wasOpen) return;
        if (stream.sends || streams.every(({ isOpen }) => !isOpen)) failure = error;
        else onProblem(node, problemText(error));
      });
      await started.promise;
    },
    failure: () => failure,
    async settle() {
      const wanted = streams.map((stream) => ({ stream, ticks: stream.ticks + SETTLE_TICKS }));
      const deadline = now() + SETTLE_MS;
      const isWaiting = () => wanted.some(({ stream, ticks }) => stream.isOpen && stream.ticks < ticks);
      while (isWaiting() && now() < deadline) await sleep(CHECK_EVERY_MS);
    },
    clocks: (reference) => ({ reference, bounds, of: (place) => machines.get(place as ObservedPlace) ?? '' }),
    moved: (name) => [...counters.values()].filter(({ place }) => place === name),
    lost() {
      const before = lost;
      lost = 0;
      return before;
    },
    forget(afterMs) {
      const before = now() - afterMs;
      const first = arrivals.findIndex((time) => time >= before);
      const count = first < 0 ? arrivals.length : first;
      sightings = sightings.slice(count);
      arrivals = arrivals.slice(count);
    },
    close: () => end.abort(),
  };
}
