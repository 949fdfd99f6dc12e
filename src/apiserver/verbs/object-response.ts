import { preparePresented, presented, presentedJson } from '../conversion.ts';
import { contentTypeOf, encode } from '../requests/encode.ts';
import { ALL_FORMATS, negotiate, type Offer, type Representation } from '../requests/negotiation.ts';
import type { PlainResponse } from '../requests/request.ts';
import { respond } from '../requests/responses.ts';
import type { ApiServices, ResourceContext } from '../services.ts';
import { StatusError } from '../status-error.ts';
import type { StoredObject } from '../store.ts';
import { transformFor } from './transform.ts';

/**
 * Returns the supported formats for objects of the request's kind: Protobuf only if the kind's fields are described.
 */
function objectOffer(services: ApiServices, context: ResourceContext): Offer {
  const { group, version, kind } = context.kind;
  const apiVersion = group === '' ? version : `${group}/${version}`;
  const formats = services.schema.hasProtobuf(apiVersion, kind)
    ? ALL_FORMATS
    : ALL_FORMATS.filter((format) => format !== 'protobuf');
  return { formats, transforms: ['Table', 'PartialObjectMetadata', 'PartialObjectMetadataList'] };
}

/**
 * Chooses the format of the response. Called before any change: a request whose response cannot be encoded has no
 * effect.
 */
export function negotiateObject(services: ApiServices, context: ResourceContext): Representation {
  const form = negotiate(context, objectOffer(services, context));
  checkShape(context, form);
  transformFor(context, form, services.tables, context.kind, new Date(services.clock.now()));
  return form;
}

/** Checks the transform: a list's metadata is a different kind than an object's. Throws StatusError 406. */
function checkShape({ info, kind }: ResourceContext, form: Representation): void {
  const asked = form.as?.kind;
  if (asked === undefined || asked === 'Table') return;
  const isList = info.verb === 'list';
  if (isList === (asked === 'PartialObjectMetadataList')) return;
  const message = isList
    ? `you requested ${asked}, but the requested object is a list (${kind.kind}List)`
    : `you requested ${asked}, but the requested object is not a list (${kind.kind})`;
  if (info.verb === 'deletecollection') return;
  throw new StatusError(406, 'NotAcceptable', message);
}

/** Builds the response for an object of the request's kind. Throws StatusError 500 if it cannot be converted. */
export async function objectResponse(
  services: ApiServices,
  context: ResourceContext,
  form: Representation,
  status: number,
  stored: StoredObject,
): Promise<PlainResponse> {
  const { kind } = context;
  await preparePresented(kind, [stored.object]);
  const now = new Date(services.clock.now());
  const transform = transformFor(context, form, services.tables, kind, now);
  if (transform) {
    return respond(services.schema, form, status, transform.single(stored.object, true));
  }
  const isStoredForm = form.format === 'json' && !form.pretty;
  return {
    status,
    headers: { 'content-type': contentTypeOf(form.format) },
    body: isStoredForm
      ? `${presentedJson(kind, stored)}\n`
      : encode(services.schema, form, presented(kind, stored.object)),
  };
}
