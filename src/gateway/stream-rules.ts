import { type BackendContext, resolveBackend, weightOf } from './backend-refs.ts';
import { type Verdict, verdict } from './conditions.ts';
import type { RouteRules } from './http-rules.ts';
import type { Identity } from './identity.ts';
import { list, type Raw, record } from './raw.ts';
import type { CertificateKey, HeaderChanges, WeightedBackend } from './route-map.ts';
import { unsupported } from './rule-problem.ts';

export type StreamKind = 'TLSRoute' | 'TCPRoute' | 'UDPRoute';

const NO_CHANGES: HeaderChanges = { set: [], add: [], remove: [] };
const MAX_BACKENDS = 64;

/**
 * Reads the backends of a TLSRoute, TCPRoute or UDPRoute: those of its first rule, for nothing in a rule could choose between
 * several. `terminated`: the client's TLS ends at the gateway, so that a BackendTLSPolicy counts.
 */
export function readStreamRules(
  kind: StreamKind,
  { namespace }: Identity,
  spec: Raw,
  terminated: boolean,
  clientCertificate: CertificateKey | null,
  context: BackendContext,
): RouteRules<WeightedBackend> {
  const rules = list(spec['rules']);
  const services = new Set<string>();
  let resolved: Verdict = verdict(true, 'ResolvedRefs', 'All references are resolved');
  const use = kind === 'UDPRoute' ? 'udp' : terminated ? 'tls' : 'tcp';
  const rows: WeightedBackend[] = [];
  for (const [index, item] of list(record(rules[0])['backendRefs']).slice(0, MAX_BACKENDS).entries()) {
    const reference = record(item);
    const found = resolveBackend(reference, { kind, namespace }, use, clientCertificate, context);
    if (found.service !== null) services.add(found.service);
    if (found.key === null && found.condition !== null && resolved.holds)
      resolved = verdict(
        false,
        found.condition.reason,
        `spec.rules[0].backendRefs[${index}]: ${found.condition.message}`,
      );
    const weight = weightOf(reference);
    const reason = found.key === null ? found.reason : null;
    if (weight > 0)
      rows.push({ backend: found.key, weight, request: NO_CHANGES, response: NO_CHANGES, reason });
  }
  const dropped = rules.slice(1).map((_, index) => ({
    rule: index + 1,
    problem: unsupported(
      `rules[${index + 1}]`,
      'only the first rule is used: nothing chooses between several',
    ),
  }));
  // Without any backend that can be used, connections are rejected.
  const usable = rows.some(({ backend }) => backend !== null) ? rows : [];
  return { rows: usable, resolved, dropped, ruleCount: rules.length, services };
}
