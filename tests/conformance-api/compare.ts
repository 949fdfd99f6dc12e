import { type ApiAnswer, CONNECTION_CLOSED } from './oracle.ts';

type Json = Record<string, unknown>;

const UUID = /^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$/;
const VOLATILE = ['uid', 'creationTimestamp', 'resourceVersion', 'managedFields', 'selfLink'];

/**
 * Returns the difference between two servers' answers to one request; null if they agree. `upstream` is the
 * answer of kube-apiserver.
 */
export function difference(upstream: ApiAnswer, ours: ApiAnswer): string | null {
  // If kube-apiserver panics, there is no answer to compare with.
  if (upstream.status === CONNECTION_CLOSED) return null;
  if (upstream.status !== ours.status) {
    return `status ${upstream.status} (${brief(upstream)}), ours ${ours.status} (${brief(ours)})`;
  }
  const expected = upstream.body as Json;
  const actual = ours.body as Json;
  if (upstream.status >= 400) {
    if (expected['reason'] !== actual['reason']) {
      return `reason ${String(expected['reason'])}, ours ${String(actual['reason'])}`;
    }
    const wanted = causes(expected);
    const got = causes(actual);
    const missing = wanted.filter((cause) => !got.includes(cause));
    const more = got.filter((cause) => !wanted.includes(cause));
    if (missing.length === 0 && more.length === 0) return null;
    return `causes missing: ${missing.join(', ') || 'none'}; too many: ${more.join(', ') || 'none'}`;
  }
  return firstDifference(stable(expected), stable(actual), '');
}

/** Returns true if the messages of two rejections are equal too, except for random names. */
export function sameMessage(upstream: ApiAnswer, ours: ApiAnswer): boolean {
  return (upstream.body as Json | null)?.['message'] === (ours.body as Json | null)?.['message'];
}

function brief(answer: ApiAnswer): string {
  const body = answer.body as Json | null;
  return answer.status >= 400 ? String(body?.['message'] ?? body).slice(0, 300) : 'accepted';
}

function causes(status: Json): string[] {
  const details = status['details'] as { causes?: { reason?: string; field?: string }[] } | undefined;
  return [...new Set((details?.causes ?? []).map(({ reason, field }) => `${reason} ${field}`))].sort();
}

/** Returns the object, or the list, without the parts that differ between two runs of one server. */
function stable(object: Json, kind = String(object['kind'])): Json {
  const copy = structuredClone(object);
  const metadata = copy['metadata'] as Json | undefined;
  if (Array.isArray(copy['items'])) {
    delete metadata?.['resourceVersion'];
    return {
      ...copy,
      items: (copy['items'] as Json[]).map((item) => stable(item, kind.replace(/List$/, ''))),
    };
  }
  const uid = metadata?.['uid'];
  for (const field of VOLATILE) delete metadata?.[field];
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

function firstDifference(expected: unknown, actual: unknown, path: string): string | null {
  if (JSON.stringify(expected) === JSON.stringify(actual)) return null;
  const bothLists = Array.isArray(expected) && Array.isArray(actual) && expected.length === actual.length;
  if (bothLists || (isObject(expected) && isObject(actual))) {
    const keys = new Set([...Object.keys(expected as object), ...Object.keys(actual as object)]);
    for (const key of keys) {
      const found = firstDifference((expected as Json)[key], (actual as Json)[key], `${path}.${key}`);
      if (found) return found;
    }
    return null;
  }
  return `${path.slice(1)} is ${text(expected)}, ours ${text(actual)}`;
}

const text = (value: unknown) => (value === undefined ? 'absent' : JSON.stringify(value).slice(0, 160));

function isObject(value: unknown): value is Json {
  return typeof value === 'object' && value !== null && !Array.isArray(value);
}
