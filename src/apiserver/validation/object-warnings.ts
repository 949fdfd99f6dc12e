import { createPrivateKey, X509Certificate } from 'node:crypto';
import { EGRESS_NAMES, egressNamesProblems } from '../../kube/egress-names.ts';
import { ingressWarnings } from '../../kube/ingress-warnings.ts';
import { quantityNano } from '../../kube/quantity-text.ts';
import { STORAGE_CLASS_ANNOTATION } from '../../kube/well-known-labels.ts';
import { type ApiObject, at, isObject, type JsonObject, listAt, textAt } from '../object.ts';
import { addressWarnings, rangeWarnings } from './addresses.ts';
import { policyRanges } from './network.ts';
import { OLD_LABELS } from './old-labels.ts';

const WHOLE = 10n ** 9n;

/** Warns of an amount of bytes that is not an integer. */
export function fractionWarnings(parent: unknown, name: string, path: string): string[] {
  const value = at(parent, name);
  if ((quantityNano(value) ?? 0n) % WHOLE === 0n) return [];
  return [`${path}[${name}]: fractional byte value ${JSON.stringify(value)} is invalid, must be an integer`];
}

/** Warns of the spec of a claim, at `path`. */
export const claimWarnings = (spec: unknown, path: string): string[] =>
  ['limits', 'requests'].flatMap((part) =>
    fractionWarnings(at(spec, 'resources', part), 'storage', `${path}.resources.${part}`),
  );

/** Warns of labels of nodes in a selector's term that have a successor. */
export const termWarnings = (term: unknown, path: string): string[] =>
  listAt(isObject(term) ? term : {}, 'matchExpressions').flatMap(({ key }, i) => {
    const old = OLD_LABELS[String(key)];
    return old ? [`${path}.matchExpressions[${i}].key: ${key} is ${old}`] : [];
  });

function volumeWarnings(volume: ApiObject): string[] {
  const terms = listAt(volume, 'spec', 'nodeAffinity', 'required', 'nodeSelectorTerms');
  return [
    ...(volume.metadata.annotations?.[STORAGE_CLASS_ANNOTATION] === undefined
      ? []
      : [
          `metadata.annotations[${STORAGE_CLASS_ANNOTATION}]: deprecated since v1.8; use "storageClassName" attribute instead`,
        ]),
    ...(at(volume, 'spec', 'persistentVolumeReclaimPolicy') === 'Recycle'
      ? [
          'spec.persistentVolumeReclaimPolicy: The Recycle reclaim policy is deprecated. Instead, the recommended approach is to use dynamic provisioning.',
        ]
      : []),
    ...terms.flatMap((term, i) => termWarnings(term, `spec.nodeAffinity.required.nodeSelectorTerms[${i}]`)),
  ];
}

const storageClassWarnings = (storageClass: ApiObject): string[] =>
  listAt(storageClass, 'allowedTopologies').flatMap((term, i) =>
    listAt(term, 'matchLabelExpressions').flatMap(({ key }, j) => {
      const old = OLD_LABELS[String(key)];
      return old ? [`allowedTopologies[${i}].matchLabelExpressions[${j}].key: ${old}`] : [];
    }),
  );

const PEM = /-----BEGIN [^-]+-----[\s\S]*?-----END [^-]+-----/;

/** Warns of a TLS secret whose certificate and key no server can use. */
function secretWarnings(secret: ApiObject): string[] {
  if (secret['type'] !== 'kubernetes.io/tls') return [];
  const decoded = (key: string) => Buffer.from(textAt(secret, 'data', key), 'base64').toString('utf8');
  const certificate = decoded('tls.crt');
  const key = decoded('tls.key');
  if (!PEM.test(certificate)) return ['tls: failed to find any PEM data in certificate input'];
  if (!PEM.test(key)) return ['tls: failed to find any PEM data in key input'];
  let parsed: X509Certificate;
  try {
    parsed = new X509Certificate(certificate);
  } catch {
    return ['x509: malformed certificate'];
  }
  try {
    const matches = parsed.checkPrivateKey(createPrivateKey(key));
    return matches ? [] : ['tls: private key does not match public key'];
  } catch {
    return ['tls: failed to parse private key'];
  }
}

const MANY_COMPLETIONS = 100_000;
const MANY_PODS = 10_000;

function jobWarnings(job: ApiObject): string[] {
  const spec: JsonObject = isObject(job['spec']) ? job['spec'] : {};
  const isLarge =
    spec['completionMode'] === 'Indexed' &&
    Number(spec['completions'] ?? 0) > MANY_COMPLETIONS &&
    Number(spec['parallelism'] ?? 0) > MANY_PODS;
  if (!isLarge) return [];
  return [
    'spec: In Indexed Jobs with a number of completions higher than 10^5 and a parallelism higher than 10^4, Kubernetes might not be able to track completedIndexes when a big number of indexes fail',
  ];
}

/** By collection: what a write of the object warns of, besides its pods. */
export const OBJECT_WARNINGS: Readonly<Record<string, (object: ApiObject) => string[]>> = {
  endpoints: (endpoints) =>
    listAt(endpoints, 'subsets').flatMap((subset, i) =>
      ['addresses', 'notReadyAddresses'].flatMap((list) =>
        listAt(subset, list).flatMap(({ ip }, j) => addressWarnings(ip, `subsets[${i}].${list}[${j}].ip`)),
      ),
    ),
  'endpointslices.discovery.k8s.io': (slice) =>
    slice['addressType'] === 'FQDN' ? ['spec.addressType: FQDN endpoints are deprecated'] : [],
  'ingresses.networking.k8s.io': ({ spec, metadata: { annotations = {} } }) => [
    ...(annotations['kubernetes.io/ingress.class'] === undefined
      ? []
      : [
          `annotation "kubernetes.io/ingress.class" is deprecated, please use 'spec.ingressClassName' instead`,
        ]),
    ...ingressWarnings(
      textAt({ spec }, 'spec', 'ingressClassName') || (annotations['kubernetes.io/ingress.class'] ?? ''),
      annotations,
    ),
  ],
  'jobs.batch': jobWarnings,
  'networkpolicies.networking.k8s.io': (policy) => [
    ...policyRanges(policy).flatMap(([range, field]) => rangeWarnings(range, field)),
    ...egressNamesProblems(policy).map((problem) => `metadata.annotations[${EGRESS_NAMES}]: ${problem}`),
  ],
  nodes: (node) =>
    listAt(node, 'spec', 'podCIDRs').flatMap((range, i) => rangeWarnings(range, `spec.podCIDRs[${i}]`)),
  persistentvolumeclaims: ({ spec }) => claimWarnings(spec, 'spec'),
  persistentvolumes: volumeWarnings,
  secrets: secretWarnings,
  'storageclasses.storage.k8s.io': storageClassWarnings,
};
