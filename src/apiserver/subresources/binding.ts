import { timestamp } from '../../kube/timestamp.ts';
import { defineKind } from '../kind.ts';
import { type ApiObject, isObject, type JsonObject, listAt, textAt } from '../object.ts';
import { readBody } from '../requests/body.ts';
import { respondNegotiated, success } from '../requests/responses.ts';
import type { ApiServices, Resource, ResourceContext, ResourceHandler, Subresource } from '../services.ts';
import { badRequest, conflict, invalidObject, notSupported, required } from '../status-error.ts';
import { admit } from '../verbs/write.ts';
import { optionsObject, readRequestOptions } from '../verbs/write-options.ts';

const BINDING = { group: '', version: 'v1', kind: 'Binding' } as const;

/** Binds a pod to a node, as a scheduler does: node and condition change at once, the generation does not. */
const bind: ResourceHandler = async (context, services) => {
  const { object: body } = await readBody(context, services.schema);
  return bindPod(services, context, (isObject(body) ? body : {}) as JsonObject);
};

async function bindPod(services: ApiServices, context: ResourceContext, binding: JsonObject) {
  const options = readRequestOptions(context.query, 'CreateOptions');
  checkTarget(binding);
  await admit(services, context, {
    operation: 'CREATE',
    object: { metadata: {}, ...binding, apiVersion: 'v1', kind: 'Binding' } as unknown as ApiObject,
    oldObject: null,
    options: optionsObject(options, 'CREATE'),
    dryRun: options.dryRun,
    kind: BINDING,
  });
  assign(services, context, binding, options.dryRun);
  return respondNegotiated(services.schema, context, 201, success());
}

function checkTarget(binding: JsonObject): void {
  const kind = textAt(binding, 'target', 'kind');
  const errors = [
    ...(kind !== '' && kind !== 'Node' ? [notSupported('target.kind', kind, ['Node', '<empty>'])] : []),
    ...(textAt(binding, 'target', 'name') === '' ? [required('target.name')] : []),
  ];
  if (errors.length > 0) {
    const name = textAt(binding, 'metadata', 'name');
    throw invalidObject({ group: '', kind: 'Binding', plural: 'bindings' }, name, errors);
  }
}

function assign(services: ApiServices, context: ResourceContext, binding: JsonObject, dryRun: boolean): void {
  const { kind, namespace, name } = context;
  const uid = textAt(binding, 'metadata', 'uid');
  const resourceVersion = textAt(binding, 'metadata', 'resourceVersion');
  services.resources.update(
    kind,
    namespace,
    name,
    (pod) => {
      const refuse = (message: string) => conflict({ ...kind, plural: 'pods/binding' }, name, message);
      if (pod.metadata.deletionTimestamp !== undefined) {
        throw refuse(`pod ${name} is being deleted, cannot be assigned to a host`);
      }
      const current = textAt(pod, 'spec', 'nodeName');
      if (current !== '') throw refuse(`pod ${name} is already assigned to node ${JSON.stringify(current)}`);
      if (listAt(pod, 'spec', 'schedulingGates').length > 0) {
        throw refuse(`pod ${name} has non-empty .spec.schedulingGates`);
      }
      if (uid !== '') pod.metadata.uid = uid;
      if (resourceVersion !== '') pod.metadata.resourceVersion = resourceVersion;
      const annotations = binding['metadata'];
      const added =
        isObject(annotations) && isObject(annotations['annotations']) ? annotations['annotations'] : {};
      if (Object.keys(added).length > 0) {
        pod.metadata.annotations = { ...pod.metadata.annotations, ...(added as Record<string, string>) };
      }
      const scheduled = {
        type: 'PodScheduled',
        status: 'True',
        lastProbeTime: null,
        lastTransitionTime: timestamp(services.clock.now()),
      };
      const others = listAt(pod, 'status', 'conditions').filter(({ type }) => type !== 'PodScheduled');
      pod['spec'] = { ...(pod['spec'] as object), nodeName: textAt(binding, 'target', 'name') };
      pod['status'] = { ...(pod['status'] as object), conditions: [...others, scheduled] };
      return pod;
    },
    { part: 'binding', dryRun },
  );
}

export const BINDING_SUBRESOURCE: Subresource = {
  name: 'binding',
  kind: BINDING,
  handlers: { create: bind },
};

/** POST of a Binding to the namespace, for clients older than pods/binding. Its name is that of the pod. */
export const BINDINGS: Resource = {
  kind: defineKind('v1', 'Binding', 'bindings'),
  stored: false,
  subresources: new Map(),
  handlers: {
    async create(context, services) {
      const { object: body } = await readBody(context, services.schema);
      const binding = (isObject(body) ? body : {}) as JsonObject;
      const pods = services.registry.find('', 'v1', 'pods');
      const name = textAt(binding, 'metadata', 'name');
      if (!pods || name === '') throw badRequest('metadata.name: the name of the pod is missing');
      services.resources.get(pods.kind, context.namespace, name);
      return bindPod(services, { ...context, resource: pods, kind: pods.kind, name }, binding);
    },
  },
};
