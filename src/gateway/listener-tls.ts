import { type Verdict, verdict } from './conditions.ts';
import type { Identity } from './identity.ts';
import { keyOf } from './identity.ts';
import type { Listener } from './listener.ts';
import type { GatewayObjects } from './objects.ts';
import { list, optionalText, portNumber, type Raw, record, show, text } from './raw.ts';
import type { ReferenceGrants, ReferenceSource } from './reference-grants.ts';
import type { AuthorityKey, CertificateKey } from './route-map.ts';

export interface ReferenceContext {
  readonly grants: ReferenceGrants;
  readonly certificates: GatewayObjects['certificates'];
  readonly authorities: GatewayObjects['authorities'];
}

/** Which certificates clients must show, as read from spec.tls.frontend of a Gateway. */
export interface ClientValidation {
  readonly authorities: readonly AuthorityKey[];
  readonly optional: boolean;
  /** The first reference that cannot be used; null: all can. */
  readonly problem: Verdict | null;
}

const MIN_VERSION_OPTION = 'fairlead.dev/min-version';

/** Resolves a listener's certificates and its validation of clients, and writes what its conditions say about them. */
export function readCertificates(listener: Listener, raw: Raw, context: ListenerTlsContext): void {
  const tls = record(raw['tls']);
  const references = list(tls['certificateRefs']);
  const source: ReferenceSource = { kind: listener.owner.kind, namespace: listener.owner.identity.namespace };
  const certificates: CertificateKey[] = [];
  references.forEach((reference, index) => {
    const found = resolveCertificate(record(reference), source, context);
    if (typeof found === 'string') certificates.push(found);
    else if (listener.resolved.holds)
      listener.resolved = verdict(
        false,
        found.permitted ? 'InvalidCertificateRef' : 'RefNotPermitted',
        `tls.certificateRefs[${index}]: ${found.problem}`,
      );
  });
  if (references.length === 0)
    listener.resolved = verdict(false, 'InvalidCertificateRef', 'tls.certificateRefs: names no certificate');
  if (certificates.length === 0) listener.unusable = 'it has no certificate that can be used';
  const options = record(tls['options']);
  const minimum = Object.hasOwn(options, MIN_VERSION_OPTION) ? options[MIN_VERSION_OPTION] : '1.2';
  const unknown = Object.keys(options).find((key) => key !== MIN_VERSION_OPTION);
  if (unknown !== undefined || (minimum !== '1.2' && minimum !== '1.3'))
    listener.accepted = verdict(
      false,
      'UnsupportedValue',
      unknown === undefined
        ? `tls.options[${MIN_VERSION_OPTION}]: ${show(minimum)} is neither "1.2" nor "1.3"`
        : `tls.options: ${show(unknown)} is not known: only ${MIN_VERSION_OPTION} is`,
    );
  const clients = listener.protocol === 'HTTPS' ? context.clients(listener.port) : null;
  if (clients?.problem) listener.resolved = clients.problem;
  if (clients?.problem && clients.authorities.length === 0)
    listener.accepted = verdict(false, 'NoValidCACertificate', clients.problem.message);
  listener.tls = {
    certificates,
    minVersion: minimum === '1.3' ? '1.3' : '1.2',
    clients: clients && { authorities: clients.authorities, optional: clients.optional },
  };
}

interface ListenerTlsContext extends ReferenceContext {
  readonly clients: (port: number) => ClientValidation | null;
}

/** Returns the key of a certificate, or why it cannot be used; `permitted`: the reference is allowed. */
export function resolveCertificate(
  reference: Raw,
  source: ReferenceSource,
  { grants, certificates }: ReferenceContext,
): CertificateKey | { readonly permitted: boolean; readonly problem: string } {
  const name = text(reference['name']);
  const namespace = optionalText(reference['namespace']) ?? source.namespace;
  const group = text(reference['group']);
  const kind = optionalText(reference['kind']) ?? 'Secret';
  if (group !== '' || kind !== 'Secret')
    return { permitted: true, problem: `${show(group === '' ? kind : `${group}/${kind}`)} is not a Secret` };
  if (!grants.allow(source, { kind: 'Secret', namespace, name }))
    return {
      permitted: false,
      problem: `no ReferenceGrant of namespace ${show(namespace)} lets a ${source.kind} of namespace ${source.namespace} use Secret ${show(name)}`,
    };
  const key = keyOf({ namespace, name });
  const problem = certificates.get(key);
  if (problem === null) return key;
  return { permitted: true, problem: `Secret ${show(key)} ${problem ?? 'does not exist'}` };
}

/** Reads spec.tls.frontend of a Gateway: the validation of client certificates by port. */
export function readClientValidation(
  { namespace }: Identity,
  frontend: Raw,
  context: ReferenceContext,
): { readonly forPort: (port: number) => ClientValidation | null; readonly insecure: boolean } {
  const read = (config: unknown): ClientValidation | null => {
    const { validation } = record(config);
    return validation === undefined || validation === null
      ? null
      : readValidation(record(validation), { kind: 'Gateway', namespace }, context);
  };
  const standard = read(frontend['default']);
  const ports = new Map<number, ClientValidation | null>();
  for (const item of list(frontend['perPort'])) {
    const port = portNumber(record(item)['port']);
    if (port !== null && !ports.has(port)) ports.set(port, read(record(item)['tls']));
  }
  return {
    forPort: (port) => {
      const own = ports.get(port);
      return own === undefined ? standard : own;
    },
    insecure: [standard, ...ports.values()].some((validation) => validation?.optional === true),
  };
}

function readValidation(
  validation: Raw,
  source: ReferenceSource,
  context: ReferenceContext,
): ClientValidation {
  const authorities: AuthorityKey[] = [];
  const references = list(validation['caCertificateRefs']);
  let problem: Verdict | null =
    references.length === 0
      ? verdict(false, 'InvalidCACertificateRef', 'spec.tls.frontend: caCertificateRefs names no authority')
      : null;
  for (const reference of references) {
    const found = resolveAuthority(record(reference), source, context);
    if (typeof found === 'string') authorities.push(found);
    else problem ??= verdict(false, found.reason, `spec.tls.frontend: ${found.problem}`);
  }
  return { authorities, optional: validation['mode'] === 'AllowInsecureFallback', problem };
}

function resolveAuthority(
  reference: Raw,
  source: ReferenceSource,
  { grants, authorities }: ReferenceContext,
): AuthorityKey | { readonly reason: string; readonly problem: string } {
  const name = text(reference['name']);
  const namespace = optionalText(reference['namespace']) ?? source.namespace;
  const kind = text(reference['kind']);
  if (text(reference['group']) !== '' || (kind !== 'ConfigMap' && kind !== 'Secret'))
    return {
      reason: 'InvalidCACertificateKind',
      problem: `${show(kind)} is neither a ConfigMap nor a Secret`,
    };
  if (!grants.allow(source, { kind, namespace, name }))
    return {
      reason: 'RefNotPermitted',
      problem: `no ReferenceGrant of namespace ${show(namespace)} lets a Gateway of namespace ${source.namespace} use ${kind} ${show(name)}`,
    };
  const key = `${namespace}/${kind}/${name}`;
  const problem = authorities.get(key);
  if (problem === null) return key;
  return {
    reason: 'InvalidCACertificateRef',
    problem: `${kind} ${show(`${namespace}/${name}`)} ${problem ?? 'does not exist'}`,
  };
}
