import type { PropagationPolicy } from '../deletion.ts';
import { isObject, type JsonObject } from '../object.ts';
import { badRequest, invalid, invalidObject, notSupported } from '../status-error.ts';
import type { DeleteRequest } from '../store-requests.ts';
import { checkDryRun } from './write-options.ts';

const POLICIES = ['Foreground', 'Background', 'Orphan'];

/**
 * Parses meta/v1 DeleteOptions from the body, or from the query of a request without one, as upstream. Throws
 * StatusError 400 or 422.
 */
export function readDeleteOptions(body: unknown, query: URLSearchParams): DeleteRequest {
  const options = isObject(body) ? body : fromQuery(query);
  const preconditions = isObject(options['preconditions']) ? options['preconditions'] : {};
  const { gracePeriodSeconds: grace, propagationPolicy: policy, orphanDependents: orphan } = options;
  const dryRun = Array.isArray(options['dryRun']) ? options['dryRun'].map(String) : [];
  const seconds = grace === undefined || grace === null ? undefined : Number(grace);
  if (seconds !== undefined && !Number.isInteger(seconds)) {
    throw badRequest(`gracePeriodSeconds: ${JSON.stringify(grace)} is not an integer`);
  }
  const errors = checkDryRun(dryRun);
  const hasPolicy = policy !== undefined && policy !== null;
  if (hasPolicy && orphan !== undefined && orphan !== null) {
    errors.push(
      invalid('propagationPolicy', policy, 'orphanDependents and deletionPropagation cannot be both set'),
    );
  }
  if (hasPolicy && !isPolicy(policy))
    errors.push(notSupported('propagationPolicy', policy, [...POLICIES, 'nil']));
  if (errors.length > 0) {
    throw invalidObject({ group: 'meta.k8s.io', kind: 'DeleteOptions', plural: 'deleteoptions' }, '', errors);
  }
  return {
    ...(seconds === undefined ? {} : { gracePeriodSeconds: seconds }),
    ...(isPolicy(policy) ? { propagationPolicy: policy } : {}),
    ...(typeof orphan === 'boolean' ? { orphanDependents: orphan } : {}),
    ...(typeof preconditions['uid'] === 'string' ? { uid: preconditions['uid'] } : {}),
    ...(typeof preconditions['resourceVersion'] === 'string'
      ? { resourceVersion: preconditions['resourceVersion'] }
      : {}),
    dryRun: dryRun.length > 0,
  };
}

/** Returns the options that a query names; a boolean is true but for "0" and "false", as upstream converts it. */
function fromQuery(query: URLSearchParams): JsonObject {
  const text = (name: string) => (query.has(name) ? { [name]: query.get(name) } : {});
  const orphan = query.get('orphanDependents')?.toLowerCase();
  return {
    ...text('gracePeriodSeconds'),
    ...text('propagationPolicy'),
    ...(orphan === undefined ? {} : { orphanDependents: orphan !== '0' && orphan !== 'false' }),
    dryRun: query.getAll('dryRun'),
  };
}

function isPolicy(value: unknown): value is PropagationPolicy {
  return value === 'Background' || value === 'Foreground' || value === 'Orphan';
}
