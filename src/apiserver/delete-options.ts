import { isObject } from './object.ts';
import type { DeleteRequest } from './resource-store.ts';
import { badRequest } from './status-error.ts';

export type PropagationPolicy = 'Background' | 'Foreground' | 'Orphan';

/** Reads meta/v1 DeleteOptions from a body and the query; the query wins, as upstream. */
export function readDeleteOptions(body: unknown, query: URLSearchParams): DeleteRequest {
  const options = isObject(body) ? body : {};
  const preconditions = isObject(options['preconditions']) ? options['preconditions'] : {};
  const grace = query.get('gracePeriodSeconds') ?? options['gracePeriodSeconds'];
  const policy = query.get('propagationPolicy') ?? options['propagationPolicy'];
  const dryRun =
    query.getAll('dryRun').length > 0 || (Array.isArray(options['dryRun']) && options['dryRun'].length > 0);
  if (policy !== undefined && policy !== null && !isPolicy(policy)) {
    throw badRequest(
      `propagationPolicy: unknown policy ${JSON.stringify(policy)}: use Background, Foreground or Orphan`,
    );
  }
  const orphan = query.get('orphanDependents') ?? options['orphanDependents'];
  const seconds = grace === undefined || grace === null ? undefined : Number(grace);
  if (seconds !== undefined && !Number.isInteger(seconds)) {
    throw badRequest(`gracePeriodSeconds: ${JSON.stringify(grace)} is no whole number`);
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
    dryRun,
  };
}

function isPolicy(value: unknown): value is PropagationPolicy {
  return value === 'Background' || value === 'Foreground' || value === 'Orphan';
}
