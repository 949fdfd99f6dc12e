import { createInterface } from 'node:readline';
import { Readable } from 'node:stream';
import { type CaptureBody, type CaptureLine, MAX_CAPTURED_PODS } from '../agent/node-capture.ts';
import { readFrame } from '../kernel/packet.ts';
import { type Node, type Pod, RESOURCES } from '../kube/types.ts';
import { FairleadError } from '../lib/errors.ts';
import { type CapturedFrame, type CaptureOptions, createFrameOrder } from '../trace/capture.ts';
import { compileFilter } from '../trace/capture-filter.ts';
import {
  type CaptureHosts,
  type CaptureObjects,
  type CaptureSubject,
  captureNames,
  filterAddresses,
  readCaptureTarget,
} from './capture-target.ts';
import { ownAddresses, podName } from './observed-places.ts';
import { problemText, type RemoteCluster } from './remote-cluster.ts';

/** The captured packets, and the nodes. */
export interface CapturePlan {
  readonly names: ReadonlyMap<string, string>;
  /** By node. */
  readonly bodies: ReadonlyMap<string, CaptureBody>;
}

/** Longer than on one machine: API servers send what they forward every 200 ms, and clocks of nodes differ. */
const HOLD_MS = 1500;

/** Reads the objects of a cluster and decides what its agents capture. Throws FairleadError. */
export async function planRemoteCapture(
  cluster: RemoteCluster,
  target: string,
  filter: string | null,
  snapBytes: number,
): Promise<CapturePlan> {
  const { client, agents } = cluster;
  const [nodes, pods, services, slices] = await Promise.all([
    client.list(RESOURCES.nodes),
    client.list(RESOURCES.pods),
    client.list(RESOURCES.services),
    client.list(RESOURCES.endpointSlices),
  ]);
  const objects = { pods: pods.items, services: services.items, slices: slices.items };
  const known = nodes.items.filter(({ metadata }) => agents.some(({ node }) => node === metadata?.name));
  const hosts = { nodes: known.map(hostOf), outsideAddresses: [], controlPlaneAddresses: [] };
  const subject = readCaptureTarget(hosts.nodes, objects, target);
  return {
    names: captureNames({ ...hosts, nodes: nodes.items.map(hostOf) }, objects),
    bodies: bodiesOf(hosts, objects, subject, filter, snapBytes),
  };
}

const hostOf = ({ metadata, status }: Node) => ({
  name: metadata?.name ?? '',
  addresses: (status?.addresses ?? []).flatMap(({ type, address }) =>
    type === 'InternalIP' && address ? address : [],
  ),
});

function bodiesOf(
  hosts: CaptureHosts,
  objects: CaptureObjects,
  { node, addresses }: CaptureSubject,
  filter: string | null,
  snapBytes: number,
): Map<string, CaptureBody> {
  const names: Record<string, readonly string[]> = {};
  if (filter !== null)
    compileFilter(filter, (name) => {
      const found = filterAddresses(hosts, objects, name);
      names[name] = found;
      return found;
    });
  const isSubject = (pod: Pod) => ownAddresses(pod).some((address) => addresses?.includes(address));
  const chosen = objects.pods.filter((pod) => pod.status?.phase === 'Running' && isSubject(pod));
  const wanted = hosts.nodes.filter(({ name }) => node === null || node === name);
  return new Map(
    wanted.map(({ name }) => [
      name,
      {
        pods: chosen
          .filter(({ spec }) => spec?.nodeName === name)
          .slice(0, MAX_CAPTURED_PODS)
          .map((pod) => ({ name: podName(pod), addresses: ownAddresses(pod) })),
        addresses,
        filter,
        names,
        snapBytes,
      },
    ]),
  );
}

/** A capture of several nodes. */
export interface RemoteCapture {
  /** Rejects when all nodes have failed. */
  readonly ended: Promise<void>;
  /** Returns how many frames were lost since the previous call. */
  lost(): number;
  close(): void;
}

/** Starts the capture. A node that fails is reported by `onProblem`; the others continue. */
export function startRemoteCapture(
  cluster: RemoteCluster,
  { bodies }: CapturePlan,
  options: Pick<CaptureOptions, 'onFrame'> & {
    readonly onDevice: (
      place: CapturedFrame['place'],
      device: CapturedFrame['device'],
      number: number,
    ) => void;
    readonly onProblem: (node: string, problem: string) => void;
  },
): RemoteCapture {
  const { onFrame, onDevice, onProblem } = options;
  const end = new AbortController();
  const order = createFrameOrder(HOLD_MS, onFrame);
  let lost = 0;
  let count = 0;
  const read = async (node: string, body: CaptureBody): Promise<void> => {
    const devices = new Map<number, Pick<CapturedFrame, 'place' | 'device' | 'number'>>();
    let tunnelPort: number | null = null;
    const input = Readable.from(await cluster.capture(node, body, end.signal), { objectMode: false });
    // The loop below sees the end.
    input.on('error', () => {});
    for await (const text of createInterface({ input })) {
      const line = JSON.parse(text) as CaptureLine;
      if (line.type === 'start') tunnelPort = line.tunnelPort;
      else if (line.type === 'lost') lost += line.count;
      else if (line.type === 'error')
        throw new FairleadError(line.message, { op: `capture on ${node}`, code: 'ended' });
      else if (line.type === 'device') {
        const described = { place: line.place, device: line.device, number: count++ };
        devices.set(line.number, described);
        onDevice(described.place, described.device, described.number);
      } else {
        const described = devices.get(line.number);
        if (!described) continue;
        const data = Buffer.from(line.data, 'base64');
        const { direction, length } = line;
        const frame = {
          data,
          length,
          direction,
          device: line.number,
          isForOther: false,
          timeNs: BigInt(line.timeNs),
        };
        order.add({ ...described, frame, packet: readFrame(data, tunnelPort) });
      }
    }
    throw cluster.ended(node);
  };
  let failed = 0;
  const all = [...bodies].map(([node, body]) =>
    read(node, body).catch((cause: unknown) => {
      if (end.signal.aborted) return;
      // Without a message of the agent, the connection broke.
      const error = cause instanceof FairleadError ? cause : cluster.ended(node, cause);
      if (++failed === bodies.size) throw error;
      onProblem(node, problemText(error));
    }),
  );
  const ended = Promise.all(all).then(() => {});
  ended.catch(() => {});
  return {
    ended,
    lost() {
      const before = lost;
      lost = 0;
      return before;
    },
    close() {
      end.abort();
      order.close();
    },
  };
}
