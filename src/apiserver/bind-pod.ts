import { timestamp } from '../kube/timestamp.ts';
import type { OutgoingResponse } from './api-request.ts';
import type { ApiHandlerOptions } from './handler-options.ts';
import type { Kind } from './kind.ts';
import { jsonResponse } from './negotiation.ts';
import { at, type JsonObject, textAt } from './object.ts';
import { badRequest, StatusError } from './status-error.ts';

/** Puts a pod on a node: what a scheduler does. */
export function bind(
  options: ApiHandlerOptions,
  kind: Kind,
  namespace: string,
  name: string,
  body: unknown,
): OutgoingResponse {
  const node = textAt(body, 'target', 'name');
  if (node === '') throw badRequest('target.name: the node is missing');
  options.resources.update(kind, namespace, name, (pod) => {
    if (pod.metadata.deletionTimestamp !== undefined) {
      throw new StatusError(
        409,
        'Conflict',
        `pod ${name} is being deleted, cannot be assigned to a host`,
        {},
      );
    }
    const current = textAt(pod, 'spec', 'nodeName');
    if (current !== '')
      throw new StatusError(
        409,
        'Conflict',
        `pod ${name} is already assigned to node ${JSON.stringify(current)}`,
        {},
      );
    pod['spec'] = { ...(pod['spec'] as object), nodeName: node };
    return pod;
  });
  options.resources.update(
    kind,
    namespace,
    name,
    (pod) => {
      const conditions = (at(pod, 'status', 'conditions') as JsonObject[] | undefined) ?? [];
      const scheduled = {
        type: 'PodScheduled',
        status: 'True',
        lastProbeTime: null,
        lastTransitionTime: timestamp(options.clock.now()),
      };
      const others = conditions.filter((condition) => condition['type'] !== 'PodScheduled');
      pod['status'] = { ...(pod['status'] as object), conditions: [...others, scheduled] };
      return pod;
    },
    { subresource: 'status' },
  );
  return jsonResponse(201, { kind: 'Status', apiVersion: 'v1', metadata: {}, status: 'Success' });
}
