import { POOLS_LEASE } from '../controllers/elected-pools.ts';
import {
  CLUSTER_CONTAINER,
  CLUSTER_MOUNTS,
  CLUSTER_POD,
  CLUSTER_VOLUMES,
  CONFIGURATION_PATH,
  clusterRoleBinding,
  holderRights,
  type InstallationOptions,
  type KubeObject,
  LABEL,
  leaseRights,
  meta,
  namespacedRights,
  RBAC,
  serviceAccount,
} from './installation-shared.ts';

const CONTROLLER = 'fairlead-addresses';

/** Returns the Deployment that assigns addresses from the pool: a single one, so that nodes need no permission to write Services. */
export function addressController(options: InstallationOptions): KubeObject[] {
  return [
    serviceAccount(options, CONTROLLER),
    {
      apiVersion: `${RBAC}/v1`,
      kind: 'ClusterRole',
      metadata: meta(options, CONTROLLER, false),
      rules: [
        { apiGroups: [''], resources: ['services', 'nodes', 'namespaces'], verbs: ['list', 'watch'] },
        { apiGroups: [''], resources: ['services'], verbs: ['patch'] },
        { apiGroups: [''], resources: ['services/status'], verbs: ['update', 'patch'] },
        { apiGroups: [''], resources: ['events'], verbs: ['create', 'patch'] },
      ],
    },
    clusterRoleBinding(options, CONTROLLER, CONTROLLER),
    ...leaseRights(options, CONTROLLER, ['get', 'list', 'watch']),
    ...holderRights(options, CONTROLLER, POOLS_LEASE),
    // The addresses of the API servers, of the Service kubernetes.
    ...namespacedRights(options, CONTROLLER, 'default', [
      { apiGroups: ['discovery.k8s.io'], resources: ['endpointslices'], verbs: ['list', 'watch'] },
    ]),
    {
      apiVersion: 'apps/v1',
      kind: 'Deployment',
      metadata: meta(options, CONTROLLER),
      spec: {
        replicas: 1,
        selector: { matchLabels: { [LABEL]: CONTROLLER } },
        template: {
          metadata: { labels: { [LABEL]: CONTROLLER } },
          spec: {
            serviceAccountName: CONTROLLER,
            // Without agents, a pod of the pod network could not be removed.
            hostNetwork: true,
            ...CLUSTER_POD,
            containers: [
              {
                name: 'address-controller',
                image: options.image,
                args: ['address-controller', '--config', CONFIGURATION_PATH],
                env: [{ name: 'POD_NAME', valueFrom: { fieldRef: { fieldPath: 'metadata.name' } } }],
                ...CLUSTER_CONTAINER,
                volumeMounts: CLUSTER_MOUNTS,
              },
            ],
            volumes: CLUSTER_VOLUMES,
          },
        },
      },
    },
  ];
}
