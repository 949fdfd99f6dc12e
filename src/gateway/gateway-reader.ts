import { familyOf } from '../lib/address.ts';
import { type Verdict, verdict } from './conditions.ts';
import { compareAge, identityOf, keyOf } from './identity.ts';
import type { KnownGateway, KnownSet, Listener, ListenerOwner } from './listener.ts';
import { markConflicts } from './listener-conflicts.ts';
import { type ListenerContext, readListeners } from './listener-reader.ts';
import { type ReferenceContext, readClientValidation, resolveCertificate } from './listener-tls.ts';
import { type NamespaceLabels, readNamespaceSelection } from './namespace-selection.ts';
import { GATEWAY_CONTROLLER, type GatewayObject, type GatewayObjects } from './objects.ts';
import { list, optionalText, record, show, text } from './raw.ts';
import { GATEWAY_GROUP } from './reference-grants.ts';
import type { CertificateKey } from './route-map.ts';

export interface GatewayContext extends ReferenceContext {
  readonly namespaces: NamespaceLabels;
}

/** Of a Gateway with its ListenerSets: each is compared with all others of its port. */
const MAX_LISTENERS = 1000;

/** Returns the GatewayClasses whose controller is ours, each with why it is not accepted; null: it is. */
export function ownGatewayClasses(classes: readonly GatewayObject[]): ReadonlyMap<string, Verdict | null> {
  const own = new Map<string, Verdict | null>();
  for (const object of classes) {
    const identity = identityOf(object, false);
    const spec = record(object.spec);
    if (!identity || text(spec['controllerName']) !== GATEWAY_CONTROLLER) continue;
    const { parametersRef } = spec;
    const refused = parametersRef !== undefined && parametersRef !== null;
    const message = 'spec.parametersRef of the GatewayClass: no kind of parameters is supported: remove it';
    own.set(identity.name, refused ? verdict(false, 'InvalidParameters', message) : null);
  }
  return own;
}

/** Reads the Gateways of our classes with their listeners, and merges ListenerSets into them. */
export function readGateways(objects: GatewayObjects, context: GatewayContext): readonly KnownGateway[] {
  const classes = ownGatewayClasses(objects.gatewayClasses);
  const sets = setsByGateway(objects.listenerSets);
  const gateways: KnownGateway[] = [];
  for (const object of objects.gateways) {
    const identity = identityOf(object);
    const refusal = classes.get(text(record(object.spec)['gatewayClassName']));
    if (!identity || refusal === undefined) continue;
    gateways.push(
      readGateway({ kind: 'Gateway', identity, object }, sets.get(keyOf(identity)) ?? [], refusal, context),
    );
  }
  return gateways.sort((a, b) => compareAge(a.owner.identity, b.owner.identity));
}

/** Groups ListenerSets by the Gateway that they name, the oldest first. */
function setsByGateway(
  listenerSets: readonly GatewayObject[],
): ReadonlyMap<string, readonly ListenerOwner[]> {
  const byGateway = new Map<string, ListenerOwner[]>();
  for (const object of listenerSets) {
    const identity = identityOf(object);
    const parent = record(record(object.spec)['parentRef']);
    const ours =
      (optionalText(parent['group']) ?? GATEWAY_GROUP) === GATEWAY_GROUP &&
      (optionalText(parent['kind']) ?? 'Gateway') === 'Gateway';
    if (!identity || !ours) continue;
    const namespace = optionalText(parent['namespace']) ?? identity.namespace;
    const key = keyOf({ namespace, name: text(parent['name']) });
    const owner: ListenerOwner = { kind: 'ListenerSet', identity, object };
    const known = byGateway.get(key);
    if (known) known.push(owner);
    else byGateway.set(key, [owner]);
  }
  for (const owners of byGateway.values()) owners.sort((a, b) => compareAge(a.identity, b.identity));
  return byGateway;
}

function readGateway(
  owner: ListenerOwner,
  sets: readonly ListenerOwner[],
  refusal: Verdict | null,
  context: GatewayContext,
): KnownGateway {
  const { identity, object } = owner;
  const spec = record(object.spec);
  const key = `gateway/${keyOf(identity)}`;
  const tls = record(spec['tls']);
  const clients = readClientValidation(identity, record(tls['frontend']), context);
  const listenerContext: ListenerContext = { ...context, clients: clients.forPort };
  const listeners = readListeners(owner, key, listenerContext);
  const allows = readNamespaceSelection(
    record(record(spec['allowedListeners'])['namespaces']),
    'None',
    identity.namespace,
    context.namespaces,
  );
  const known: KnownSet[] = sets.map((set) => {
    const allowed = allows(set.identity.namespace);
    const refusal = allowed
      ? null
      : verdict(false, 'NotAllowed', 'spec.allowedListeners of the Gateway does not allow this namespace');
    return {
      owner: set,
      gateway: key,
      listeners: allowed ? readListeners(set, key, listenerContext) : [],
      refusal,
    };
  });
  boundListeners([listeners, ...known.map((set) => set.listeners)].flat());
  markConflicts([listeners, ...known.map((set) => set.listeners)]);
  const { addresses, problem } = readAddresses(spec['addresses']);
  const { certificate, problem: certificateProblem } = readClientCertificate(
    owner,
    record(tls['backend']),
    context,
  );
  return {
    key,
    owner,
    listeners,
    sets: known,
    addresses,
    refusal: refusal ?? problem ?? parametersProblem(spec['infrastructure']),
    clientCertificate: certificate,
    clientCertificateProblem: certificateProblem,
    insecureClients: clients.insecure,
  };
}

/** Refuses the listeners beyond what a Gateway can have, those of the youngest ListenerSets. */
function boundListeners(listeners: readonly Listener[]): void {
  for (const listener of listeners.slice(MAX_LISTENERS))
    listener.accepted = verdict(
      false,
      'TooManyListeners',
      `the Gateway has ${MAX_LISTENERS} listeners already`,
    );
}

/** Reads the addresses that a Gateway asks for. One without a value asks for any. */
function readAddresses(value: unknown): {
  readonly addresses: readonly string[];
  readonly problem: Verdict | null;
} {
  const addresses: string[] = [];
  for (const [index, item] of list(value).entries()) {
    const address = record(item);
    const type = optionalText(address['type']) ?? 'IPAddress';
    const given = optionalText(address['value']);
    if (type !== 'IPAddress')
      return {
        addresses: [],
        problem: verdict(
          false,
          'UnsupportedAddress',
          `spec.addresses[${index}]: type ${show(type)} is not supported: use IPAddress`,
        ),
      };
    if (given === null) continue;
    if (familyOf(given) === null)
      return {
        addresses: [],
        problem: verdict(
          false,
          'UnsupportedAddress',
          `spec.addresses[${index}]: ${show(given)} is not an IP address`,
        ),
      };
    addresses.push(given);
  }
  return { addresses, problem: null };
}

function parametersProblem(infrastructure: unknown): Verdict | null {
  const { parametersRef } = record(infrastructure);
  if (parametersRef === undefined || parametersRef === null) return null;
  return verdict(
    false,
    'InvalidParameters',
    'spec.infrastructure.parametersRef: no kind of parameters is supported: remove it',
  );
}

function readClientCertificate(
  { identity: { namespace } }: ListenerOwner,
  backend: Readonly<Record<string, unknown>>,
  context: GatewayContext,
): { readonly certificate: CertificateKey | null; readonly problem: Verdict | null } {
  const reference = backend['clientCertificateRef'];
  if (reference === undefined || reference === null) return { certificate: null, problem: null };
  const found = resolveCertificate(record(reference), { kind: 'Gateway', namespace }, context);
  if (typeof found === 'string') return { certificate: found, problem: null };
  const reason = found.permitted ? 'InvalidClientCertificateRef' : 'RefNotPermitted';
  return {
    certificate: null,
    problem: verdict(false, reason, `spec.tls.backend.clientCertificateRef: ${found.problem}`),
  };
}

/** Returns all listeners of a Gateway, those of its ListenerSets after its own. */
export function allListeners({ listeners, sets }: KnownGateway): readonly Listener[] {
  return sets.length === 0 ? listeners : [...listeners, ...sets.flatMap((set) => set.listeners)];
}
