import type { Mode } from '../dataplane/dataplane.ts';
import { modeDiffers } from '../dataplane/mode-differences.ts';
import { PROTOCOL_NUMBER } from '../kernel/protocol-numbers.ts';
import { addressBytes, familyOf } from '../lib/address.ts';
import type { Protocol } from '../service/model.ts';
import { isLoopback, loopbackSource } from './explain-arrival.ts';
import { nameOf, nodeAt, placeOfPod } from './explain-places.ts';
import { outcomeOf } from './explain-verdict.ts';
import type { ExplainView, Origin } from './explain-view.ts';
import type { Arrival, Cause, ExplainedEndpoint, ExplainStep, Explanation } from './explanation.ts';
import type { Place } from './fact-requests.ts';
import {
  type FilterDecision,
  type FilteredPacket,
  type FilterHook,
  filterAt,
  type Priorities,
} from './filter-rules.ts';

/** The part of an explanation that tables of other programs may change. */
export type Filtered = Pick<
  Explanation,
  'packet' | 'steps' | 'endpoints' | 'clientSeen' | 'verdict' | 'reason' | 'causes'
>;

/** The hooks of one network namespace that a packet passes. */
interface Passage {
  readonly place: Place;
  readonly label: string;
  readonly hooks: readonly FilterHook[];
  readonly priorities?: Priorities;
  /** As it is there; null: unknown. */
  readonly source: string | null;
  readonly destination: string | null;
  readonly port: number | null;
  /** The address and the port from which replies come there, if they are not the destination. */
  readonly repliesFrom?: { readonly destination: string; readonly port: number };
  /** A proxy of the node accepts the connection behind it, and opens another one. */
  readonly isBeforeProxy?: boolean;
}

interface Stop {
  readonly arrival: Arrival;
  readonly cause: Cause;
  readonly isBeforeProxy?: boolean;
}

/** `stop`: what stops the packet, or perhaps stops it. `source`: the rule that changes its source address, or perhaps does. */
interface Found {
  readonly stop: Stop | null;
  readonly source: string | null;
}

/**
 * Applies the nf_tables rules of other programs on the way of a flow's first packet: in the namespaces of pods and of the nodes
 * that it passes. `next`: the node that it enters next, whose agent explains the rest of the way; null: none.
 */
export function withinFilters(
  view: ExplainView,
  origin: Origin,
  mode: Mode | null,
  body: Filtered,
  next: string | null,
): Filtered {
  const { packet } = body;
  if (!packet?.node || view.facts.filters === undefined) return body;
  if (body.verdict !== 'delivered' && body.verdict !== 'partial' && body.verdict !== 'rejected') return body;
  const ends = body.endpoints.length > 0 && next === null ? body.endpoints : [null];
  const found = ends.map((end) =>
    findOnWay(view, packet.protocol, waysTo(view, origin, mode, body, end, next)),
  );
  const sources = found.flatMap(({ source }) => source ?? []);
  const causes = found.flatMap(({ stop }) => stop?.cause ?? []);
  if (sources.length + causes.length === 0) return body;
  const steps = [
    ...sources.map((where) => `the source address is changed by a rule of another program: ${where}`),
    ...causes.map(({ text }) => text),
  ].map((text): ExplainStep => ({ subject: 'rule', object: null, ruleOrKey: null, text }));
  const endpoints = body.endpoints.map((one, index) => ended(one, found[ends[0] === null ? 0 : index]));
  const base = {
    ...body,
    steps: [...body.steps, ...distinct(steps)],
    endpoints,
    clientSeen: null,
    causes: [...causes, ...body.causes],
  };
  if (causes.length === 0) return base;
  const [only] = found;
  const isBeforeProxy = endpoints.length === 0 || found.every(({ stop }) => stop?.isBeforeProxy === true);
  const arrivals =
    endpoints.length > 0 ? endpoints.map(({ arrival }) => arrival) : [only?.stop?.arrival ?? 'unknown'];
  return { ...base, ...outcomeOf(arrivals, isBeforeProxy ? null : mode, packet.protocol) };
}

const distinct = (steps: readonly ExplainStep[]): ExplainStep[] => [
  ...new Map(steps.map((step) => [step.text, step])).values(),
];

function ended(endpoint: ExplainedEndpoint, found: Found | undefined): ExplainedEndpoint {
  if (!found || (found.stop === null && found.source === null)) return endpoint;
  return { ...endpoint, arrival: found.stop?.arrival ?? endpoint.arrival, clientSeen: null };
}

/** Lists the namespaces and hooks on the way to an endpoint, or, if null, to the packet's own destination. */
function waysTo(
  view: ExplainView,
  origin: Origin,
  mode: Mode | null,
  { packet, clientSeen }: Filtered,
  end: ExplainedEndpoint | null,
  next: string | null,
): Passage[] {
  const node = packet?.node;
  if (!packet || !node) return [];
  const { destination, port } = packet;
  const isLocal = origin.kind === 'node' && origin.node === node;
  // A process that sends to a loopback address sends from one.
  const source = isLocal && isLoopback(destination) ? loopbackSource(destination) : packet.source;
  const sent = { source, destination, port };
  const address = end?.address ?? destination;
  const to = { destination: address, port: end?.port ?? port };
  const seen = { source: end ? end.clientSeen : (clientSeen ?? source), ...to };
  const isService = end !== null;
  const isProxied = isService && mode !== null && modeDiffers(mode, 'server-sees-node');
  // Connection tracking gives replies the Service's address behind the last hook.
  const replies = isProxied ? {} : { repliesFrom: to };
  const isBeforeProxy = isProxied;
  const own = {
    place: { kind: 'node', node } as const,
    label: `node ${node}`,
    ...replies,
  };
  const ways: Passage[] = [];
  if (origin.pod && origin.place?.kind === 'pod') {
    // eBPF programs replace the address of a Service at the pod's socket.
    const leaving = isService && mode === 'ebpf' ? { source, ...to } : sent;
    ways.push({
      place: origin.place,
      label: origin.label,
      hooks: ['output', 'postrouting'],
      isBeforeProxy,
      ...leaving,
    });
  }
  const hooks: FilterHook[] = isLocal ? ['output'] : ['prerouting'];
  if (isService && (mode === 'nftables' || mode === 'iptables')) {
    ways.push({ ...own, hooks, priorities: { below: TRANSLATION }, ...sent });
    ways.push({ ...own, hooks, priorities: { from: TRANSLATION }, source, ...to });
  } else ways.push({ ...own, hooks, isBeforeProxy, ...sent });
  const target = view.podAt(address);
  const targetPlace = target && placeOfPod(target);
  const endNode = next ?? target?.spec?.nodeName ?? nodeAt(view, address)?.metadata?.name ?? null;
  const isOwnProcess = targetPlace?.kind !== 'pod' && endNode === node && next === null;
  if (isProxied) {
    // The proxy accepts the connection at an address and a port of its own.
    ways.push({ ...own, hooks: ['input'], isBeforeProxy, source, destination: null, port: null });
    ways.push({ ...own, hooks: ['output', 'postrouting'], ...seen });
  } else if (isService && mode === 'ipvs') {
    ways.push({ ...own, hooks: ['input'], ...sent });
    ways.push({ ...own, hooks: ['output', 'postrouting'], source, ...to });
  } else if (isOwnProcess) ways.push({ ...own, hooks: ['input'], source, ...to });
  else {
    if (!isLocal) ways.push({ ...own, hooks: ['forward'], source, ...to });
    ways.push({ ...own, hooks: ['postrouting'], source, ...to });
  }
  if (next !== null) return ways;
  if (endNode !== null && endNode !== node) {
    const hooksThere: FilterHook[] =
      targetPlace?.kind === 'pod' ? ['prerouting', 'forward', 'postrouting'] : ['prerouting', 'input'];
    ways.push({
      place: { kind: 'node', node: endNode },
      label: `node ${endNode}`,
      hooks: hooksThere,
      ...seen,
    });
  }
  if (target && targetPlace?.kind === 'pod')
    ways.push({
      place: targetPlace,
      label: `pod ${nameOf(target)}`,
      hooks: ['prerouting', 'input'],
      ...seen,
    });
  return ways;
}

const REPLY_HOOKS: Readonly<Record<FilterHook, FilterHook>> = {
  prerouting: 'postrouting',
  input: 'output',
  forward: 'forward',
  output: 'input',
  postrouting: 'prerouting',
};

/**
 * Finds the first rule on the way, and then on the way of the replies, that stops the packet, or perhaps stops it, and the first
 * that changes its source.
 */
function findOnWay(view: ExplainView, protocol: Protocol, ways: readonly Passage[]): Found {
  let source: string | null = null;
  for (const passage of ways) {
    const { stop, source: changed } = findAt(view, protocol, passage, passage.hooks, false);
    source ??= changed;
    if (stop !== null) return { stop: { ...stop, isBeforeProxy: passage.isBeforeProxy === true }, source };
  }
  for (const passage of ways.toReversed()) {
    const hooks = passage.hooks.toReversed().map((hook) => REPLY_HOOKS[hook]);
    const { stop } = findAt(view, protocol, passage, hooks, true);
    if (stop !== null) return { stop: { ...stop, isBeforeProxy: passage.isBeforeProxy === true }, source };
  }
  return { stop: null, source };
}

function findAt(
  view: ExplainView,
  protocol: Protocol,
  passage: Passage,
  hooks: readonly FilterHook[],
  isReply: boolean,
): Found {
  const { place, label } = passage;
  const filters = view.facts.filters?.(place);
  if (!filters) return NOTHING;
  const [unread] = filters.unread;
  if (unread !== undefined) {
    const text = `the rules of other programs on ${label} are not known: ${unread}`;
    return { stop: { arrival: 'unknown', cause: causeOf(text, label) }, source: null };
  }
  if (filters.tables.length === 0) return NOTHING;
  const deviceTo = (address: string | null): string | null => {
    const route = address === null ? null : view.facts.route(place, address);
    return route?.device === undefined ? null : (filters.devices[String(route.device)] ?? null);
  };
  const { source: client } = passage;
  const { destination: server, port } = isReply ? { ...passage, ...passage.repliesFrom } : passage;
  const [from, to] = isReply ? [server, client] : [client, server];
  let source: string | null = null;
  for (const hook of hooks) {
    const hasInput = hook !== 'output' && hook !== 'postrouting';
    const hasOutput = hook !== 'prerouting' && hook !== 'input';
    const packet = packetOf({
      source: from,
      destination: to,
      port,
      protocol,
      isReply,
      // Packets come back the way that they go, as far as is known.
      input: hasInput ? deviceTo(from) : '',
      output: hasOutput ? deviceTo(to) : '',
    });
    if (packet === null) continue;
    const verdict = filterAt(filters, hook, packet, isReply ? {} : passage.priorities);
    if (verdict.kind !== 'pass') return { stop: stopBy(label, verdict.kind, verdict.by, isReply), source };
    if (verdict.source !== null && !isReply) source ??= `${label}: ${verdict.source}`;
  }
  return { stop: null, source };
}

/** Where nf_tables and iptables translate destinations (NF_IP_PRI_NAT_DST of linux/netfilter_ipv4.h). */
const TRANSLATION = -100;

const NOTHING: Found = { stop: null, source: null };

function stopBy(label: string, kind: 'stopped' | 'unknown', by: FilterDecision, isReply: boolean): Stop {
  const what = isReply ? 'the replies' : 'it';
  if (kind === 'unknown') {
    const text = `a rule of another program on ${label} may drop or change ${what}: ${by.where} (${by.text}); that is not simulated`;
    return { arrival: 'unknown', cause: causeOf(text, label) };
  }
  const isRejected = by.effect === 'reject';
  const text = `${isReply ? 'the replies are ' : ''}${isRejected ? 'rejected' : 'dropped'} by a rule of another program on ${label}: ${by.where}`;
  // A rejected reply ends the server's connection: the client gets no answer.
  return {
    arrival: isRejected && !isReply ? 'filtered-rejected' : 'filtered',
    cause: causeOf(text, label),
  };
}

const causeOf = (text: string, label: string): Cause => ({
  text,
  object: `${label[0]?.toUpperCase() ?? ''}${label.slice(1)}`,
  field: null,
  fix: 'let the other program accept the traffic, or delete the rule (nft -a list ruleset shows the handles)',
});

interface Sent {
  readonly source: string | null;
  readonly destination: string | null;
  readonly port: number | null;
  readonly protocol: Protocol;
  readonly isReply: boolean;
  readonly input: string | null;
  readonly output: string | null;
}

/** Where the headers have the addresses, and the protocol. */
const HEADERS = {
  ipv4: { length: 20, protocol: 9, source: 12, destination: 16 },
  ipv6: { length: 40, protocol: 6, source: 8, destination: 24 },
} as const;
const TRANSPORT_BYTES = 20;
const TCP_FLAGS_AT = 13;
const SYN = 2;
const SYN_ACK = 0x12;

function packetOf(sent: Sent): FilteredPacket | null {
  const { source, destination, port, protocol, isReply, input, output } = sent;
  const known = source ?? destination;
  const family = known === null ? null : familyOf(known);
  if (family === null) return null;
  const header = HEADERS[family];
  const network: (number | null)[] = Array.from({ length: header.length }, () => null);
  network[0] = family === 'ipv4' ? 0x45 : null;
  network[header.protocol] = PROTOCOL_NUMBER[protocol];
  for (const [address, at] of [
    [source, header.source],
    [destination, header.destination],
  ] as const) {
    const bytes = address === null ? null : addressBytes(address);
    for (const [i, byte] of (bytes ?? []).entries()) network[at + i] = byte;
  }
  const transport: (number | null)[] = Array.from({ length: TRANSPORT_BYTES }, () => null);
  if (port !== null) {
    const at = isReply ? 0 : 2;
    transport[at] = port >> 8;
    transport[at + 1] = port & 0xff;
  }
  if (protocol === 'TCP') transport[TCP_FLAGS_AT] = isReply ? SYN_ACK : SYN;
  return { family, network, transport, protocol: PROTOCOL_NUMBER[protocol], isReply, input, output };
}
