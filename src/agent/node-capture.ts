import type { ServerResponse } from 'node:http';
import { setTimeout as sleep } from 'node:timers/promises';
import { OWN_NETNS } from '../kernel/netns.ts';
import { type Packet, TUNNEL_PORT } from '../kernel/packet.ts';
import { messageOf } from '../lib/errors.ts';
import { startCapture } from '../trace/capture.ts';
import { compileFilter } from '../trace/capture-filter.ts';
import type { TracedPlace } from '../trace/recorder.ts';
import type { ObservedDevice, ObservedPlace } from '../trace/sighting.ts';
import type { AgentConfiguration } from './agent-configuration.ts';
import { badRequest } from './bad-request.ts';
import { CommandRefused } from './command-authorization.ts';
import { createNetnsFinder } from './node-facts.ts';
import { observedNode, observedPlace } from './observed-devices.ts';

/** The body of a request to capture packets of this node. */
export interface CaptureBody {
  /** Pods of this node whose own devices are observed too. */
  readonly pods: readonly { readonly name: string; readonly addresses: readonly string[] }[];
  /** Only packets from or to these addresses; null: all. */
  readonly addresses: readonly string[] | null;
  /** See compileFilter; null: none. */
  readonly filter: string | null;
  /** The addresses of the names in the filter. */
  readonly names: Readonly<Record<string, readonly string[]>>;
  readonly snapBytes: number;
}

/** One line of the answer. Devices are described before their first frame. */
export type CaptureLine =
  /** `tunnelPort`: the UDP port of VXLAN; null: none. */
  | { readonly type: 'start'; readonly tunnelPort: number | null }
  | {
      readonly type: 'device';
      readonly number: number;
      readonly place: Pick<ObservedPlace, 'kind' | 'name'>;
      readonly device: ObservedDevice;
    }
  | {
      readonly type: 'frame';
      /** Of its device. */
      readonly number: number;
      /** Nanoseconds since 1970. */
      readonly timeNs: string;
      readonly direction: 'in' | 'out';
      readonly length: number;
      /** Base64. */
      readonly data: string;
    }
  /** Frames that were lost since the last such line. */
  | { readonly type: 'lost'; readonly count: number }
  | { readonly type: 'error'; readonly message: string };

/** The maximum number of pods of this node whose devices are observed; a tap of each has a buffer of 16 MiB. */
export const MAX_CAPTURED_PODS = 8;
const MAX_CAPTURES = 2;
const MAX_SNAP_BYTES = 65_535;
/** The maximum number of buffered bytes for a reader. */
const MAX_WAITING = 8 << 20;
const REPORT_MS = 1000;

/** Returns a function that streams captured frames of this node, one CaptureLine per line, until the reader disconnects. */
export function createNodeCapture({
  nodeName,
  network,
  commandsBindAddress,
}: AgentConfiguration): (body: Partial<CaptureBody> | null, response: ServerResponse) => Promise<void> {
  const findNetns = createNetnsFinder();
  const ownPort = Number(commandsBindAddress?.split(':').at(-1));
  const tunnelPort = network?.overlay === 'vxlan' ? TUNNEL_PORT : null;
  let running = 0;
  return async (body, response) => {
    if (running >= MAX_CAPTURES)
      throw new CommandRefused(429, `${MAX_CAPTURES} captures of this node are running`);
    const wants = wantsOf(body ?? {}, ownPort);
    const { pods = [], snapBytes = 0 } = body ?? {};
    if (!(snapBytes > 0 && snapBytes <= MAX_SNAP_BYTES)) throw badRequest('snapBytes is not a length');
    const podPlaces = pods.slice(0, MAX_CAPTURED_PODS).flatMap(({ name, addresses }): TracedPlace[] => {
      try {
        return [observedPlace('pod', `pod ${name}`, findNetns(addresses), (link) => link.name)];
      } catch {
        // It ended meanwhile, or its namespace is not mounted: the node's devices show its packets.
        return [];
      }
    });
    const places = [observedNode(nodeName, OWN_NETNS, podPlaces), ...podPlaces];
    running++;
    try {
      await stream(response, { places, wants, snapBytes, tunnelPort });
    } finally {
      running--;
    }
  };
}

/** Leaves out the packets of this port, which would be captured again and again. */
function wantsOf(
  { addresses = null, filter = null, names = {} }: Partial<CaptureBody>,
  ownPort: number,
): (packet: Packet | null) => boolean {
  const wanted = addresses === null ? null : new Set(addresses);
  const passes = filter === null ? () => true : compileFilter(filter, (name) => names[name] ?? []);
  return (packet) => {
    const { ports = null } = packet ?? {};
    if (ports && (ports.source === ownPort || ports.destination === ownPort)) return false;
    const isWanted =
      wanted === null || (packet !== null && (wanted.has(packet.source) || wanted.has(packet.destination)));
    return isWanted && passes(packet);
  };
}

/** Resolves when the reader has disconnected, or the capture has failed. */
async function stream(
  response: ServerResponse,
  {
    tunnelPort,
    ...options
  }: Pick<Parameters<typeof startCapture>[0], 'places' | 'wants' | 'snapBytes' | 'tunnelPort'>,
): Promise<void> {
  let lost = 0;
  const write = (line: CaptureLine) => response.write(`${JSON.stringify(line)}\n`);
  const end = Promise.withResolvers<void>();
  response.once('close', end.resolve);
  response.writeHead(200, { 'content-type': 'application/x-ndjson' });
  write({ type: 'start', tunnelPort });
  try {
    const capture = await startCapture({
      ...options,
      tunnelPort,
      sleep: (ms) => sleep(ms),
      onDevice: ({ kind, name }, device, number) =>
        write({ type: 'device', number, place: { kind, name }, device }),
      onFrame({ number, frame: { timeNs, direction, length, data } }) {
        if (response.writableLength > MAX_WAITING) lost++;
        else
          write({
            type: 'frame',
            number,
            timeNs: String(timeNs),
            direction,
            length,
            data: Buffer.from(data).toString('base64'),
          });
      },
      onError: end.reject,
    });
    const timer = setInterval(() => {
      lost += capture.lost();
      if (lost > 0) write({ type: 'lost', count: lost });
      lost = 0;
    }, REPORT_MS);
    try {
      await end.promise;
    } finally {
      clearInterval(timer);
      capture.close();
    }
  } catch (error) {
    write({ type: 'error', message: messageOf(error) });
    response.end();
  }
}
