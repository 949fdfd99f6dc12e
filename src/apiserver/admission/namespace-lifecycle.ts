import { textAt } from '../object.ts';
import type { ObjectView } from '../object-view.ts';
import { notFound, StatusError } from '../status-error.ts';
import type { AdmissionPlugin } from './plugin.ts';

const NAMESPACE = { group: '', kind: 'Namespace', plural: 'namespaces' };
const ACCESS_REVIEW = 'localsubjectaccessreviews';

/** Refuses to create objects in namespaces that do not exist or are being deleted (upstream's NamespaceLifecycle). */
export function createNamespaceLifecycle(view: ObjectView): AdmissionPlugin {
  return {
    name: 'NamespaceLifecycle',
    handles: ({ operation, namespace, resource }) =>
      operation === 'CREATE' &&
      namespace !== '' &&
      resource.resource !== 'namespaces' &&
      resource.resource !== ACCESS_REVIEW,
    mutate(attributes) {
      const { namespace, resource } = attributes;
      const found = view.get('namespaces', `/${namespace}`);
      if (!found) throw notFound(NAMESPACE, namespace);
      const terminating =
        found.metadata.deletionTimestamp !== undefined || textAt(found, 'status', 'phase') === 'Terminating';
      if (!terminating) return;
      const { group } = resource;
      const { metadata } = attributes.object ?? {};
      const name = attributes.name || metadata?.name || metadata?.generateName || 'Unknown';
      const qualified = group === '' ? resource.resource : `${resource.resource}.${group}`;
      throw new StatusError(
        403,
        'Forbidden',
        `${qualified} ${JSON.stringify(name)} is forbidden: unable to create new content in namespace ${namespace} because it is being terminated`,
        {
          name,
          ...(group === '' ? {} : { group }),
          kind: resource.resource,
          causes: [
            {
              reason: 'NamespaceTerminating',
              message: `namespace ${namespace} is being terminated`,
              field: 'metadata.namespace',
            },
          ],
        },
      );
    },
  };
}
