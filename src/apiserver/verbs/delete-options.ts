import { isObject } from '../object.ts';
import type { DeleteRequest } from '../resource-store.ts';
import { badRequest, invalid, invalidObject, notSupported } from '../status-error.ts';
import { checkDryRun } from './write-options.ts';

export type PropagationPolicy = 'Background' | 'Foreground' | 'Orphan';

const POLICIES = ['Foreground', 'Background', 'Orphan'];

/**
 * Parses meta/v1 DeleteOptions from a body and the query; the query wins, as upstream. Throws StatusError 400 or 422.
 */
export function readDeleteOptions(body: unknown, query: URLSearchParams): DeleteRequest {
  const options = isObject(body) ? body : {};
  const preconditions = isObject(options['preconditions']) ? options['preconditions'] : {};
  const grace = query.get('gracePeriodSeconds') ?? options['gracePeriodSeconds'];
  const policy = query.get('propagationPolicy') ?? options['propagationPolicy'];
  const asked = query.getAll('dryRun');
  const given = Array.isArray(options['dryRun']) ? options['dryRun'].map(String) : [];
  const dryRun = asked.length > 0 ? asked : given;
  const orphan = query.get('orphanDependents') ?? options['orphanDependents'];
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
    ...(isPolicy(policy)
      ? { propagationPolicy: policy }
      : String(orphan) === 'true'
        ? { propagationPolicy: 'Orphan' as const }
        : {}),
    ...(typeof preconditions['uid'] === 'string' ? { uid: preconditions['uid'] } : {}),
    ...(typeof preconditions['resourceVersion'] === 'string'
      ? { resourceVersion: preconditions['resourceVersion'] }
      : {}),
    dryRun: dryRun.length > 0,
  };
}

function isPolicy(value: unknown): value is PropagationPolicy {
  return value === 'Background' || value === 'Foreground' || value === 'Orphan';
}
