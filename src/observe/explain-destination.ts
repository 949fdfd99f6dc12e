import type { Service, ServicePort } from '../kube/types.ts';
import { canonicalAddress, familyOf } from '../lib/address.ts';
import { FairleadError } from '../lib/errors.ts';
import type { Protocol } from '../service/model.ts';
import { addressesOf, portsText, serviceAt } from './explain-causes.ts';
import {
  closest,
  findNode,
  findPod,
  findService,
  nameOf,
  nodeAddresses,
  podAddresses,
  podAt,
} from './explain-places.ts';
import type { Target } from './explain-target.ts';
import type { Cause, ExplainStep, ExplainView, Origin } from './explain-view.ts';

/** The address and port that a flow goes to and how they were found, or the reason why there are none. */
export type Destination =
  | {
      readonly found: true;
      readonly address: string;
      readonly port: number;
      readonly protocol: Protocol;
      readonly steps: readonly ExplainStep[];
    }
  | { readonly found: false; readonly steps: readonly ExplainStep[]; readonly causes: readonly Cause[] };

/**
 * Resolves TO as FROM sees it. Throws FairleadError for objects that do not exist and for missing ports.
 */
export async function findDestination(
  view: ExplainView,
  origin: Origin,
  target: Target,
): Promise<Destination> {
  switch (target.kind) {
    case 'service':
      return toService(view, origin, target, findService(view, target));
    case 'dns':
      return toName(view, origin, target, target.name);
    case 'address':
      return toAddress(view, target, target.name, []);
    case 'pod': {
      const pod = findPod(view, target);
      const step = { object: `Pod ${nameOf(pod)}`, ruleOrKey: 'status.podIPs' };
      return choose(view, origin, target, podAddresses(pod), `pod ${nameOf(pod)}`, step);
    }
    case 'node': {
      const node = findNode(view, target.name);
      const step = { object: `Node ${nameOf(node)}`, ruleOrKey: 'status.addresses' };
      return choose(view, origin, target, nodeAddresses(node), `node ${nameOf(node)}`, step);
    }
    case 'outside': {
      const step = { object: null, ruleOrKey: null };
      return choose(view, origin, target, view.outsideAddresses, 'outside', step);
    }
  }
}

function toService(
  view: ExplainView,
  origin: Origin,
  target: Target,
  service: Service,
): Destination | Promise<Destination> {
  const { spec } = service;
  const name = nameOf(service);
  const object = `Service ${name}`;
  if (spec?.type === 'ExternalName' || spec?.clusterIP === 'None') {
    return toName(view, origin, target, `${service.metadata?.name}.${service.metadata?.namespace}.svc`);
  }
  const port = portOf(service, target);
  const isInside = origin.kind === 'pod' || origin.kind === 'node';
  const cluster = new Set(spec?.clusterIPs ?? [spec?.clusterIP ?? '']);
  const addresses = addressesOf(service).flatMap((address) => canonicalAddress(address) ?? []);
  const offered = addresses.filter((address) => cluster.has(address) === isInside);
  const numbered = { ...target, port: port.number, protocol: port.protocol };
  if (offered.length > 0) {
    const ruleOrKey = isInside ? 'spec.clusterIPs' : 'status.loadBalancer.ingress, spec.externalIPs';
    return choose(view, origin, numbered, offered, object, { object, ruleOrKey });
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
  const node = [...view.nodes()][0];
  if (nodePort && node) {
    const step = { object, ruleOrKey: `spec.ports[].nodePort ${nodePort}` };
    const of = `${object}, by node port of ${nameOf(node)}`;
    return choose(view, origin, { ...numbered, port: nodePort }, nodeAddresses(node), of, step);
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

async function toName(view: ExplainView, origin: Origin, target: Target, name: string): Promise<Destination> {
  const found = await view.lookup(name, origin);
  const addresses = found.flatMap((address) => canonicalAddress(address) ?? []);
  if (addresses.length > 0) {
    const step = { object: null, ruleOrKey: `DNS ${name}` };
    return choose(view, origin, target, addresses, name, step);
  }
  const [first = '', second] = name.split('.');
  const services = [...view.services()];
  const elsewhere = services.filter(({ metadata }) => metadata?.name === first).map(nameOf);
  const like = closest(
    first,
    services.flatMap(({ metadata }) => metadata?.name ?? []),
  );
  const [namespace, service] = elsewhere[0]?.split('/') ?? [];
  const hint = namespace
    ? `Service ${namespace}/${service} exists: use ${service}.${namespace}`
    : like
      ? `did you mean ${like}${second ? `.${second}` : ''}?`
      : 'check the name; names of Services are SERVICE.NAMESPACE';
  return failure(`${origin.label} cannot resolve ${name}: no such name`, null, null, hint, `DNS ${name}`);
}

/** Returns the address of an IP family that FROM has. */
function choose(
  view: ExplainView,
  origin: Origin,
  target: Target,
  addresses: readonly string[],
  label: string,
  step: Omit<ExplainStep, 'text'>,
): Destination {
  const families = new Set(origin.addresses.map(familyOf));
  const address = addresses.find((candidate) => families.has(familyOf(candidate)));
  if (address === undefined) {
    const has = addresses.length > 0 ? `only ${addresses.join(', ')}` : 'no address';
    const text = `${label} has ${has}, and ${origin.label} has ${origin.addresses.join(', ') || 'none'}`;
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
  return toAddress(view, target, address, [{ ...step, text }]);
}

function toAddress(
  view: ExplainView,
  target: Target,
  address: string,
  steps: readonly ExplainStep[],
): Destination {
  const service = serviceAt(view, address);
  if (service) {
    const { number, protocol } = portOf(service, target);
    return { found: true, address, port: number, protocol, steps };
  }
  if (typeof target.port === 'number') {
    return { found: true, address, port: target.port, protocol: target.protocol ?? 'TCP', steps };
  }
  const containers = podAt(view, address)?.spec?.containers ?? [];
  const ports = containers.flatMap((container) => container.ports ?? []);
  const wanted = target.port === null ? ports : ports.filter(({ name }) => name === target.port);
  const only = wanted[0];
  if (!only || wanted.length > 1) {
    const known = ports.map(({ containerPort, name }) =>
      name ? `${containerPort} (${name})` : containerPort,
    );
    throw portNeeded(target, known.join(', '));
  }
  const protocol = target.protocol ?? (only.protocol as Protocol | undefined) ?? 'TCP';
  return { found: true, address, port: only.containerPort, protocol, steps };
}

/** The port meant: by number (which need not be listed), by name, or the only one. */
function portOf(
  service: Service,
  { port, protocol, text }: Target,
): { number: number; protocol: Protocol; entry: ServicePort | null } {
  const ports = service.spec?.ports ?? [];
  const matching = ports.filter(
    (entry) =>
      (protocol === null || (entry.protocol ?? 'TCP') === protocol) &&
      (port === null || entry.port === port || entry.name === port),
  );
  const entry = matching[0];
  if (entry && (matching.length === 1 || port !== null)) {
    return { number: entry.port, protocol: (entry.protocol as Protocol | undefined) ?? 'TCP', entry };
  }
  if (typeof port === 'number') return { number: port, protocol: protocol ?? 'TCP', entry: null };
  throw portNeeded({ port, text }, portsText(ports));
}

function portNeeded({ port, text }: Pick<Target, 'port' | 'text'>, known: string): FairleadError {
  const problem = port === null ? 'needs a port' : `has no port called ${port}`;
  return new FairleadError(`${text} ${problem}`, {
    op: 'explain',
    code: 'bad-argument',
    hint: known ? `ports: ${known}` : 'append :PORT',
  });
}

function failure(
  text: string,
  object: string | null,
  field: string | null,
  fix: string,
  ruleOrKey: string | null = field,
): Destination {
  return { found: false, steps: [{ object, ruleOrKey, text }], causes: [{ text, object, field, fix }] };
}
