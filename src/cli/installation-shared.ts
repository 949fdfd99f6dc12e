import { ANNOUNCEMENT_NAMESPACE, EARLIER_ANNOUNCEMENT_NAMESPACE } from '../kube/load-balancer.ts';

/** The fields that the objects of all parts of an installation share. */

/** The functions of a cluster's agents. */
export const INSTALLATIONS = ['proxy', 'proxy-dns', 'all', 'policy'] as const;
export type Installation = (typeof INSTALLATIONS)[number];

/** Strings may be placeholders of a template language, such as "{{ .Values.image }}" (chart-files.ts). */
export interface InstallationOptions {
  readonly parts: Installation;
  readonly namespace: string;
  readonly image: string;
  readonly mode: string;
  /** "https://10.0.0.1:6443": an address that works before an agent has programmed the API server's Service. */
  readonly server: string;
  /** Addresses of further API servers, which the agents use if the first one fails. */
  readonly servers: readonly string[];
  /** "10.244.0.0/16,fd00:10:244::/56"; empty: pods are recognized by their Node's podCIDRs. */
  readonly clusterCidr: string;
  /** The cluster IP of DNS, if the agents serve it. */
  readonly dnsAddress: string;
  /** The Service with that address is another name server's, and stays as it is. Default: false. */
  readonly keepsDnsService?: boolean;
  readonly clusterDomain: string;
  /**
   * The number of pods that answer DNS for nodes whose agent does not run, where the agents of other nodes cannot: beside
   * another pod network. 0: none.
   */
  readonly dnsReplicas: number;
  /** The interface towards the other nodes, with pod networks; empty: the one with the node's address. */
  readonly uplink: string;
  /** Ranges of load-balancer addresses; empty: another program assigns and announces addresses. */
  readonly pool: readonly string[];
  /** Opens the agents' port for commands from other machines, and adds the rights for them. */
  readonly commands: boolean;
  /** False: the agents' container has the capabilities of its parts only (container-rights.ts). */
  readonly privileged: boolean;
  /** The address of the nodes at which agents serve /metrics; empty: loopback only. */
  readonly metricsAddress: string;
  /** The objects of the Prometheus Operator by which Prometheus finds the agents. */
  readonly monitors: readonly Monitor[];
}

export const MONITORS = ['pod', 'service'] as const;
export type Monitor = (typeof MONITORS)[number];

/** The reservation of an agent at the scheduler: enough for a cluster of some thousand endpoints. */
export const AGENT_REQUESTS = { cpu: '50m', memory: '150Mi' };

export type KubeObject = Record<string, unknown>;

export const NAME = 'fairlead';
/** The key of the agents' configuration in the ConfigMap. */
export const CONFIGURATION_FILE = 'agent.yaml';
export const CONFIGURATION_PATH = `/etc/fairlead/${CONFIGURATION_FILE}`;
export const LABEL = 'app.kubernetes.io/name';
export const STATE_FOLDER = '/var/lib/fairlead';
export const RBAC = 'rbac.authorization.k8s.io';

export function meta({ namespace }: InstallationOptions, name: string, isNamespaced = true): KubeObject {
  return { name, ...(isNamespaced ? { namespace } : {}), labels: { [LABEL]: name } };
}

export function serviceAccount(options: InstallationOptions, name: string): KubeObject {
  return { apiVersion: 'v1', kind: 'ServiceAccount', metadata: meta(options, name) };
}

export function clusterRoleBinding(options: InstallationOptions, name: string, role: string): KubeObject {
  return {
    apiVersion: `${RBAC}/v1`,
    kind: 'ClusterRoleBinding',
    metadata: meta(options, name, false),
    roleRef: { apiGroup: RBAC, kind: 'ClusterRole', name: role },
    subjects: [{ kind: 'ServiceAccount', name, namespace: options.namespace }],
  };
}

/** Returns a Role of one namespace, bound to a ServiceAccount; `role`: its name, if it is not the ServiceAccount's. */
export function namespacedRights(
  options: InstallationOptions,
  name: string,
  namespace: string,
  rules: readonly KubeObject[],
  role = name,
): KubeObject[] {
  const metadata = { ...meta(options, name), name: role, namespace };
  return [
    { apiVersion: `${RBAC}/v1`, kind: 'Role', metadata, rules },
    {
      apiVersion: `${RBAC}/v1`,
      kind: 'RoleBinding',
      metadata,
      roleRef: { apiGroup: RBAC, kind: 'Role', name: role },
      subjects: [{ kind: 'ServiceAccount', name, namespace: options.namespace }],
    },
  ];
}

/** The security context of a container that changes nothing of its node. */
const UNPRIVILEGED = {
  allowPrivilegeEscalation: false,
  capabilities: { drop: ['ALL'] },
  readOnlyRootFilesystem: true,
  runAsNonRoot: true,
  runAsUser: 65534,
  seccompProfile: { type: 'RuntimeDefault' },
};

/** The pod of a program of the cluster that is not bound to a node: where it runs, and its priority. */
export const CLUSTER_POD = {
  // The name servers of the node, for names outside the cluster.
  dnsPolicy: 'Default',
  priorityClassName: 'system-cluster-critical',
  tolerations: [{ key: 'node-role.kubernetes.io/control-plane', operator: 'Exists' }],
};
/** The reservation and the rights of a container of such a pod. */
export const CLUSTER_CONTAINER = {
  resources: { requests: { cpu: '10m', memory: '100Mi' } },
  securityContext: UNPRIVILEGED,
};
export const CONFIGURATION_MOUNT = { name: 'config', mountPath: '/etc/fairlead', readOnly: true };
export const CONFIGURATION_VOLUME = { name: 'config', configMap: { name: NAME } };
export const CLUSTER_MOUNTS = [CONFIGURATION_MOUNT, { name: 'state', mountPath: STATE_FOLDER }];
/** The state ends with the pod. */
export const CLUSTER_VOLUMES = [CONFIGURATION_VOLUME, { name: 'state', emptyDir: {} }];

/** Returns the probes of a program that answers /healthz and /livez on a port; of the pod's address without `host`. */
export function probes(port: number, host?: string): KubeObject {
  const get = (path: string) => ({ ...(host === undefined ? {} : { host }), path, port });
  return {
    readinessProbe: { httpGet: get('/healthz'), periodSeconds: 2, timeoutSeconds: 5 },
    livenessProbe: {
      httpGet: get('/livez'),
      initialDelaySeconds: 30,
      periodSeconds: 10,
      timeoutSeconds: 10,
      failureThreshold: 6,
    },
  };
}

const LEASES = { apiGroups: ['coordination.k8s.io'], resources: ['leases'] };

/** Returns the namespace of the Leases that record which node announces which address. */
export const leaseNamespace = (): KubeObject => ({
  apiVersion: 'v1',
  kind: 'Namespace',
  metadata: { name: ANNOUNCEMENT_NAMESPACE, labels: { [LABEL]: NAME } },
});

/** Returns rights on these Leases. */
export const leaseRights = (
  options: InstallationOptions,
  name: string,
  verbs: readonly string[],
): KubeObject[] => namespacedRights(options, name, ANNOUNCEMENT_NAMESPACE, [{ ...LEASES, verbs }]);

/** Returns the right to hold one Lease of kube-system. The name of an object to create cannot be limited. */
export const holderRights = (options: InstallationOptions, name: string, lease: string): KubeObject[] =>
  namespacedRights(options, name, 'kube-system', [
    { ...LEASES, resourceNames: [lease], verbs: ['get', 'update'] },
    { ...LEASES, verbs: ['create'] },
  ]);

/**
 * Returns the right to see Leases in kube-system: whether agents of version 0.1 announce by those there. The Role of
 * that version has another name, so that it is kept until the last of them is gone.
 */
export const earlierLeaseRights = (options: InstallationOptions, name: string): KubeObject[] =>
  namespacedRights(
    options,
    name,
    EARLIER_ANNOUNCEMENT_NAMESPACE,
    [{ ...LEASES, verbs: ['get', 'list', 'watch'] }],
    `${name}-earlier-leases`,
  );
