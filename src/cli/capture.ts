import { closeSync, openSync, writeSync } from 'node:fs';
import { setTimeout as sleep } from 'node:timers/promises';
import { captureNames, filterAddresses, findCaptureTarget } from '../cluster/capture-target.ts';
import { planRemoteCapture, startRemoteCapture } from '../cluster/remote-capture.ts';
import type { RemoteCluster } from '../cluster/remote-cluster.ts';
import { requireOwner } from '../cluster/requirements.ts';
import { clusterPaths, requireCluster } from '../cluster/state.ts';
import { TUNNEL_PORT } from '../kernel/packet.ts';
import { createClient } from '../kube/client.ts';
import { readKubeconfig } from '../kube/kubeconfig.ts';
import { httpTransport } from '../kube/transport.ts';
import { RESOURCES } from '../kube/types.ts';
import { FairleadError, fileProblem } from '../lib/errors.ts';
import {
  type Capture,
  type CapturedFrame,
  deviceBlock,
  fileHead,
  frameBlock,
  startCapture,
} from '../trace/capture.ts';
import { compileFilter, FILTER_GRAMMAR, type PacketTest } from '../trace/capture-filter.ts';
import { frameText } from '../trace/frame-text.ts';
import { defineCommand, type Output } from './command.ts';
import { wrapLines } from './help-text.ts';
import { NAME_OPTION } from './name-option.ts';
import { text, usageError, wholeNumber } from './options.ts';
import { renderFact, STREAM_OPTIONS } from './output-format.ts';
import { openRemote, ownCluster, REMOTE_OPTIONS } from './remote-option.ts';

export const command = defineCommand({
  name: 'capture',
  summary: 'record packets of all devices, as text or as a pcapng file',
  description: [
    'Records packets of every network device of the cluster: one line for each device that a packet passes, or with -w a pcapng file for Wireshark, with a description of each device, names of pods, nodes and Services, and a comment on each TCP packet whose addresses were translated since the previous device. Stops at Ctrl-C.',
    'With --kubeconfig or --context: on a cluster whose agents run in pods; of the pods, only the devices of those in TARGET are read, at most 8 on each node.',
    'Pods that start later are seen at the devices of their nodes only.',
  ],
  arguments: [
    {
      name: 'TARGET',
      optional: true,
      help: 'pod/NAME or svc/NAME: packets of its addresses (of a Service, also of its endpoints), everywhere; node/NAME: all packets of the node; all (default)',
    },
    {
      name: 'FILTER…',
      optional: true,
      repeated: true,
      help: `only packets that match this expression: ${FILTER_GRAMMAR}`,
    },
  ],
  options: {
    write: text('FILE', 'write pcapng to this file instead of text', { short: 'w', main: true }),
    count: wholeNumber('N', [0, 0, 1_000_000_000], 'stop after N packets; 0: no limit'),
    duration: wholeNumber('S', [0, 0, 1_000_000], 'stop after S seconds; 0: no limit'),
    bytes: wholeNumber('N', [16_384, 64, 65_535], 'the maximum number of bytes that are kept of each packet'),
    ...STREAM_OPTIONS,
    name: NAME_OPTION,
    ...REMOTE_OPTIONS,
  },
  examples: [
    'capture svc/hello -w hello.pcapng --duration 10',
    'capture pod/client --count 20',
    "capture all 'udp and port 53 and not host node/node-1'",
  ],
  asUser: (parsed) => ownCluster('capture', parsed),
  async run(parsed, output) {
    const {
      options,
      args: [target = 'all', ...filter],
    } = parsed;
    if (options.write !== null && options.output !== 'text')
      throw usageError('capture', 'use one of --write and --output');
    const remote = await openRemote('capture', parsed);
    if (remote)
      return await captureRemotely(remote, target, filter, options, output).finally(() => remote.close());
    requireOwner('capture', options.name);
    const state = requireCluster(options.name);
    const transport = httpTransport(readKubeconfig(clusterPaths(state.name).kubeconfig));
    const [pods, services, slices] = await (async () => {
      try {
        const client = createClient(transport, 'fairlead-capture');
        return await Promise.all([
          client.list(RESOURCES.pods),
          client.list(RESOURCES.services),
          client.list(RESOURCES.endpointSlices),
        ]);
      } finally {
        transport.close();
      }
    })();
    const objects = { pods: pods.items, services: services.items, slices: slices.items };
    const { places, wants: isOfTarget } = findCaptureTarget(state, objects, target);
    const passes =
      filter.length === 0
        ? isOfTarget
        : compileFilter(filter.join(' '), (name) => filterAddresses(state, objects, name));
    const wants: PacketTest = (packet) => isOfTarget(packet) && passes(packet);
    return await record(options, output, captureNames(state, objects), ({ device, frame, fail }) =>
      startCapture({
        places,
        wants,
        snapBytes: options.bytes,
        tunnelPort: state.overlay === 'vxlan' ? TUNNEL_PORT : null,
        onDevice: device,
        onFrame: frame,
        onError: fail,
        sleep: (ms) => sleep(ms),
      }),
    );
  },
});

interface RecordOptions {
  readonly write: string | null;
  readonly count: number;
  readonly duration: number;
  readonly bytes: number;
  readonly output: 'text' | 'json' | 'yaml';
}

/** Where a capture delivers what it sees. */
interface Receiver {
  readonly device: Sink['device'];
  readonly frame: Sink['frame'];
  readonly fail: (error: unknown) => void;
}

/** Runs a capture until Ctrl-C, or what the options say; resolves to the exit status. */
async function record(
  options: RecordOptions,
  output: Output,
  names: ReadonlyMap<string, string>,
  start: (receiver: Receiver) => Capture | Promise<Capture>,
): Promise<number> {
  const sink =
    options.write === null ? printingSink(output, options) : fileSink(options.write, options.bytes);
  sink.begin(names);
  let count = 0;
  const end = Promise.withResolvers<void>();
  const stop = () => end.resolve();
  process.once('SIGINT', stop).once('SIGTERM', stop);
  output.unread.addEventListener('abort', stop);
  const capture = await start({
    device: sink.device,
    frame(frame) {
      if (options.count > 0 && count >= options.count) return;
      if (++count === options.count) stop();
      try {
        sink.frame(frame);
      } catch (error) {
        end.reject(error);
      }
    },
    fail: end.reject,
  });
  const ending = options.duration > 0 ? setTimeout(stop, options.duration * 1000) : undefined;
  const flushing = setInterval(() => {
    try {
      sink.flush();
    } catch (error) {
      end.reject(error);
    }
  }, FLUSH_EVERY_MS);
  let lost = 0;
  try {
    await end.promise;
  } finally {
    clearInterval(flushing);
    // Otherwise the process would run on until then.
    clearTimeout(ending);
    lost = capture.lost();
    capture.close();
  }
  sink.end();
  output.err(`fairlead: ${count} packets${options.write === null ? '' : ` to ${options.write}`}\n`);
  if (lost > 0) output.err(`fairlead: ${lost} packets were lost because the machine was too busy\n`);
  return 0;
}

/** Captures on the nodes of a cluster whose agents run in pods. A node that fails is one line, not the end. */
async function captureRemotely(
  cluster: RemoteCluster,
  target: string,
  filter: readonly string[],
  options: RecordOptions,
  output: Output,
): Promise<number> {
  const text = filter.length === 0 ? null : filter.join(' ');
  const plan = await planRemoteCapture(cluster, target, text, options.bytes);
  return await record(options, output, plan.names, ({ device, frame, fail }) => {
    const capture = startRemoteCapture(cluster, plan, {
      onDevice: device,
      onFrame: frame,
      onProblem: (node, problem) => output.err(`fairlead: ${node}: ${problem}\n`),
    });
    capture.ended.catch(fail);
    return capture;
  });
}

/** How soon a program that reads the file, such as Wireshark behind a pipe, sees a packet. */
const FLUSH_EVERY_MS = 250;

interface Sink {
  begin(names: ReadonlyMap<string, string>): void;
  device(
    ...described: [place: CapturedFrame['place'], device: CapturedFrame['device'], number: number]
  ): void;
  frame(frame: CapturedFrame): void;
  /** Writes what is waiting. */
  flush(): void;
  end(): void;
}

/** Prints one line, or one object, for each frame. */
function printingSink(output: Output, options: Parameters<typeof renderFact>[1]): Sink {
  return {
    begin() {},
    device() {},
    frame({ place, device, frame, packet, note }) {
      const second = new Date(Number(frame.timeNs / 1_000_000n)).toISOString().slice(0, 19);
      const time = `${second}.${String(Number((frame.timeNs / 1000n) % 1_000_000n)).padStart(6, '0')}`;
      const { direction, data } = frame;
      const shown = {
        time: `${time}Z`,
        place: place.name,
        direction,
        device: device.text,
        packet: frameText(packet, data),
        ...(note ? { note } : {}),
      };
      const where = `${place.name}  ${direction.padEnd(3)} ${device.text}`;
      const what = `${shown.packet}${note ? `; ${note}` : ''}`;
      output.out(
        renderFact(shown, options) ?? captureText(`${time.slice(11)}  ${where}`, what, output.columns),
      );
    },
    flush() {},
    end() {},
  };
}

/** Renders a frame as one line; as two in a terminal that is too narrow for it. */
function captureText(where: string, what: string, columns: number | null): string {
  const line = `${where}  ${what}\n`;
  return columns === null || line.length <= columns + 1
    ? line
    : wrapLines(`${where}\n    ${what}\n`, columns);
}

/** How many bytes are collected before they are written. */
const CHUNK_BYTES = 1 << 18;

function fileSink(file: string, snapBytes: number): Sink {
  const failed = (error: unknown) =>
    new FairleadError(`cannot write ${file}: ${fileProblem(error)}`, {
      op: 'write capture',
      code: 'EIO',
      cause: error,
    });
  let fd: number;
  try {
    fd = openSync(file, 'w');
  } catch (error) {
    throw failed(error);
  }
  let waiting: Uint8Array[] = [];
  let bytes = 0;
  const flush = () => {
    if (bytes === 0) return;
    try {
      const chunk = Buffer.concat(waiting);
      for (let at = 0; at < chunk.length; ) at += writeSync(fd, chunk, at);
    } catch (error) {
      throw failed(error);
    }
    waiting = [];
    bytes = 0;
  };
  const add = (block: Uint8Array) => {
    waiting.push(block);
    bytes += block.length;
    if (bytes >= CHUNK_BYTES) flush();
  };
  return {
    begin(names) {
      for (const block of fileHead('fairlead', names)) add(block);
    },
    device: (place, device) => add(deviceBlock(place, device, snapBytes)),
    frame: (frame) => add(frameBlock(frame)),
    flush,
    end() {
      flush();
      closeSync(fd);
    },
  };
}
