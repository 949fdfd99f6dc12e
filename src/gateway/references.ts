import { ownGatewayClasses } from './gateway-reader.ts';
import { keyOf } from './identity.ts';
import { classOf, ownIngressClasses } from './ingress-class.ts';
import { type GatewayObject, type GatewayObjects, noObjects } from './objects.ts';
import { list, optionalText, type Raw, record, text } from './raw.ts';
import { indexReferenceGrants, type ReferenceGrants, type ReferenceSource } from './reference-grants.ts';
import type { AuthorityKey, CertificateKey } from './route-map.ts';

/** The Secrets and ConfigMaps that objects of ours refer to and may refer to: no others are read. */
export interface References {
  /** In order. */
  readonly certificates: readonly CertificateKey[];
  readonly authorities: readonly AuthorityKey[];
}

/** Finds what has to be read before attach() can resolve references. A reference without a grant is not followed. */
export function findReferences(objects: GatewayObjects): References {
  const certificates = new Set<CertificateKey>();
  const authorities = new Set<AuthorityKey>();
  const collector: Collector = {
    certificates,
    authorities,
    grants: indexReferenceGrants(objects.referenceGrants),
  };
  const ingressClasses = ownIngressClasses(objects.ingressClasses);
  for (const object of objects.ingresses)
    if (classOf(object, ingressClasses) !== null)
      for (const item of list(record(object.spec)['tls']))
        addCertificate(
          collector,
          { name: record(item)['secretName'] },
          { kind: 'Gateway', namespace: namespaceOf(object) },
        );
  const gatewayClasses = ownGatewayClasses(objects.gatewayClasses);
  for (const object of objects.gateways)
    if (gatewayClasses.has(text(record(object.spec)['gatewayClassName']))) addGateway(collector, object);
  for (const object of objects.listenerSets) addListeners(collector, object, 'ListenerSet');
  for (const object of objects.backendTlsPolicies)
    for (const item of list(record(record(object.spec)['validation'])['caCertificateRefs']))
      addAuthority(
        collector,
        { ...record(item), namespace: undefined },
        { kind: 'Gateway', namespace: namespaceOf(object) },
      );
  return { certificates: [...certificates].sort(), authorities: [...authorities].sort() };
}

/** Certificates of Ingresses that do not exist are replaced by one that no client trusts, so that TLS fails where its owner looks. */
export function withFallback(objects: GatewayObjects): GatewayObjects['certificates'] {
  const ofIngresses = findReferences({
    ...noObjects(),
    ...{ ingresses: objects.ingresses, ingressClasses: objects.ingressClasses },
  });
  return new Map([...objects.certificates, ...ofIngresses.certificates.map((key) => [key, null] as const)]);
}

interface Collector {
  readonly certificates: Set<CertificateKey>;
  readonly authorities: Set<AuthorityKey>;
  readonly grants: ReferenceGrants;
}

const namespaceOf = ({ metadata }: GatewayObject): string => text(record(metadata)['namespace']);

function addGateway(collector: Collector, object: GatewayObject): void {
  const source: ReferenceSource = { kind: 'Gateway', namespace: namespaceOf(object) };
  addListeners(collector, object, 'Gateway');
  const tls = record(record(object.spec)['tls']);
  addCertificate(collector, record(record(tls['backend'])['clientCertificateRef']), source);
  const frontend = record(tls['frontend']);
  const configs = [frontend['default'], ...list(frontend['perPort']).map((item) => record(item)['tls'])];
  for (const config of configs)
    for (const item of list(record(record(config)['validation'])['caCertificateRefs']))
      addAuthority(collector, record(item), source);
}

function addListeners(collector: Collector, object: GatewayObject, kind: 'Gateway' | 'ListenerSet'): void {
  for (const listener of list(record(object.spec)['listeners']))
    for (const item of list(record(record(listener)['tls'])['certificateRefs']))
      addCertificate(collector, record(item), { kind, namespace: namespaceOf(object) });
}

function addCertificate({ certificates, grants }: Collector, reference: Raw, source: ReferenceSource): void {
  const name = text(reference['name']);
  const namespace = optionalText(reference['namespace']) ?? source.namespace;
  if (name === '' || text(reference['group']) !== '' || (reference['kind'] ?? 'Secret') !== 'Secret') return;
  if (grants.allow(source, { kind: 'Secret', namespace, name })) certificates.add(keyOf({ namespace, name }));
}

function addAuthority({ authorities, grants }: Collector, reference: Raw, source: ReferenceSource): void {
  const { kind, group } = reference;
  const name = text(reference['name']);
  const namespace = optionalText(reference['namespace']) ?? source.namespace;
  if (name === '' || text(group) !== '' || (kind !== 'ConfigMap' && kind !== 'Secret')) return;
  if (grants.allow(source, { kind, namespace, name })) authorities.add(`${namespace}/${kind}/${name}`);
}
