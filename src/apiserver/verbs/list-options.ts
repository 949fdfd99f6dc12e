import { badRequest, type FieldError, forbidden, invalidObject, notSupported } from '../status-error.ts';

/** The version fields of meta/v1 ListOptions. */
export interface VersionOptions {
  /** Wait until the server has seen this version. */
  readonly atLeast: number;
  /** List at exactly this version. */
  readonly exactly: number | null;
  /** Any version is acceptable; limits do not apply then. */
  readonly any: boolean;
}

/**
 * Parses resourceVersion and resourceVersionMatch of a list or watch (KEP-2523, KEP-3157). Throws StatusError 400 or
 * 422.
 */
export function readVersionOptions(query: URLSearchParams, watch: boolean): VersionOptions {
  const version = query.get('resourceVersion') ?? '';
  const match = query.get('resourceVersionMatch') ?? '';
  const initial = query.get('sendInitialEvents');
  const errors: FieldError[] = [];
  const field = 'resourceVersionMatch';
  if (watch) {
    if (initial !== null && match !== 'NotOlderThan') {
      errors.push(
        forbidden(field, 'sendInitialEvents requires setting resourceVersionMatch to NotOlderThan'),
      );
    }
    if (initial === null && match !== '') {
      errors.push(
        forbidden(field, 'resourceVersionMatch is forbidden for watch unless sendInitialEvents is provided'),
      );
    }
  } else {
    if (initial !== null)
      errors.push(forbidden('sendInitialEvents', 'sendInitialEvents is forbidden for list'));
    if (match !== '') {
      if (query.get('continue')) {
        errors.push(forbidden(field, 'resourceVersionMatch is forbidden when continue is provided'));
      } else if (version === '') {
        errors.push(forbidden(field, 'resourceVersionMatch is forbidden unless resourceVersion is provided'));
      } else if (match === 'Exact' && version === '0') {
        errors.push(forbidden(field, 'resourceVersionMatch "exact" is forbidden for resourceVersion "0"'));
      } else if (match !== 'Exact' && match !== 'NotOlderThan') {
        errors.push(notSupported(field, match, ['Exact', 'NotOlderThan']));
      }
    }
  }
  if (errors.length > 0) {
    throw invalidObject({ group: 'meta.k8s.io', kind: 'ListOptions', plural: 'listoptions' }, '', errors);
  }
  // The token has the version of its first page.
  if (!watch && query.get('continue') && version !== '' && version !== '0')
    throw badRequest('specifying resource version is not allowed when using continue');
  if (!/^[0-9]*$/.test(version))
    throw badRequest(
      `invalid resource version: resourceVersion: Invalid value: ${JSON.stringify(version)}: strconv.ParseUint: parsing ${JSON.stringify(version)}: invalid syntax`,
    );
  const number = Number(version);
  // A limited list at a version, without a match, always means exactly that version.
  const exact = match === 'Exact' || (match === '' && number > 0 && Number(query.get('limit') ?? 0) > 0);
  return {
    atLeast: number,
    exactly: exact && !watch && !query.get('continue') ? number : null,
    any: version === '0',
  };
}

/** Parses an integer of the query; 0 if absent. Throws StatusError 400 in the words of Go's ParseInt. */
export function readInteger(query: URLSearchParams, name: string): number {
  const text = query.get(name);
  if (text === null || text === '') return 0;
  if (!/^[-+]?[0-9]+$/.test(text)) {
    throw badRequest(`strconv.ParseInt: parsing ${JSON.stringify(text)}: invalid syntax`);
  }
  return Number(text);
}
