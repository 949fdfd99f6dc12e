import type { Pod, Service, ServicePort } from '../kube/types.ts';
import { canonicalAddress, FAMILY_NAMES, familyOf, type IPFamily } from '../lib/address.ts';
import { FairleadError } from '../lib/errors.ts';
import type { Protocol } from '../service/model.ts';
import { isLoopback } from './explain-arrival.ts';
import { addressesOf, portsText, serviceAt } from './explain-causes.ts';
import { nameFailure, nameSteps } from './explain-names.ts';
import {
  findNode,
  findPod,
  findService,
  nameOf,
  namespaceOf,
  nodeAddresses,
  placeOfPod,
  podAddresses,
  readyNodes,
} from './explain-places.ts';
import type { Target } from './explain-target.ts';
import type { ExplainView, Origin } from './explain-view.ts';
import type { Cause, ExplainStep } from './explanation.ts';

/** The destination address and port of a flow and how they were found, or the reason why there are none. */
export type Destination =
  | {
      readonly found: true;
      readonly address: string;
      readonly port: number;
      readonly protocol: Protocol;
      readonly steps: readonly ExplainStep[];
    }
  | {
      readonly found: false;
      readonly steps: readonly ExplainStep[];
      readonly causes: readonly Cause[];
      /** Name servers that did not answer. */
      readonly silentServers: readonly string[];
    };

/**
 * Resolves TO as FROM sees it; null while facts are missing. Throws FairleadError for objects that do not exist and for
 * missing ports.
 */
export function findDestination(
  view: ExplainView,
  origin: Origin,
  target: Target,
  family: IPFamily | null,
): Destination | null {
  const context = { view, origin, target, family };
  const namespace = namespaceOf(origin);
  switch (target.kind) {
    case 'service':
      return toService(context, findService(view, target, namespace));
    case 'dns':
      return toName(context, target.name);
    case 'address':
      return toLiteral(context, target.name);
    case 'pod':
    case 'workload': {
      const service = target.kind === 'pod' ? serviceMeant(view, target) : null;
      if (service) return toService(context, service);
      const pod = findPod(view, target, namespace);
      const step = { ...NAME, object: `Pod ${nameOf(pod)}`, ruleOrKey: 'status.podIPs' };
      return choose(context, podAddresses(pod), `pod ${nameOf(pod)}`, step);
    }
    case 'node': {
      const node = findNode(view, target.name);
      const step = { ...NAME, object: `Node ${nameOf(node)}`, ruleOrKey: 'status.addresses' };
      return choose(context, nodeAddresses(node), `node ${nameOf(node)}`, step);
    }
    case 'outside': {
      const step = { ...NAME, object: null, ruleOrKey: null };
      const addresses = view.hosts.find(({ name }) => name === 'outside')?.addresses ?? [];
      return choose(context, addresses, 'outside', step);
    }
  }
}

const NAME = { subject: 'name' } as const;

interface Context {
  readonly view: ExplainView;
  readonly origin: Origin;
  readonly target: Target;
  /** Null: any. */
  readonly family: IPFamily | null;
}

/** Returns the Service "shop/web" if no pod has this name. */
function serviceMeant(view: ExplainView, { namespace, name }: Target): Service | null {
  const isNamed = ({ metadata }: Pod | Service) =>
    metadata?.namespace === namespace && metadata?.name === name;
  if (namespace === null || [...view.pods()].some(isNamed)) return null;
  return [...view.services()].find(isNamed) ?? null;
}

function toService(context: Context, service: Service): Destination | null {
  const { view, origin, target, family } = context;
  const { spec } = service;
  const name = nameOf(service);
  const object = `Service ${name}`;
  if (spec?.type === 'ExternalName' || spec?.clusterIP === 'None') {
    return toName(context, `${service.metadata?.name}.${service.metadata?.namespace}.svc`);
  }
  const port = portOf(service, target);
  const isInside = origin.kind === 'pod' || origin.kind === 'node';
  const cluster = new Set(spec?.clusterIPs ?? [spec?.clusterIP ?? '']);
  const addresses = addressesOf(service).flatMap((address) => canonicalAddress(address) ?? []);
  const offered = addresses.filter((address) => cluster.has(address) === isInside);
  const numbered = { ...context, target: { ...target, port: port.number, protocol: port.protocol } };
  if (offered.length > 0) {
    const ruleOrKey = isInside ? 'spec.clusterIPs' : 'status.loadBalancer.ingress, spec.externalIPs';
    return choose(numbered, offered, object, { ...NAME, object, ruleOrKey });
  }
  if (isInside) {
    return failure(
      `${object} has no cluster IP yet`,
      object,
      'spec.clusterIPs',
      'wait for the API server to allocate one',
    );
  }
  const nodePort = port.entry?.nodePort;
  const nodes = [...view.nodes()];
  const ready = spec?.externalTrafficPolicy === 'Local' ? readyNodes(view, service)[0] : undefined;
  const node = nodes.find((one) => nameOf(one) === ready) ?? nodes[0];
  if (nodePort && node) {
    const step = { ...NAME, object, ruleOrKey: `spec.ports[].nodePort ${nodePort}` };
    const why = ready === undefined ? '' : ', which has a ready endpoint (externalTrafficPolicy: Local),';
    const of = `${object}, by node port of ${nameOf(node)}${why}`;
    return choose(
      { ...context, family, target: { ...numbered.target, port: nodePort } },
      nodeAddresses(node),
      of,
      step,
    );
  }
  const isPending = spec?.type === 'LoadBalancer';
  return failure(
    isPending
      ? `${object} has no load balancer address yet`
      : `${object} of type ${spec?.type ?? 'ClusterIP'} is not reachable from outside`,
    object,
    isPending ? 'status.loadBalancer.ingress' : 'spec.type',
    isPending
      ? 'check that the load-balancer controller is running and that its pool has a free address'
      : 'set it to NodePort or LoadBalancer',
  );
}

function toName(context: Context, name: string): Destination | null {
  const { view, origin, family } = context;
  if (!origin.place) {
    return failure(`the resolver of ${origin.label} is not known`, null, null, 'use an address');
  }
  const log = view.facts.names(origin.place, name, family);
  if (!log) return null;
  const steps = nameSteps(name, log);
  if (log.addresses.length > 0)
    return choose(
      context,
      log.addresses,
      name,
      steps.at(-1) ?? { ...NAME, object: null, ruleOrKey: `DNS ${name}` },
      steps.slice(0, -1),
    );
  return { found: false, steps, ...nameFailure(view, origin, name, log) };
}

/** Returns the address of an IP family that FROM has. */
function choose(
  context: Context,
  addresses: readonly string[],
  label: string,
  step: Omit<ExplainStep, 'text'>,
  earlier: readonly ExplainStep[] = [],
): Destination | null {
  const { origin, family } = context;
  const families = new Set(origin.addresses.map(familyOf));
  const address = addresses.find(
    (candidate) => families.has(familyOf(candidate)) && (family === null || familyOf(candidate) === family),
  );
  if (address === undefined) {
    const has = addresses.length > 0 ? `only ${addresses.join(', ')}` : 'no address';
    const wanted = family === null ? '' : `; ${FAMILY_NAMES[family]} was requested`;
    const text = `${label} has ${has}, and ${origin.label} has ${origin.addresses.join(', ') || 'none'}${wanted}`;
    return failure(
      text,
      step.object,
      step.ruleOrKey,
      'give both an address of the same family',
      step.ruleOrKey,
    );
  }
  const others = addresses.filter((candidate) => candidate !== address);
  const text = `${label} is ${address}${others.length > 0 ? ` (also ${others.join(', ')})` : ''}`;
  return toAddress(context, address, [...earlier, { ...step, text }]);
}

/** The kernel takes the address of all interfaces, as a destination, for the loopback one. */
const UNSPECIFIED: Readonly<Record<string, string>> = { '0.0.0.0': '127.0.0.1', '::': '::1' };

function toLiteral(context: Context, address: string): Destination | null {
  const loopback = UNSPECIFIED[address];
  if (loopback === undefined) return toAddress(context, address, []);
  const text = `${address} means every address of a host; to connect to it is to connect to ${loopback}`;
  return toAddress(context, loopback, [{ ...NAME, object: null, ruleOrKey: null, text }]);
}

function toAddress(
  { view, target }: Context,
  address: string,
  steps: readonly ExplainStep[],
): Destination | null {
  const service = serviceAt(view, address);
  const protocol = target.protocol ?? 'TCP';
  if (service) {
    const { number, protocol: ofPort } = portOf(service, target);
    return { found: true, address, port: number, protocol: ofPort, steps };
  }
  if (typeof target.port === 'number') return { found: true, address, port: target.port, protocol, steps };
  const pod = view.podAt(address);
  const named = (pod?.spec?.containers ?? []).flatMap((container) => container.ports ?? []);
  const ports = named.filter((port) => (port.protocol ?? 'TCP') === protocol);
  const wanted = target.port === null ? ports : ports.filter(({ name }) => name === target.port);
  const numbers = new Set(wanted.map(({ containerPort }) => containerPort));
  if (numbers.size === 0 && target.port === null && pod && protocol !== 'SCTP') {
    // Pods need not list their ports: if processes listen on one port only, that port is used.
    const place = placeOfPod(pod);
    const sockets = place && view.facts.sockets(place, protocol);
    if (place && !sockets) return null;
    for (const { address: bound, port } of sockets ?? []) if (!isLoopback(bound)) numbers.add(port);
  }
  const [only] = numbers;
  if (only !== undefined && numbers.size === 1) return { found: true, address, port: only, protocol, steps };
  const known = named.map(({ containerPort, name }) => (name ? `${containerPort} (${name})` : containerPort));
  throw portNeeded(target, (known.length > 0 ? known : [...numbers]).join(', '));
}

/** Returns the intended port: by number (which need not be listed), by name, or the only one. */
function portOf(
  service: Service,
  { kind, port, protocol, text }: Target,
): { number: number; protocol: Protocol; entry: ServicePort | null } {
  const ports = service.spec?.ports ?? [];
  const matching = ports.filter(
    (entry) =>
      (protocol === null || (entry.protocol ?? 'TCP') === protocol) &&
      (port === null || entry.port === port || entry.name === port),
  );
  const overTcp = matching.filter((entry) => (entry.protocol ?? 'TCP') === 'TCP');
  if (port === null && protocol === null && overTcp.length === 1)
    matching.splice(0, matching.length, ...overTcp);
  const entry = matching[0];
  if (entry && (matching.length === 1 || port !== null)) {
    return { number: entry.port, protocol: (entry.protocol as Protocol | undefined) ?? 'TCP', entry };
  }
  if (typeof port === 'number') return { number: port, protocol: protocol ?? 'TCP', entry: null };
  throw portNeeded({ kind, port, text }, portsText(ports));
}

function portNeeded(
  { kind, port, text }: Pick<Target, 'kind' | 'port' | 'text'>,
  known: string,
): FairleadError {
  const isBare = kind === 'address' && text.includes(':') && !text.includes('[');
  const problem = port === null ? 'needs a port' : `has no port called ${port}`;
  return new FairleadError(`${text} ${problem}`, {
    op: 'explain',
    code: 'bad-argument',
    hint: known
      ? `ports: ${known}`
      : isBare
        ? 'write an IPv6 address with a port as [ADDRESS]:PORT'
        : 'append :PORT',
  });
}

function failure(
  text: string,
  object: string | null,
  field: string | null,
  fix: string,
  ruleOrKey: string | null = field,
): Destination {
  return {
    found: false,
    steps: [{ ...NAME, object, ruleOrKey, text }],
    causes: [{ text, object, field, fix }],
    silentServers: [],
  };
}
