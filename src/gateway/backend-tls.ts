import { condition, type Verdict, verdict } from './conditions.ts';
import { readHostname } from './host-pattern.ts';
import { compareAge, type Identity, identityOf, keyOf } from './identity.ts';
import { GATEWAY_CONTROLLER, type GatewayObject, type GatewayObjects } from './objects.ts';
import { list, optionalText, record, show, text } from './raw.ts';
import { GATEWAY_GROUP } from './reference-grants.ts';
import type { AuthorityKey, BackendTls } from './route-map.ts';
import type { ServicePort } from './service-index.ts';
import type { ObjectStatus } from './statuses.ts';

/** What a BackendTLSPolicy asks for at a port of a Service. */
export interface PolicyChoice {
  /** null: the policy cannot be applied, so connections fail: never in plain text. */
  readonly tls: Omit<BackendTls, 'certificate'> | null;
  readonly policy: string;
}

export interface BackendTlsPolicies {
  /** Returns what applies to a port of a Service ("NAMESPACE/NAME"); null: plain text. */
  choose(service: string, port: ServicePort): PolicyChoice | null;
  /** Notes that a route of a Gateway uses a Service, for the policies' statuses. */
  note(service: string, gateway: Identity): void;
  statuses(): readonly ObjectStatus[];
}

interface Policy {
  readonly identity: Identity;
  readonly targets: readonly { readonly service: string; readonly section: string | null }[];
  readonly tls: Omit<BackendTls, 'certificate'> | null;
  readonly accepted: Verdict;
  readonly resolved: Verdict;
}

const MAX_ANCESTORS = 16;
const MAX_TARGETS = 16;
const SPIFFE_OR_URI = /^[a-z][a-z0-9+.-]*:\/\/[\x21-\x7e]{1,253}$/;

/** Reads BackendTLSPolicies. Of several with the same target the oldest counts; one for a port counts before one for all. */
export function readBackendTlsPolicies(objects: GatewayObjects): BackendTlsPolicies {
  const policies = objects.backendTlsPolicies
    .flatMap((object) => {
      const identity = identityOf(object);
      return identity ? [readPolicy(object, identity, objects.authorities)] : [];
    })
    .sort((a, b) => compareAge(a.identity, b.identity));
  const byTarget = new Map<string, Policy>();
  const conflicted = new Set<Policy>();
  for (const policy of policies)
    for (const { service, section } of policy.targets) {
      const key = targetKey(service, section);
      if (byTarget.has(key)) conflicted.add(policy);
      else byTarget.set(key, policy);
    }
  const gateways = new Map<string, Map<string, Identity>>();
  return {
    choose(service, { name }) {
      const policy =
        (name === '' ? undefined : byTarget.get(targetKey(service, name))) ??
        byTarget.get(targetKey(service, null));
      return policy ? { tls: policy.tls, policy: keyOf(policy.identity) } : null;
    },
    note(service, gateway) {
      const known = gateways.get(service);
      if (known) known.set(keyOf(gateway), gateway);
      else gateways.set(service, new Map([[keyOf(gateway), gateway]]));
    },
    statuses: () =>
      policies.map((policy) => {
        const ancestors = new Map<string, Identity>();
        for (const { service } of policy.targets)
          for (const [key, gateway] of gateways.get(service) ?? []) ancestors.set(key, gateway);
        const accepted = conflicted.has(policy)
          ? verdict(false, 'Conflicted', 'an older policy has the same target')
          : policy.accepted;
        return statusOf(
          policy,
          accepted,
          [...ancestors.keys()].sort().flatMap((key) => ancestors.get(key) ?? []),
        );
      }),
  };
}

const targetKey = (service: string, section: string | null): string => `${service} ${section ?? ''}`;

function statusOf(
  { identity, resolved }: Policy,
  accepted: Verdict,
  ancestors: readonly Identity[],
): ObjectStatus {
  const { namespace, name, generation } = identity;
  return {
    kind: 'BackendTLSPolicy',
    namespace,
    name,
    status: {
      ancestors: ancestors.slice(0, MAX_ANCESTORS).map((gateway) => ({
        ancestorRef: {
          group: GATEWAY_GROUP,
          kind: 'Gateway',
          namespace: gateway.namespace,
          name: gateway.name,
        },
        controllerName: GATEWAY_CONTROLLER,
        conditions: [
          condition('Accepted', accepted, generation),
          condition('ResolvedRefs', resolved, generation),
        ],
      })),
    },
  };
}

function readPolicy(object: GatewayObject, identity: Identity, known: GatewayObjects['authorities']): Policy {
  const spec = record(object.spec);
  const validation = record(spec['validation']);
  const targets = list(spec['targetRefs'])
    .slice(0, MAX_TARGETS)
    .map(record)
    .filter((target) => text(target['group']) === '' && target['kind'] === 'Service')
    .map((target) => ({
      service: keyOf({ namespace: identity.namespace, name: text(target['name']) }),
      section: optionalText(target['sectionName']),
    }));
  const { authorities, resolved } = readAuthorities(
    list(validation['caCertificateRefs']),
    identity.namespace,
    known,
  );
  const invalid = policyProblem(spec, validation, authorities, resolved);
  const hostname = readHostname(text(validation['hostname'])) ?? '';
  return {
    identity,
    targets,
    resolved,
    accepted: invalid ?? verdict(true, 'Accepted', 'The policy is applied'),
    tls: invalid ? null : { hostname, names: subjectNames(validation).names, authorities, verify: true },
  };
}

function policyProblem(
  spec: Readonly<Record<string, unknown>>,
  validation: Readonly<Record<string, unknown>>,
  authorities: readonly AuthorityKey[],
  resolved: Verdict,
): Verdict | null {
  const hostname = readHostname(text(validation['hostname']));
  if (hostname === null || hostname.startsWith('*'))
    return verdict(
      false,
      'Invalid',
      `spec.validation.hostname: ${show(validation['hostname'])} is not a DNS name`,
    );
  const options = Object.keys(record(spec['options']));
  if (options.length > 0)
    return verdict(false, 'Invalid', `spec.options: ${show(options[0])} is not known: no option is`);
  const { problem } = subjectNames(validation);
  if (problem !== null) return verdict(false, 'Invalid', problem);
  const wellKnown = optionalText(validation['wellKnownCACertificates']);
  if (list(validation['caCertificateRefs']).length > 0)
    return authorities.length === 0 ? verdict(false, 'NoValidCACertificate', resolved.message) : null;
  if (wellKnown === 'System') return null;
  return verdict(
    false,
    'Invalid',
    wellKnown === null
      ? 'spec.validation: names no authority'
      : `spec.validation.wellKnownCACertificates: ${show(wellKnown)} is not System`,
  );
}

function subjectNames(validation: Readonly<Record<string, unknown>>): {
  readonly names: readonly string[];
  readonly problem: string | null;
} {
  const names: string[] = [];
  for (const [index, item] of list(validation['subjectAltNames']).entries()) {
    const { type, hostname, uri } = record(item);
    const name =
      type === 'Hostname'
        ? readHostname(text(hostname))
        : type === 'URI' && SPIFFE_OR_URI.test(text(uri))
          ? text(uri)
          : null;
    if (name === null)
      return {
        names: [],
        problem: `spec.validation.subjectAltNames[${index}]: is neither a hostname nor a URI`,
      };
    names.push(name);
  }
  return { names, problem: null };
}

function readAuthorities(
  references: readonly unknown[],
  namespace: string,
  known: GatewayObjects['authorities'],
): { readonly authorities: readonly AuthorityKey[]; readonly resolved: Verdict } {
  const authorities: AuthorityKey[] = [];
  let problem: Verdict | null = null;
  for (const [index, reference] of references.entries()) {
    const { group, kind, name } = record(reference);
    const field = `spec.validation.caCertificateRefs[${index}]`;
    if (text(group) !== '' || (kind !== 'ConfigMap' && kind !== 'Secret')) {
      problem ??= verdict(
        false,
        'InvalidKind',
        `${field}: ${show(kind)} is neither a ConfigMap nor a Secret`,
      );
      continue;
    }
    const key = `${namespace}/${kind}/${text(name)}`;
    const state = known.get(key);
    if (state === null) authorities.push(key);
    else
      problem ??= verdict(
        false,
        'InvalidCACertificateRef',
        `${field}: ${kind} ${show(text(name))} ${state ?? 'does not exist'}`,
      );
  }
  return { authorities, resolved: problem ?? verdict(true, 'ResolvedRefs', 'All references are resolved') };
}
