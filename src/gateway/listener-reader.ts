import { verdict } from './conditions.ts';
import { readHostname } from './host-pattern.ts';
import { keyOf } from './identity.ts';
import type { Listener, ListenerOwner, Protocol } from './listener.ts';
import { type ClientValidation, type ReferenceContext, readCertificates } from './listener-tls.ts';
import { type NamespaceLabels, readNamespaceSelection } from './namespace-selection.ts';
import { list, optionalText, portNumber, type Raw, record, show, text } from './raw.ts';
import { GATEWAY_GROUP } from './reference-grants.ts';
import type { GatewayKey } from './route-map.ts';

const KINDS: Readonly<Record<Protocol, readonly string[]>> = {
  HTTP: ['HTTPRoute', 'GRPCRoute'],
  HTTPS: ['HTTPRoute', 'GRPCRoute'],
  TLS: ['TLSRoute'],
  TCP: ['TCPRoute'],
  UDP: ['UDPRoute'],
};
const PROTOCOLS: readonly string[] = Object.keys(KINDS);
/** As the API's schema: more would only cost. */
const MAX_LISTENERS = 64;

export interface ListenerContext extends ReferenceContext {
  readonly namespaces: NamespaceLabels;
  /** Validation of client certificates by port; null: none is asked for. */
  readonly clients: (port: number) => ClientValidation | null;
}

const RESOLVED = verdict(true, 'ResolvedRefs', 'All references are resolved');
const ACCEPTED = verdict(true, 'Accepted', 'The listener is valid');

/** Reads the listeners of a Gateway or of a ListenerSet. */
export function readListeners(
  owner: ListenerOwner,
  gateway: GatewayKey,
  context: ListenerContext,
): readonly Listener[] {
  const names = new Set<string>();
  return list(record(owner.object.spec)['listeners'])
    .slice(0, MAX_LISTENERS)
    .map(record)
    .filter((raw) => {
      const name = text(raw['name']);
      if (name === '' || names.has(name)) return false;
      names.add(name);
      return true;
    })
    .map((raw) => readListener(owner, gateway, raw, context));
}

function readListener(
  owner: ListenerOwner,
  gateway: GatewayKey,
  raw: Raw,
  context: ListenerContext,
): Listener {
  const name = text(raw['name']);
  const given = text(raw['protocol']);
  const protocol = PROTOCOLS.includes(given) ? (given as Protocol) : null;
  const port = portNumber(raw['port']);
  const wanted = optionalText(raw['hostname']);
  const hasHost = protocol === 'HTTP' || protocol === 'HTTPS' || protocol === 'TLS';
  const hostname = wanted === null || !hasHost ? '' : readHostname(wanted);
  const mode = record(raw['tls'])['mode'] ?? 'Terminate';
  const passthrough = protocol === 'TLS' && mode === 'Passthrough';
  const routes = record(raw['allowedRoutes']);
  const { kinds, unknown } = readKinds(protocol, list(routes['kinds']));
  const listener: Listener = {
    owner,
    gateway,
    name,
    mapName: owner.kind === 'Gateway' ? name : `${keyOf(owner.identity)}/${name}`,
    hostname: hostname ?? '',
    port: port ?? 0,
    protocol,
    passthrough,
    kinds,
    allows: readNamespaceSelection(
      record(routes['namespaces']),
      'Same',
      owner.identity.namespace,
      context.namespaces,
    ),
    tls: null,
    accepted: ACCEPTED,
    resolved: RESOLVED,
    conflict: null,
    overlap: null,
    unusable: null,
    attachedRoutes: 0,
  };
  const refuse = (reason: string, message: string) => {
    listener.accepted = verdict(false, reason, message);
  };
  if (protocol === null)
    refuse('UnsupportedProtocol', `protocol: ${show(given)} is none of ${PROTOCOLS.join(', ')}`);
  else if (port === null) refuse('PortUnavailable', `port: ${show(raw['port'])} is not a port number`);
  else if (hostname === null) refuse('UnsupportedValue', `hostname: ${show(wanted)} is not a DNS name`);
  else if (protocol === 'HTTPS' && mode !== 'Terminate')
    refuse('UnsupportedValue', `tls.mode: ${show(mode)} is not possible with protocol HTTPS: use TLS`);
  else if (protocol === 'TLS' && mode !== 'Terminate' && mode !== 'Passthrough')
    refuse('UnsupportedValue', `tls.mode: ${show(mode)} is neither Terminate nor Passthrough`);
  else if (protocol === 'HTTPS' || (protocol === 'TLS' && !passthrough))
    readCertificates(listener, raw, context);
  if (unknown.length > 0 && listener.resolved.holds)
    listener.resolved = verdict(
      false,
      'InvalidRouteKinds',
      `allowedRoutes.kinds: protocol ${given} has no routes of kind ${unknown.map(show).join(', ')}`,
    );
  return listener;
}

/** Returns the kinds of routes that a listener takes, and those asked for that it cannot. */
function readKinds(
  protocol: Protocol | null,
  wanted: readonly unknown[],
): { readonly kinds: readonly string[]; readonly unknown: readonly string[] } {
  const possible = protocol === null ? [] : KINDS[protocol];
  if (wanted.length === 0) return { kinds: possible, unknown: [] };
  const kinds: string[] = [];
  const unknown: string[] = [];
  for (const item of wanted) {
    const { group, kind } = record(item);
    const name = text(kind);
    const ours = group === undefined || group === null || group === GATEWAY_GROUP;
    if (!ours || !possible.includes(name)) unknown.push(name);
    else if (!kinds.includes(name)) kinds.push(name);
  }
  return { kinds, unknown };
}
