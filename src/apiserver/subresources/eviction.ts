import { observedGeneration } from '../../kube/observed-generation.ts';
import { timestamp } from '../../kube/timestamp.ts';
import { type ApiObject, isObject, listAt } from '../object.ts';
import { readBody } from '../requests/body.ts';
import { respondNegotiated, success } from '../requests/responses.ts';
import type { ResourceHandler, Subresource } from '../services.ts';
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
  const { resources } = services;
  // Checks the preconditions, including that of the version, which the condition changes.
  resources.delete(kind, namespace, name, { ...deletion, dryRun: true });
  if (!options.dryRun && deletion.dryRun !== true) {
    const now = timestamp(services.clock.now());
    resources.update(kind, namespace, name, (pod) => withDisruption(pod, now), { part: 'status' });
    const { resourceVersion: _, ...rest } = deletion;
    resources.delete(kind, namespace, name, rest);
  }
  return respondNegotiated(services.schema, context, 201, success());
};

/** Sets the condition that the pod ends by eviction: Jobs distinguish disruptions from failures by it (KEP-3329). */
function withDisruption(pod: ApiObject, now: string): ApiObject {
  const conditions = listAt(pod, 'status', 'conditions');
  const before = conditions.find(({ type }) => type === 'DisruptionTarget');
  const condition = {
    type: 'DisruptionTarget',
    ...observedGeneration(pod),
    status: 'True',
    reason: 'EvictionByEvictionAPI',
    message: 'Eviction API: evicting',
    lastTransitionTime: before?.['status'] === 'True' ? (before['lastTransitionTime'] ?? now) : now,
  };
  const status = isObject(pod['status']) ? pod['status'] : {};
  return {
    ...pod,
    status: { ...status, conditions: [...conditions.filter((one) => one !== before), condition] },
  };
}

export const EVICTION_SUBRESOURCE: Subresource = {
  name: 'eviction',
  kind: EVICTION,
  handlers: { create: evict },
};
