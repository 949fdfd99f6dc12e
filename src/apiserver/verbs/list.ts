import { preparePresented, presented, presentedJson } from '../conversion.ts';
import { apiVersionOf, type Kind } from '../kind.ts';
import type { ApiObject } from '../object.ts';
import { contentTypeOf } from '../requests/encode.ts';
import { LongBody } from '../requests/long-body.ts';
import type { Representation } from '../requests/negotiation.ts';
import type { PlainResponse } from '../requests/request.ts';
import { respond } from '../requests/responses.ts';
import type { ApiServices, ResourceContext, ResourceHandler } from '../services.ts';
import type { StoredObject } from '../store.ts';
import type { ListRequest } from '../store-requests.ts';
import { readInteger, readVersionOptions } from './list-options.ts';
import { negotiateObject } from './object-response.ts';
import { transformFor } from './transform.ts';
import { waitForVersion } from './wait-for-version.ts';

/** A list of this many objects is encoded while it is sent. */
const MANY_ITEMS = 100;

/** The beginning of most objects: the text after it needs no other encoding. */
const TYPE_FIRST = /^\{"(?:kind|apiVersion)":"[^"\\]*","(?:kind|apiVersion)":"[^"\\]*",/;

/** Returns the namespace and selectors of a list, watch or deletecollection. */
export function selection(context: ResourceContext): ListRequest {
  const { info, namespace, kind, query } = context;
  const labelSelector = query.get('labelSelector');
  const fieldSelector = query.get('fieldSelector');
  return {
    ...(kind.namespaced && namespace !== '' ? { namespace } : {}),
    ...(labelSelector ? { labelSelector } : {}),
    ...(fieldSelector ? { fieldSelector } : {}),
    // The legacy path /watch/…/NAME.
    ...(info.verb === 'watch' && context.name !== ''
      ? {
          fieldSelector: [`metadata.name=${context.name}`, ...(fieldSelector ? [fieldSelector] : [])].join(
            ',',
          ),
        }
      : {}),
  };
}

/** Returns a list of objects: one page of it with `limit`. */
export const listObjects: ResourceHandler = async (context, services) => {
  const { kind, query } = context;
  const form = negotiateObject(services, context);
  const versions = readVersionOptions(query, false);
  await waitForVersion(services, versions.atLeast);
  const limit = readInteger(query, 'limit');
  const token = query.get('continue');
  const page = await services.resources.list(kind, {
    ...selection(context),
    ...(limit > 0 && !versions.any ? { limit } : {}),
    ...(versions.exactly === null ? {} : { exactly: versions.exactly }),
    ...(token ? { continue: token } : {}),
  });
  const metadata = {
    resourceVersion: String(page.version),
    ...(page.continue ? { continue: page.continue } : {}),
    ...(page.remaining === null ? {} : { remainingItemCount: page.remaining }),
  };
  return listResponse(services, context, form, page.items, metadata);
};

/** Builds a list in the requested format. Throws StatusError 500 if objects cannot be converted. */
export async function listResponse(
  services: ApiServices,
  context: ResourceContext,
  form: Representation,
  items: readonly StoredObject[],
  metadata: object,
): Promise<PlainResponse> {
  const { kind } = context;
  const { schema } = services;
  await preparePresented(
    kind,
    items.map(({ object }) => object),
  );
  const transform = transformFor(context, form, services.tables, kind, new Date(services.clock.now()));
  if (transform)
    return respond(
      schema,
      form,
      200,
      transform.list(
        items.map(({ object }) => object),
        metadata,
      ),
    );
  const headers = { 'content-type': contentTypeOf(form.format) };
  if (form.format === 'json' && !form.pretty) {
    const head = `{"kind":"${listKind(kind)}","apiVersion":"${apiVersionOf(kind)}","metadata":${JSON.stringify(metadata)},"items":[`;
    return { status: 200, headers, body: listBody(head, items, (item) => itemJson(kind, item)) };
  }
  const list = { kind: listKind(kind), apiVersion: apiVersionOf(kind), metadata };
  const shown = items.map(({ object }) => itemOf(kind, object));
  if (form.format === 'protobuf' && items.length >= MANY_ITEMS)
    return { status: 200, headers, body: new LongBody(schema.encodeProtobufList(list, shown)) };
  return respond(schema, form, 200, { ...list, items: shown });
}

/** Items of a built-in kind have no kind and apiVersion of their own, as upstream's: the list's are theirs. */
function itemOf(kind: Kind, object: ApiObject): object {
  const shown = presented(kind, object);
  if (kind.isCustom) return shown;
  const { kind: _kind, apiVersion: _version, ...rest } = shown;
  return rest;
}

function itemJson(kind: Kind, stored: StoredObject): string {
  const text = presentedJson(kind, stored);
  if (kind.isCustom) return text;
  const type = TYPE_FIRST.exec(text);
  return type ? `{${text.slice(type[0].length)}` : JSON.stringify(itemOf(kind, stored.object));
}

/** Returns a list's text, or the means to write it if it has many objects. */
function listBody(
  head: string,
  items: readonly StoredObject[],
  textOf: (item: StoredObject) => string,
): string | LongBody {
  const end = ']}\n';
  if (items.length < MANY_ITEMS) return `${head}${items.map(textOf).join(',')}${end}`;
  function* texts(): Generator<string, void, undefined> {
    yield head;
    for (const [i, item] of items.entries()) yield i === 0 ? textOf(item) : `,${textOf(item)}`;
    yield end;
  }
  return new LongBody(texts());
}

export function listKind(kind: Kind): string {
  return kind.listKind ?? `${kind.kind}List`;
}
