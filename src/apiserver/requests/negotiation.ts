import { StatusError } from '../status-error.ts';
import type { RequestContext } from './request-context.ts';

export type Format = 'json' | 'yaml' | 'protobuf';

/** The response format that the client requested with its Accept header. */
export interface Representation {
  readonly format: Format;
  /** Rows for `kubectl get`, or metadata only; null: the plain objects. */
  readonly as: { readonly kind: TransformKind; readonly version: 'v1' | 'v1beta1' } | null;
  /** All groups with their resources in one document (apidiscovery.k8s.io/v2). */
  readonly aggregated: boolean;
  /** Indented. */
  readonly pretty: boolean;
}

export type TransformKind = 'Table' | 'PartialObjectMetadata' | 'PartialObjectMetadataList';

/** The formats that an endpoint supports. */
export interface Offer {
  readonly formats: readonly Format[];
  /** Supported transformations of the object. */
  readonly transforms: readonly TransformKind[];
  /** Supports the list of groups with all their resources. */
  readonly aggregated?: boolean;
}

/** The formats of responses that are not objects of a kind. */
export const ANY_OBJECT: Offer = { formats: ['json', 'yaml', 'protobuf'], transforms: [] };

export const MEDIA_TYPES: Readonly<Record<Format, string>> = {
  json: 'application/json',
  yaml: 'application/yaml',
  protobuf: 'application/vnd.kubernetes.protobuf',
};

export const ALL_FORMATS: readonly Format[] = ['json', 'yaml', 'protobuf'];

/** One clause of an Accept header. */
export interface AcceptClause {
  readonly type: string;
  readonly subtype: string;
  readonly q: number;
  readonly parameters: Readonly<Record<string, string>>;
}

/**
 * Parses the clauses of an Accept header, sorted by preference (RFC 9110, section 12.5.1); clauses with q=0 are
 * omitted.
 */
export function parseAccept(header: string): AcceptClause[] {
  const clauses = header.split(',').flatMap((text) => {
    const [media = '', ...rest] = text.split(';').map((part) => part.trim());
    const [type = '', subtype = ''] = media.toLowerCase().split('/');
    if (type === '') return [];
    const parameters: Record<string, string> = {};
    for (const part of rest) {
      const equals = part.indexOf('=');
      if (equals > 0)
        parameters[part.slice(0, equals).trim()] = part
          .slice(equals + 1)
          .trim()
          .replace(/^"(.*)"$/, '$1');
    }
    const { q: quality = '1', ...others } = parameters;
    const number = Number(quality);
    const q = Number.isFinite(number) ? Math.min(1, Math.max(0, number)) : 1;
    return q === 0 ? [] : [{ type, subtype: subtype || '*', q, parameters: others }];
  });
  return clauses
    .map((clause, i) => ({ clause, i }))
    .sort((a, b) => b.clause.q - a.clause.q || a.i - b.i)
    .map(({ clause }) => clause);
}

/** Chooses the format of a response. Throws StatusError 406 if the client accepts none of the supported formats. */
export function negotiate(context: RequestContext, offer: Offer): Representation {
  const header = context.request.headers['accept'] ?? '';
  const pretty = wantsPretty(context);
  const clauses = header === '' ? [{ type: '*', subtype: '*', q: 1, parameters: {} }] : parseAccept(header);
  let isKnownType = false;
  for (const { type, subtype, parameters } of clauses) {
    for (const format of offer.formats) {
      const [, own] = MEDIA_TYPES[format].split('/');
      if (type !== '*' && type !== 'application') continue;
      if (subtype !== '*' && subtype !== own) continue;
      isKnownType = true;
      const form = { format, pretty: pretty || parameters['pretty'] === '1' };
      if (offer.aggregated && isAggregatedDiscovery(parameters))
        return { ...form, as: null, aggregated: true };
      const as = transformOf(parameters, format, offer);
      if (as === undefined) continue;
      return { ...form, as, aggregated: false };
    }
  }
  const accepted = offer.formats.map((format) => MEDIA_TYPES[format]).join(', ');
  throw isKnownType
    ? new StatusError(406, 'NotAcceptable', `only the following media types are accepted: ${accepted}`)
    : noRepresentation(accepted);
}

/** Builds the refusal of unsupported media types in upstream's words. */
export function noRepresentation(accepted: string): StatusError {
  const message = `406: Not Acceptable\n\nAvailable representations: ${accepted}`;
  return new StatusError(406, 'NotAcceptable', message, {});
}

function isAggregatedDiscovery({ as, g, v }: Readonly<Record<string, string>>): boolean {
  return as === 'APIGroupDiscoveryList' && g === 'apidiscovery.k8s.io' && v === 'v2';
}

/** Returns undefined if the transform is not supported. */
function transformOf(
  parameters: Readonly<Record<string, string>>,
  format: Format,
  offer: Offer,
): Representation['as'] | undefined {
  const { as: kind, g: group, v: version } = parameters;
  if (kind === undefined && group === undefined && version === undefined) return null;
  if (group !== 'meta.k8s.io' || (version !== 'v1' && version !== 'v1beta1')) return undefined;
  if (!offer.transforms.some((transform) => transform === kind)) return undefined;
  switch (kind) {
    case 'Table':
      return format === 'protobuf' ? undefined : { kind, version };
    case 'PartialObjectMetadata':
    case 'PartialObjectMetadataList':
      return { kind, version };
    default:
      return undefined;
  }
}

/**
 * Reports whether the response is indented. As upstream: if requested in the query, otherwise for browsers and
 * command-line tools.
 */
function wantsPretty(context: RequestContext): boolean {
  const asked = context.query.get('pretty');
  if (asked) return /^(1|t|true)$/i.test(asked);
  return /^(curl|Wget|Mozilla\/5\.0)/.test(context.request.headers['user-agent'] ?? '');
}
