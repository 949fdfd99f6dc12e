import { type ApiObject, isObject } from '../object.ts';
import { readBody } from '../requests/body.ts';
import { respondNegotiated } from '../requests/responses.ts';
import type { ResourceHandler, Subresource } from '../services.ts';
import { admit } from '../verbs/write.ts';
import { checkFields, optionsObject, readRequestOptions } from '../verbs/write-options.ts';

const TOKEN_REQUEST = { group: 'authentication.k8s.io', version: 'v1', kind: 'TokenRequest' } as const;

/** Issues a token of a service account. */
const createToken: ResourceHandler = async (context, services) => {
  const options = readRequestOptions(context.query, 'CreateOptions');
  const account = services.resources.get(context.kind, context.namespace, context.name).object;
  const body = await readBody(context, services.schema);
  checkFields(services, TOKEN_REQUEST, body, context, options.fieldValidation);
  const request = isObject(body.object) ? body.object : {};
  await admit(services, context, {
    operation: 'CREATE',
    object: { metadata: {}, ...request } as unknown as ApiObject,
    oldObject: null,
    options: optionsObject(options, 'CREATE'),
    dryRun: options.dryRun,
    kind: TOKEN_REQUEST,
  });
  return respondNegotiated(services.schema, context, 201, services.tokens.issue(account, request));
};

export const TOKEN_SUBRESOURCE: Subresource = {
  name: 'token',
  kind: TOKEN_REQUEST,
  handlers: { create: createToken },
};
