type Json = Record<string, unknown>;

const UUID = /^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$/;
const VOLATILE = ['uid', 'creationTimestamp', 'resourceVersion', 'managedFields', 'selfLink'];

/**
 * Returns the object, or the list, without the parts that differ between two runs of one server. `withOwners`: with the
 * owners of its fields.
 */
export function stable(object: Json, withOwners = false, kind = String(object['kind'])): Json {
  const copy = structuredClone(object);
  const metadata = copy['metadata'] as Json | undefined;
  if (Array.isArray(copy['items'])) {
    delete metadata?.['resourceVersion'];
    return {
      ...copy,
      items: (copy['items'] as Json[]).map((item) => stable(item, withOwners, kind.replace(/List$/, ''))),
    };
  }
  const uid = metadata?.['uid'];
  const owners = metadata?.['managedFields'] as Json[] | undefined;
  for (const field of VOLATILE) delete metadata?.[field];
  if (metadata && withOwners)
    metadata['managedFields'] = (owners ?? []).map(({ time: _time, ...entry }) => entry).sort(byOwner);
  const status = copy['status'] as Json | undefined;
  // Depends on the client's credential: a token there, a certificate here.
  if (kind === 'CertificateSigningRequest') delete (copy['spec'] as Json)['extra'];
  // Written by controllers, which the oracle does not run.
  for (const field of ['observedGeneration', 'typeChecking']) {
    if (kind === 'ValidatingAdmissionPolicy') delete status?.[field];
  }
  if (status?.['lastPhaseTransitionTime']) status['lastPhaseTransitionTime'] = '<time>';
  for (const condition of (status?.['conditions'] as Json[] | undefined) ?? []) {
    if (condition['lastTransitionTime']) condition['lastTransitionTime'] = '<time>';
  }
  const details = copy['details'] as Json | undefined;
  if (details?.['uid']) details['uid'] = '<uid>';
  if (metadata?.['deletionTimestamp']) metadata['deletionTimestamp'] = '<time>';
  // Upstream's order is random.
  if (kind === 'Namespace') (metadata?.['finalizers'] as string[] | undefined)?.sort();
  if (metadata?.['generateName']) delete metadata['name'];
  // Written by a controller there, and by the server itself here.
  delete (metadata?.['annotations'] as Json | undefined)?.['kubernetes.io/service-account.uid'];
  if (copy['type'] === 'kubernetes.io/service-account-token') delete copy['data'];
  if (UUID.test(String(metadata?.['name']))) delete metadata?.['name'];
  withoutDistributionSources(copy);
  const text = JSON.stringify(copy).replace(/"kube-api-access-[a-z0-9]{5}"/g, '"kube-api-access-<suffix>"');
  return JSON.parse(typeof uid === 'string' ? text.replaceAll(uid, '<uid>') : text);
}

/** A server sorts the owners by the second in which each wrote first, then by name. */
const byOwner = (a: Json, b: Json): number => {
  const [one, other] = [ownerText(a), ownerText(b)];
  return one < other ? -1 : one > other ? 1 : 0;
};

const ownerText = ({ manager, operation, subresource = '' }: Json) =>
  [manager, operation, subresource].join('\0');

/** Removes what the build of kube-apiserver under test adds to the volumes of service accounts for its own distribution. */
function withoutDistributionSources(pod: Json): void {
  const volumes = (pod['spec'] as Json | undefined)?.['volumes'];
  for (const volume of Array.isArray(volumes) ? (volumes as Json[]) : []) {
    const projected = volume['projected'] as { sources?: { configMap?: { name?: string } }[] } | undefined;
    if (!projected?.sources || !String(volume['name']).startsWith('kube-api-access-')) continue;
    projected.sources = projected.sources.filter(
      ({ configMap }) => configMap?.name !== 'openshift-service-ca.crt',
    );
  }
}
