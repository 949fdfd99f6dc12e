import { type Condition, condition, type Verdict, verdict } from './conditions.ts';
import { ownGatewayClasses } from './gateway-reader.ts';
import { identityOf } from './identity.ts';
import { isServed, type KnownGateway, type KnownSet, type Listener } from './listener.ts';
import type { GatewayObjects } from './objects.ts';
import { show } from './raw.ts';
import { GATEWAY_GROUP } from './reference-grants.ts';
import type { ObjectStatus } from './statuses.ts';
import { SUPPORTED_FEATURES } from './supported-features.ts';

/** Returns the statuses of our GatewayClasses. */
export function classStatuses(objects: GatewayObjects): readonly ObjectStatus[] {
  const ours = ownGatewayClasses(objects.gatewayClasses);
  return objects.gatewayClasses.flatMap((object) => {
    const identity = identityOf(object, false);
    if (!identity || !ours.has(identity.name)) return [];
    const accepted =
      ours.get(identity.name) ?? verdict(true, 'Accepted', 'The class is served by this controller');
    return [
      {
        kind: 'GatewayClass',
        namespace: '',
        name: identity.name,
        status: {
          conditions: [condition('Accepted', accepted, identity.generation)],
          supportedFeatures: SUPPORTED_FEATURES.map((name) => ({ name })),
        },
      },
    ];
  });
}

/** Returns the status of a Gateway and of its ListenerSets; routes must be attached already. */
export function gatewayStatuses(
  gateway: KnownGateway,
  addresses: readonly string[],
): readonly ObjectStatus[] {
  const { owner, listeners, sets, insecureClients } = gateway;
  const { generation, namespace, name } = owner.identity;
  const accepted = gatewayAccepted(gateway);
  const programmed = gatewayProgrammed(gateway, accepted, addresses);
  const setStatuses = sets.map((set) => setStatus(set, accepted, programmed));
  const conditions = [
    condition('Accepted', accepted, generation),
    condition('Programmed', programmed, generation),
    condition('ResolvedRefs', gatewayResolved(gateway), generation),
  ];
  if (insecureClients)
    conditions.push(
      condition(
        'InsecureFrontendValidationMode',
        verdict(
          true,
          'ConfigurationChanged',
          'AllowInsecureFallback: connections without a valid client certificate are accepted',
        ),
        generation,
      ),
    );
  return [
    {
      kind: 'Gateway',
      namespace,
      name,
      status: {
        conditions,
        listeners: listeners.map((listener) => listenerStatus(listener, programmed)),
        attachedListenerSets: setStatuses.filter(({ attached }) => attached).length,
      },
    },
    ...setStatuses.map(({ status }) => status),
  ];
}

function gatewayAccepted({ listeners, sets, refusal }: KnownGateway): Verdict {
  if (refusal !== null) return refusal;
  const refused = listeners.filter(({ accepted }) => !accepted.holds);
  const some =
    listeners.length > refused.length ||
    sets.some((set) => set.listeners.some(({ accepted }) => accepted.holds));
  if (refused.length === 0 && some)
    return verdict(true, 'Accepted', 'The Gateway is served by this controller');
  const names = refused.map(({ name, accepted }) => `${show(name)} (${accepted.reason})`).join(', ');
  return verdict(
    some,
    'ListenersNotValid',
    refused.length === 0 ? 'no listener is defined' : `listeners that are not accepted: ${names}`,
  );
}

function gatewayProgrammed(
  { listeners, sets, addresses: wanted }: KnownGateway,
  accepted: Verdict,
  addresses: readonly string[],
): Verdict {
  if (!accepted.holds) return verdict(false, 'Invalid', accepted.message);
  const missing = wanted.filter((address) => !addresses.includes(address));
  if (missing.length > 0)
    return verdict(
      false,
      'AddressNotUsable',
      `spec.addresses: ${missing.join(', ')} cannot be used: it is in no pool, or in use`,
    );
  if (addresses.length === 0) return verdict(false, 'AddressNotAssigned', 'no address is assigned yet');
  if (![...listeners, ...sets.flatMap((set) => set.listeners)].some(isServed))
    return verdict(false, 'Invalid', 'no listener can be served');
  return verdict(true, 'Programmed', 'The Gateway has an address and is served');
}

function gatewayResolved({ listeners, clientCertificateProblem }: KnownGateway): Verdict {
  if (clientCertificateProblem) return clientCertificateProblem;
  const unresolved = listeners.filter(({ resolved }) => !resolved.holds).map(({ name }) => show(name));
  if (unresolved.length === 0) return verdict(true, 'ResolvedRefs', 'All references are resolved');
  return verdict(
    false,
    'ListenersNotResolved',
    `listeners with references that are not resolved: ${unresolved.join(', ')}`,
  );
}

function setStatus(
  { owner, listeners, refusal }: KnownSet,
  parentAccepted: Verdict,
  parentProgrammed: Verdict,
): { readonly status: ObjectStatus; readonly attached: boolean } {
  const { generation, namespace, name } = owner.identity;
  const served = listeners.filter(isServed);
  const accepted = setAccepted(listeners, refusal, parentAccepted);
  const programmed = !accepted.holds
    ? accepted
    : served.length === 0
      ? verdict(false, 'ListenersNotValid', 'no listener can be served')
      : parentProgrammed.holds
        ? verdict(true, 'Programmed', 'The listeners are served')
        : verdict(false, 'ParentNotProgrammed', 'the Gateway is not programmed');
  const conditions = [
    condition('Accepted', accepted, generation),
    condition('Programmed', programmed, generation),
  ];
  const status = {
    kind: 'ListenerSet',
    namespace,
    name,
    status: {
      conditions,
      listeners: listeners.map((listener) => listenerStatus(listener, parentProgrammed)),
    },
  };
  return { status, attached: accepted.holds };
}

function setAccepted(listeners: readonly Listener[], refusal: Verdict | null, parent: Verdict): Verdict {
  if (refusal !== null) return refusal;
  if (!parent.holds) return verdict(false, 'ParentNotAccepted', 'the Gateway is not accepted');
  // A set none of whose listeners can be served, for want of a certificate too, is not accepted.
  const served = listeners.filter(isServed).length;
  if (served === listeners.length && served > 0)
    return verdict(true, 'Accepted', 'The listeners are part of the Gateway');
  return verdict(
    served > 0,
    'ListenersNotValid',
    `${listeners.length - served} of ${listeners.length} listeners cannot be served`,
  );
}

function listenerStatus(listener: Listener, gateway: Verdict): Readonly<Record<string, unknown>> {
  const { name, kinds, owner, accepted, resolved, conflict, overlap, unusable, attachedRoutes } = listener;
  const { generation } = owner.identity;
  const programmed =
    conflict !== null
      ? verdict(false, conflict.reason, conflict.message)
      : !accepted.holds
        ? verdict(false, 'Invalid', accepted.message)
        : unusable !== null
          ? verdict(false, 'Invalid', unusable)
          : gateway.holds
            ? verdict(true, 'Programmed', 'The listener is served')
            : verdict(false, 'Pending', gateway.message);
  const conditions: Condition[] = [
    condition('Accepted', accepted, generation),
    condition(
      'Conflicted',
      conflict ?? verdict(false, 'NoConflicts', 'No other listener has this place'),
      generation,
    ),
    condition('Programmed', programmed, generation),
    condition('ResolvedRefs', resolved, generation),
  ];
  if (overlap !== null)
    conditions.push(
      condition('OverlappingTLSConfig', verdict(true, 'OverlappingHostnames', overlap), generation),
    );
  return {
    name,
    supportedKinds: kinds.map((kind) => ({ group: GATEWAY_GROUP, kind })),
    attachedRoutes,
    conditions,
  };
}
