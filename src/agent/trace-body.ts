import { familyOf } from '../lib/address.ts';
import type { FlowFilter } from '../trace/flow-filter.ts';
import type { End } from '../trace/hops.ts';
import type { TracedPacket } from '../trace/observation.ts';
import { MAX_PORTS, MAX_SEQUENCE } from '../trace/trace.ts';
import { badRequest } from './bad-request.ts';

/** The first packets of all connections to some addresses or ports, which others open. */
export interface WatchedConnections {
  readonly addresses: readonly string[];
  readonly ports: readonly number[];
}

/** The body of a request to observe the devices of this node. */
export interface TraceBody {
  /** Pods of this node whose own devices are observed too. */
  readonly pods: readonly TracedPod[];
  /** The observed traffic: a packet of the trace, or connections of others. */
  readonly packet: TracedPacket | null;
  readonly watched: WatchedConnections | null;
  /** Where the packet is sent from, once this node's observers are attached: one of the pods by its name, or the node (null). */
  readonly send: { readonly pod: string | null; readonly destination: End } | null;
}

export interface TracedPod {
  /** "default/client" */
  readonly name: string;
  readonly addresses: readonly string[];
}

/** A request that is well-formed. */
export interface CheckedTrace {
  readonly pods: readonly TracedPod[];
  readonly observed: TracedPacket | WatchedConnections;
  readonly send: TraceBody['send'];
}

/** The maximum number of pods of this node whose devices are observed; a tap of each has a buffer of 16 MiB. */
export const MAX_TRACED_PODS = 16;
const MAX_WATCHED = 4096;

/** The kernel's filter for the connections of others. */
export const HANDSHAKES: FlowFilter = { protocol: 'TCP', handshakes: true };

/** Checks a request from another machine. Throws FairleadError "bad-request". */
export function readTraceBody(body: Partial<TraceBody> | null): CheckedTrace {
  const { pods = [], packet = null, watched = null, send = null } = body ?? {};
  const isPods =
    Array.isArray(pods) &&
    pods.every(({ name, addresses }) => typeof name === 'string' && isAddresses(addresses));
  if (!isPods) throw badRequest('pods are not names with addresses');
  if (pods.length > MAX_TRACED_PODS) throw badRequest(`more than ${MAX_TRACED_PODS} pods`);
  if (watched) {
    if (packet || send) throw badRequest('packet and watched are given');
    const isList = isAddresses(watched.addresses) && isPorts(watched.ports);
    if (!isList || watched.addresses.length + watched.ports.length > MAX_WATCHED)
      throw badRequest('watched is not a list of addresses and one of ports');
    return { pods, observed: watched, send: null };
  }
  if (!packet || !isPacket(packet)) throw badRequest('packet does not describe a packet of a trace');
  if (send) {
    const { pod, destination } = send;
    if (familyOf(destination?.ip ?? '') === null || !isPort(destination?.port))
      throw badRequest('send.destination is not an address with a port');
    if (pod !== null && !pods.some(({ name }) => name === pod))
      throw badRequest('send.pod is not one of pods');
  }
  return { pods, observed: packet, send };
}

function isPacket(packet: TracedPacket): boolean {
  if (packet.protocol === 'UDP')
    return (
      /^[0-9a-f]{8}$/.test(packet.id) &&
      isPorts(packet.ports) &&
      packet.ports.length <= MAX_PORTS + 1 &&
      // Other machines choose no names that this node asks for.
      packet.question === undefined
    );
  const { sequence, relayPorts } = packet;
  const isSequence = Number.isInteger(sequence) && sequence > 0 && sequence <= MAX_SEQUENCE;
  return packet.protocol === 'TCP' && isSequence && isPorts(relayPorts) && relayPorts.length <= MAX_PORTS;
}

const isPort = (port: unknown) =>
  typeof port === 'number' && Number.isInteger(port) && port >= 0 && port <= 65_535;
const isPorts = (ports: unknown) => Array.isArray(ports) && ports.every(isPort);
const isAddresses = (addresses: unknown) =>
  Array.isArray(addresses) && addresses.every((one) => familyOf(String(one)) !== null);
