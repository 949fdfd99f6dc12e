import type { Mode } from '../dataplane/dataplane.ts';
import { differenceText, mayForwardAtSocket, modeDiffers } from '../dataplane/mode-differences.ts';
import { familyOf } from '../lib/address.ts';
import { decide, type Verdict } from '../service/decide.ts';
import type { Packet, Protocol, ServiceMap } from '../service/model.ts';
import {
  type Arrived,
  arriveAt,
  arriveFrom,
  isLoopback,
  loopbackSource,
  ofFault,
} from './explain-arrival.ts';
import { findCauses, serviceOf } from './explain-causes.ts';
import { classOf, classStep, isNodeAddress, ownerOf } from './explain-class.ts';
import { findDestination } from './explain-destination.ts';
import { limitedClient } from './explain-dns-limit.ts';
import { egressStep, leaveBy } from './explain-egress.ts';
import { type Entered, enter } from './explain-entry.ts';
import { linkFault, podFault } from './explain-faults.ts';
import { withinFilters } from './explain-filters.ts';
import { forgedSource, type SourcedOrigin, splitSource } from './explain-forgery.ts';
import {
  endpointOwner,
  endpointStep,
  kernelSteps,
  nextHop,
  passStep,
  serviceName,
  sourceStep,
} from './explain-forwarding.ts';
import { heldPod } from './explain-held.ts';
import { hostPortEnd, sourceBehindHostPort } from './explain-host-ports.ts';
import { clientOrigin, EXAMPLE_CLIENTS, findOrigin } from './explain-places.ts';
import { explainPolicies, type PolicyEnd } from './explain-policies.ts';
import { isReplyLost, replyLost } from './explain-replies.ts';
import {
  egressOf,
  keepsHairpinSource,
  sourceForPolicies,
  sourceSeenAt,
  sourceSeenBehind,
} from './explain-source.ts';
import { parseTarget } from './explain-target.ts';
import { outcomeOf, verdictReason } from './explain-verdict.ts';
import type { ExplainRequest, ExplainView, Origin } from './explain-view.ts';
import type { Cause, ExplainedEndpoint, ExplainStep, Explanation } from './explanation.ts';

type Body = Omit<Explanation, 'from' | 'to' | 'missing' | 'askNode'> & {
  readonly askNode?: string | null;
  /** The node that the packet enters next, whose agent explained the rest; absent: none. */
  readonly next?: string;
};

/**
 * Explains the path of a packet that opens a flow: each step with the object and the rule or map key behind it and, if
 * it is not delivered, the reason and the fix. If facts are missing, the result names them, and must be computed again
 * with them. Throws FairleadError if FROM or TO are invalid ("bad-argument") or name an object that does not exist
 * ("not-found").
 */
export function explain(view: ExplainView, { from, to, family, entry = null }: ExplainRequest): Explanation {
  const asked = splitSource(from);
  const { origin, forgery } = originOf(view, asked);
  const destination = findDestination(view, origin, parseTarget(to), family);
  const finish = ({ askNode = null, next: _next, ...body }: Body): Explanation => {
    const { missing, failures } = view.facts;
    const causes = body.verdict === 'unknown' ? [...body.causes, ...failures.map(plainCause)] : body.causes;
    const steps = [...clientStep(origin), ...body.steps];
    return {
      from: origin.label,
      to,
      ...body,
      steps,
      causes: distinct(causes),
      missing: [...missing],
      askNode,
    };
  };
  if (!destination)
    return finish({ ...NOTHING, verdict: 'unknown', reason: 'the name has not been resolved' });
  if (!destination.found) {
    // A DNS question without an answer is explained like any other packet.
    const ways = destination.silentServers.map((server) =>
      explainPacket(view, origin, { address: server, port: 53, protocol: 'UDP' }, null),
    );
    const steps = [...destination.steps, ...ways.flatMap((way) => way.steps)];
    const causes = [...ways.flatMap((way) => way.causes), ...destination.causes];
    return finish({ ...NOTHING, steps, verdict: 'unresolved', reason: 'no packet is sent', causes });
  }
  if (forgery) {
    const { address, port, protocol } = destination;
    const sent = { source: asked.source ?? '', destination: address, port, protocol };
    const packet = { ...sent, sourceClass: 'external' as const, node: origin.node };
    const reason = 'the source is not an address of the pod: dropped without an answer';
    return finish({
      ...NOTHING,
      packet,
      steps: destination.steps,
      verdict: 'dropped',
      reason,
      causes: [forgery],
    });
  }
  const held = entry === null ? heldPod(view, origin) : null;
  if (held) {
    const reason = 'the pod has too many tracked connections: dropped without an answer';
    return finish({ ...NOTHING, steps: destination.steps, verdict: 'dropped', reason, causes: [held] });
  }
  const body = explainPacket(view, origin, destination, entry);
  return finish({ ...body, steps: [...destination.steps, ...body.steps] });
}

/** Returns the origin of a packet, and the reason why its source is dropped, if one is chosen. */
function originOf(
  view: ExplainView,
  { from, source }: SourcedOrigin,
): { origin: Origin; forgery: Cause | null } {
  const target = parseTarget(from);
  if (source === null) return { origin: findOrigin(view, target), forgery: null };
  if (target.kind === 'outside') return { origin: clientOrigin(view, source), forgery: null };
  const found = findOrigin(view, target);
  const permitted = (namespace: string) => view.permittedSources?.(namespace);
  return { origin: { ...found, addresses: [source] }, forgery: forgedSource(found, source, permitted) };
}

/** Says which address stands for a client outside that has none in this cluster. */
function clientStep({ addresses, label }: Origin): ExplainStep[] {
  if (addresses !== EXAMPLE_CLIENTS) return [];
  const text = `${label} is any client: ${addresses.join(' or ')} stands for it; write outside@ADDRESS for a client that policies or source ranges name`;
  return [{ subject: 'name', object: null, ruleOrKey: null, text }];
}

const NOTHING = { packet: null, steps: [], endpoints: [], clientSeen: null, causes: [] } as const;

const plainCause = (text: string): Cause => ({ text, object: null, field: null, fix: null });

function distinct(causes: readonly Cause[]): Cause[] {
  return [...new Map(causes.map((cause) => [cause.text, cause])).values()];
}

interface Wanted {
  readonly address: string;
  readonly port: number;
  readonly protocol: Protocol;
}

function explainPacket(view: ExplainView, origin: Origin, wanted: Wanted, entry: string | null): Body {
  const { address, port, protocol } = wanted;
  const source = origin.addresses.find((candidate) => familyOf(candidate) === familyOf(address));
  if (source === undefined && !isLoopback(address)) {
    const text = `${origin.label} has no address of the family of ${address}`;
    const cause = { text, object: null, field: null, fix: 'use another address' };
    return { ...NOTHING, verdict: 'unresolved', reason: 'no packet is sent', causes: [cause] };
  }
  const sent = { source: source ?? address, destination: address, port, protocol };
  const entered: Entered =
    entry === null ? enter(view, origin, address) : { kind: 'node', node: entry, steps: [] };
  if (entered.kind === 'stopped') {
    const { verdict, reason, steps, causes } = entered;
    const packet = { ...sent, sourceClass: 'external' as const, node: origin.node };
    return { ...NOTHING, packet, steps, verdict, reason, causes };
  }
  if (entered.kind === 'itself') {
    const end = { address, port, protocol, service: null, portIndex: -1 };
    const arrived = arriveAt(view, entered.place, entered.label, end);
    const packet = { ...sent, sourceClass: 'pod' as const, node: origin.node };
    const step = {
      subject: 'arrival',
      object: null,
      ruleOrKey: null,
      text: `${address} is answered by ${entered.label} itself`,
    } as const;
    return ended(
      {
        ...NOTHING,
        packet,
        steps: [...entered.steps, step],
        clientSeen: isLoopback(address) ? loopbackSource(address) : sent.source,
      },
      arrived,
    );
  }
  const { node } = entered;
  const cut = origin.node === null && entry === null ? linkFault(view, null, node) : null;
  if (cut) {
    const packet = { ...sent, sourceClass: 'external' as const, node };
    return ended({ ...NOTHING, packet, steps: entered.steps }, ofFault(cut));
  }
  const map = view.map(node);
  if (map === null) {
    const reason = `the forwarding table of ${node} is not known`;
    const packet = { ...sent, sourceClass: 'external' as const, node };
    return { ...NOTHING, packet, steps: entered.steps, verdict: 'unknown', reason, askNode: node };
  }
  const body = withinDnsLimit(view, origin, sent, throughTables(view, origin, map, sent));
  return { ...body, steps: [...entered.steps, ...body.steps] };
}

/** Applies the limit of one client's DNS queries: the node drops those above it before its Service rules. */
function withinDnsLimit(view: ExplainView, origin: Origin, sent: Sent, body: Body): Body {
  const cause = limitedClient(view, origin, sent);
  if (!cause) return body;
  const causes = [cause, ...body.causes];
  if (body.verdict !== 'delivered') return { ...body, causes };
  const reason = 'the queries above the limit of one client are dropped without an answer';
  return { ...body, verdict: 'partial', reason, causes };
}

interface Sent {
  readonly source: string;
  readonly destination: string;
  readonly port: number;
  readonly protocol: Protocol;
}

/** Explains a packet that enters the Service rules of a node. */
function throughTables(view: ExplainView, origin: Origin, map: ServiceMap, sent: Sent): Body {
  const { source, destination, port, protocol } = sent;
  const node = map.node.name;
  const mode = view.mode(node);
  const packet: Packet = {
    ...sent,
    sourceClass: classOf(map, origin, source),
    destinationIsLocal: isNodeAddress(view, node, destination),
  };
  const info = { source, sourceClass: packet.sourceClass, destination, port, protocol, node };
  const verdict = decide(map, packet);
  const steps = [
    classStep(origin, packet, node, map.node.localDetection),
    ...kernelSteps(view, node, map, packet, verdict),
  ];
  const body = carryOut(view, origin, map, packet, verdict, { ...NOTHING, packet: info, steps });
  const { frontend } = verdict;
  const isAtSocket = mode === 'ebpf' && frontend !== null && mayForwardAtSocket(frontend);
  const answered = withoutReplies(view, origin, body, isAtSocket);
  return { ...answered, ...withinFilters(view, origin, mode, answered, answered.next ?? null) };
}

/**
 * Applies the planted fault of a pod that sends: no reply reaches it, neither data nor errors. `isAtSocket`: a Service is
 * refused at the pod's socket, and a pod that is chosen as its own endpoint gets the packet over loopback.
 */
function withoutReplies(view: ExplainView, origin: Origin, body: Body, isAtSocket: boolean): Body {
  const cause = origin.pod && podFault(view, origin.pod);
  if (!cause || body.verdict === 'unknown') return body;
  if (isAtSocket && body.verdict === 'rejected' && body.endpoints.length === 0) return body;
  const endpoints = body.endpoints.map((one): ExplainedEndpoint => {
    return isAtSocket && one.hairpin ? one : { ...one, arrival: 'fault', clientSeen: null };
  });
  const arrivals = endpoints.length > 0 ? endpoints.map(({ arrival }) => arrival) : (['fault'] as const);
  const outcome = outcomeOf(arrivals, null, body.packet?.protocol ?? 'TCP');
  const step = { subject: 'arrival', object: cause.object, ruleOrKey: null, text: cause.text } as const;
  return { ...body, ...outcome, endpoints, clientSeen: null, causes: [cause], steps: [...body.steps, step] };
}

/** Carries out the decision of a node's forwarding table. */
function carryOut(
  view: ExplainView,
  origin: Origin,
  map: ServiceMap,
  packet: Packet,
  verdict: Verdict,
  base: Base,
): Body {
  const { destination, protocol } = packet;
  const mode = view.mode(map.node.name);
  switch (verdict.action) {
    case 'reject':
    case 'drop':
      return {
        ...base,
        verdict: verdict.action === 'reject' ? 'rejected' : 'dropped',
        reason: verdictReason(verdict),
        causes: findCauses(view, map, packet, verdict),
      };
    case 'pass':
      return passed(view, origin, map, packet, verdict, base);
    case 'forward': {
      if (protocol === 'SCTP' && mode && modeDiffers(mode, 'no-sctp')) {
        return {
          ...base,
          verdict: 'rejected',
          reason: `${mode} mode does not support SCTP`,
          causes: [sctpCause(map.node.name, mode)],
        };
      }
      const noRoute = withoutOwnRoute(view, mode, origin, destination);
      if (noRoute) return { ...base, verdict: 'unreachable', reason: noRoute.text, causes: [noRoute] };
      return forwarded(view, origin, map, packet, verdict, base);
    }
  }
}

/**
 * A process of the node needs a route to the Service's address before any rule applies to its packet. In eBPF mode a pod
 * of the host network does not: the programs replace the address at its socket.
 */
function withoutOwnRoute(
  view: ExplainView,
  mode: Mode | null,
  origin: Origin,
  destination: string,
): Cause | null {
  if (origin.kind !== 'node' || origin.node === null || isLoopback(destination)) return null;
  if (mode === 'ebpf' && origin.pod !== null) return null;
  if (view.facts.route({ kind: 'node', node: origin.node }, destination) !== null) return null;
  const text = `node ${origin.node} has no route to ${destination}`;
  const fix = 'use the cluster IP, or give the node a default route';
  return { text, object: `Node ${origin.node}`, field: 'routes', fix };
}

/** The maximum number of endpoints of a Service whose sockets are checked. */
const MAX_CHECKED_ENDPOINTS = 100;

type Base = Pick<Body, 'packet' | 'steps' | 'endpoints' | 'clientSeen' | 'causes'>;

function forwarded(
  view: ExplainView,
  origin: Origin,
  map: ServiceMap,
  packet: Packet,
  verdict: Verdict,
  base: Base,
): Body {
  const mode = view.mode(map.node.name);
  const { frontend, candidates } = verdict;
  const service = frontend && serviceOf(view, frontend.owner);
  const portIndex =
    service?.spec?.ports?.findIndex(
      (one) => (one.name ?? '') === frontend?.owner.portName && (one.protocol ?? 'TCP') === packet.protocol,
    ) ?? -1;
  // Endpoints that were written by hand often name neither their pod nor their node.
  const owners = candidates.map(({ endpoint }) => endpointOwner(view, endpoint));
  const ends = candidates.map((candidate, index): PolicyEnd => {
    const { ip: address, port } = candidate.endpoint;
    const node = owners[index]?.node ?? null;
    const seenFrom = sourceForPolicies(view, { origin, map, packet, frontend, candidate });
    return { address, port, node, seenFrom };
  });
  const policies = explainPolicies(view, origin, map, packet, ends);
  const arrivals = candidates.slice(0, MAX_CHECKED_ENDPOINTS).map(({ endpoint }, index): Arrived => {
    const end = { address: endpoint.ip, port: endpoint.port, protocol: packet.protocol, service, portIndex };
    const isOverLoopback = candidates[index]?.hairpin === true && keepsHairpinSource(mode, frontend, packet);
    const arrived = afterPolicies(policies.verdicts[index], () =>
      isOverLoopback && origin.place
        ? arriveAt(view, origin.place, origin.label, end)
        : arriveFrom(view, map.node.name, end),
    );
    const isLost = isReplyLost(origin, map, mode, candidates[index], owners[index]?.node ?? null);
    return isLost ? replyLost(map, arrived, end) : arrived;
  });
  const endpoints = candidates.map((candidate, index): ExplainedEndpoint => {
    const { endpoint, odds, masquerade, hairpin } = candidate;
    const arrival = arrivals[index]?.arrival ?? 'unknown';
    const { pod = null, node = null } = owners[index] ?? {};
    return {
      address: endpoint.ip,
      port: endpoint.port,
      pod,
      node,
      odds,
      terminating: endpoint.terminating,
      masquerade,
      hairpin,
      nextHop: nextHop(view, map, endpoint.ip, node),
      arrival,
      clientSeen:
        arrival === 'answered' ? sourceSeenBehind(view, { origin, map, packet, frontend, candidate }) : null,
    };
  });
  const outcome = outcomeOf(
    arrivals.map(({ arrival }) => arrival),
    mode,
    packet.protocol,
  );
  const failing = arrivals.filter(({ arrival }) => arrival !== 'answered');
  const isPart = arrivals.length < candidates.length;
  const looked = isPart ? ` (${arrivals.length} of ${candidates.length} endpoints were checked)` : '';
  const steps = [
    ...base.steps,
    endpointStep(view, map, packet, verdict),
    sourceStep(mode, map, packet, verdict, endpoints),
    ...policies.steps,
    ...arrivals.map(({ text }): ExplainStep => ({ subject: 'arrival', object: null, ruleOrKey: null, text })),
  ];
  const causes =
    outcome.verdict === 'delivered'
      ? []
      : [...policies.causes, ...failing.flatMap(({ cause }) => cause ?? [])];
  return {
    ...base,
    steps,
    endpoints,
    verdict: outcome.verdict,
    reason: `${outcome.reason}${looked}`,
    causes,
  };
}

/** Explains a packet to no Service: it is routed, or forwarded by a host port. */
function passed(
  view: ExplainView,
  origin: Origin,
  map: ServiceMap,
  packet: Packet,
  verdict: Verdict,
  base: Base,
): Body {
  const node = map.node.name;
  const { destination, port, protocol } = packet;
  const hostPort = hostPortEnd(view, node, packet);
  const end = hostPort ?? { address: destination, port, protocol, service: null, portIndex: -1 };
  const isOwn = map.node.ownServiceAddresses.includes(destination);
  const endNode = view.podAt(end.address)?.spec?.nodeName ?? null;
  const seenFrom =
    origin.kind === 'node' && endNode !== null
      ? sourceSeenAt(view, origin, node, packet.source, end.address)
      : null;
  const ends = [{ address: end.address, port: end.port, node: endNode, seenFrom }];
  const policies = explainPolicies(view, origin, map, packet, ends);
  const here = { kind: 'node', node } as const;
  const service = isOwn ? serviceName(view, destination) : null;
  const egress = origin.kind === 'pod' ? egressOf(view, packet.source, end.address) : null;
  const arrived = afterPolicies(policies.verdicts[0], () =>
    isOwn || (hostPort === null && isLoopback(destination) && origin.kind === 'node')
      ? arriveAt(view, here, service ? `node ${node} for Service ${service}` : `node ${node}`, end)
      : egress
        ? leaveBy(view, egress, end)
        : arriveFrom(view, node, end),
  );
  const step = passStep(view, map, packet, hostPort);
  const owner = ownerOf(view, destination) ?? node;
  const fault = linkFault(view, node, owner);
  if (owner !== node && hostPort === null && policies.verdicts[0] === 'allowed' && fault === null)
    return enterNext(view, origin, owner, packet, {
      ...base,
      steps: [...base.steps, step, ...policies.steps],
    });
  const seen = isOwn
    ? packet.source
    : hostPort
      ? sourceBehindHostPort(view, origin, node, packet, hostPort)
      : sourceSeenAt(view, origin, node, packet.source, destination);
  const causes =
    arrived.arrival === 'answered' ? [] : [...policies.causes, ...findCauses(view, map, packet, verdict)];
  return ended(
    {
      ...base,
      steps: [...base.steps, step, ...policies.steps, ...(egress ? [egressStep(egress)] : [])],
      clientSeen: seen,
      causes,
    },
    arrived,
  );
}

/** Continues with a packet to the address of another node, whose Service rules it enters there. */
function enterNext(view: ExplainView, origin: Origin, node: string, packet: Packet, base: Base): Body {
  const { destination, port, protocol } = packet;
  const here = base.packet?.node ?? origin.node ?? node;
  const source = sourceSeenAt(view, origin, here, packet.source, destination);
  const rest = source === null ? undefined : view.facts.entry({ node, source, destination, port, protocol });
  if (rest === undefined)
    return { ...base, verdict: 'unknown', reason: `the forwarding table of ${node} is not known` };
  const { steps, endpoints, clientSeen, verdict, reason, causes } = rest;
  const done = { endpoints, clientSeen, verdict, reason, causes, next: node };
  return { ...base, ...done, steps: [...base.steps, ...steps] };
}

/** Applies the verdict of policies: denied packets do not arrive. */
function afterPolicies(policy: 'allowed' | 'denied' | undefined, arrive: () => Arrived): Arrived {
  if (policy === undefined || policy === 'allowed') return arrive();
  return { arrival: 'denied', text: 'denied by network policies', cause: null };
}

/** Completes the explanation of a flow with a single destination. */
function ended(base: Base, { arrival, text, cause }: Arrived): Body {
  const { verdict, reason } = outcomeOf([arrival], null, base.packet?.protocol ?? 'TCP');
  const steps = [...base.steps, { subject: 'arrival', object: null, ruleOrKey: null, text } as const];
  return {
    ...base,
    steps,
    verdict,
    reason: verdict === 'delivered' ? text : reason,
    causes: cause ? [...base.causes, cause] : base.causes,
  };
}

function sctpCause(node: string, mode: Mode): Cause {
  return {
    text: differenceText('no-sctp'),
    object: `Node ${node}`,
    field: `mode ${mode}`,
    fix: `use another mode on ${node}`,
  };
}
