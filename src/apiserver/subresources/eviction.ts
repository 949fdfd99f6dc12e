import { type ApiObject, isObject } from '../object.ts';
import { readBody } from '../requests/body.ts';
import { respondNegotiated, success } from '../requests/responses.ts';
import type { ResourceHandler, Subresource } from '../routes/resource.ts';
import { readDeleteOptions } from '../verbs/delete-options.ts';
import { admit } from '../verbs/write.ts';
import { optionsObject, readRequestOptions } from '../verbs/write-options.ts';
import { checkEviction } from './disruption-budgets.ts';

const EVICTION = { group: 'policy', version: 'v1', kind: 'Eviction' } as const;

/** Deletes a pod unless its PodDisruptionBudget forbids that. */
const evict: ResourceHandler = async (context, services) => {
  const { kind, namespace, name } = context;
  const options = readRequestOptions(context.query, 'CreateOptions');
  const { object: body } = await readBody(context, services.schema);
  const eviction = isObject(body) ? body : {};
  const deletion = readDeleteOptions(eviction['deleteOptions'], context.query);
  await admit(services, context, {
    operation: 'CREATE',
    object: { metadata: {}, ...eviction } as unknown as ApiObject,
    oldObject: null,
    options: optionsObject(options, 'CREATE'),
    dryRun: options.dryRun || deletion.dryRun === true,
    kind: EVICTION,
  });
  checkEviction(services.resources.get(kind, namespace, name).object, (collection, where) =>
    services.store.list(collection, where).map(({ object }) => object),
  );
  services.resources.delete(kind, namespace, name, deletion);
  return respondNegotiated(services.schema, context, 201, success());
};

export const EVICTION_SUBRESOURCE: Subresource = {
  name: 'eviction',
  kind: EVICTION,
  handlers: { create: evict },
};
