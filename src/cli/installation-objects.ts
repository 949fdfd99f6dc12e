import { stringify } from 'yaml';
import { COMMAND_PORT, COMMAND_PORT_ANNOTATION } from '../agent/command-rights.ts';
import { AGENT_NODE_LABELS } from '../agent/node-events.ts';

/** The functions of a cluster's agents. */
export const INSTALLATIONS = ['proxy', 'proxy-dns', 'all', 'policy'] as const;
export type Installation = (typeof INSTALLATIONS)[number];

/** Strings may be placeholders of a template language, such as "{{ .Values.image }}". */
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
  readonly clusterDomain: string;
  /** The interface towards the other nodes, with pod networks. */
  readonly uplink: string;
  /** Ranges of load-balancer addresses; empty: another program assigns and announces addresses. */
  readonly pool: readonly string[];
}

type KubeObject = Record<string, unknown>;

const NAME = 'fairlead';
/** The key of the agents' configuration in the ConfigMap. */
export const CONFIGURATION_FILE = 'agent.yaml';
const CONFIGURATION_PATH = `/etc/fairlead/${CONFIGURATION_FILE}`;
const CONTROLLER = 'fairlead-addresses';
const LABEL = 'app.kubernetes.io/name';
const STATE_FOLDER = '/var/lib/fairlead';
const RBAC = 'rbac.authorization.k8s.io';

/** Returns the objects that install Fairlead on a cluster, in the order of creation. */
export function installationObjects(options: InstallationOptions): KubeObject[] {
  const hasPool = options.pool.length > 0;
  return [
    serviceAccount(options, NAME),
    // A node's agent needs only the role of kube-proxy, which every cluster has.
    clusterRoleBinding(options, NAME, 'system:node-proxier'),
    ...(enforcesPolicies(options.parts) ? policyRights(options) : []),
    ...(hasPool ? announcementRights(options) : []),
    configMap(options),
    daemonSet(options),
    ...(answersDns(options.parts) ? [dnsService(options)] : []),
    ...(hasPool ? addressController(options) : []),
  ];
}

const answersDns = (parts: Installation) => parts === 'proxy-dns' || parts === 'all';
/** Commands ask about Services. */
const answersCommands = (parts: Installation) => parts !== 'policy';
const enforcesPolicies = (parts: Installation) => parts === 'policy' || parts === 'all';

/** Renders the objects as YAML documents. */
export const installationYaml = (options: InstallationOptions): string =>
  objectsYaml(installationObjects(options));

export const objectsYaml = (objects: readonly KubeObject[]): string =>
  objects.map((object) => stringify(object, { lineWidth: 0 })).join('---\n');

function meta({ namespace }: InstallationOptions, name: string, isNamespaced = true): KubeObject {
  return { name, ...(isNamespaced ? { namespace } : {}), labels: { [LABEL]: name } };
}

function serviceAccount(options: InstallationOptions, name: string): KubeObject {
  return { apiVersion: 'v1', kind: 'ServiceAccount', metadata: meta(options, name) };
}

function clusterRoleBinding(options: InstallationOptions, name: string, role: string): KubeObject {
  return {
    apiVersion: `${RBAC}/v1`,
    kind: 'ClusterRoleBinding',
    metadata: meta(options, name, false),
    roleRef: { apiGroup: RBAC, kind: 'ClusterRole', name: role },
    subjects: [{ kind: 'ServiceAccount', name, namespace: options.namespace }],
  };
}

/** Returns a Role of one namespace, bound to the ServiceAccount of the same name. */
function namespacedRights(
  options: InstallationOptions,
  name: string,
  namespace: string,
  rules: readonly KubeObject[],
): KubeObject[] {
  const metadata = { ...meta(options, name), namespace };
  return [
    { apiVersion: `${RBAC}/v1`, kind: 'Role', metadata, rules },
    {
      apiVersion: `${RBAC}/v1`,
      kind: 'RoleBinding',
      metadata,
      roleRef: { apiGroup: RBAC, kind: 'Role', name },
      subjects: [{ kind: 'ServiceAccount', name, namespace: options.namespace }],
    },
  ];
}

/** The Leases that record which node announces which address are in kube-system. */
const leaseRights = (options: InstallationOptions, name: string, verbs: readonly string[]): KubeObject[] =>
  namespacedRights(options, name, 'kube-system', [
    { apiGroups: ['coordination.k8s.io'], resources: ['leases'], verbs },
  ]);

const POLICY_ROLE = 'fairlead-policy';

/** Network policies select pods by labels of pods and namespaces. */
function policyRights(options: InstallationOptions): KubeObject[] {
  const binding = clusterRoleBinding(options, NAME, POLICY_ROLE);
  return [
    {
      apiVersion: `${RBAC}/v1`,
      kind: 'ClusterRole',
      metadata: meta(options, POLICY_ROLE, false),
      rules: [
        { apiGroups: ['networking.k8s.io'], resources: ['networkpolicies'], verbs: ['list', 'watch'] },
        { apiGroups: [''], resources: ['namespaces', 'pods'], verbs: ['list', 'watch'] },
        {
          apiGroups: ['policy.networking.k8s.io'],
          resources: ['adminnetworkpolicies', 'baselineadminnetworkpolicies', 'clusternetworkpolicies'],
          verbs: ['list', 'watch'],
        },
        // Whether the cluster has these policies.
        {
          apiGroups: ['apiextensions.k8s.io'],
          resources: ['customresourcedefinitions'],
          verbs: ['list', 'watch'],
        },
      ],
    },
    { ...binding, metadata: meta(options, POLICY_ROLE, false) },
  ];
}

const announcementRights = (options: InstallationOptions) =>
  leaseRights(options, NAME, ['get', 'list', 'watch', 'create', 'update', 'delete']);

function agentConfiguration(options: InstallationOptions): KubeObject {
  const { parts, clusterCidr } = options;
  return {
    apiVersion: 'fairlead.dev/v1alpha1',
    kind: 'AgentConfiguration',
    server: options.server,
    ...(options.servers.length > 0 ? { servers: options.servers } : {}),
    clusterDomain: options.clusterDomain,
    ...(parts === 'policy'
      ? { policy: { enforce: true } }
      : {
          proxy: {
            mode: options.mode,
            ...(clusterCidr === ''
              ? { detectLocalMode: 'NodeCIDR' }
              : { detectLocalMode: 'ClusterCIDR', clusterCIDRs: clusterCidr.split(',') }),
          },
        }),
    ...(parts === 'all' ? { network: { overlay: 'vxlan', uplink: options.uplink, cni: {} } } : {}),
    ...(!answersDns(parts) ? {} : { dns: { addresses: [options.dnsAddress] } }),
    ...(options.pool.length > 0 ? { loadBalancer: { pools: { default: options.pool } } } : {}),
    // kube-proxy, which runs too, has the usual ports.
    healthzBindAddress: `0.0.0.0:${healthzPort(parts)}`,
    ...(answersCommands(parts) ? { commandsBindAddress: `0.0.0.0:${COMMAND_PORT}` } : {}),
    metricsBindAddress: `127.0.0.1:${parts === 'policy' ? 10267 : 10249}`,
  };
}

const healthzPort = (parts: Installation) => (parts === 'policy' ? 10266 : 10256);

/** For the administrator who edits the configuration. */
const BOOTSTRAP_NOTE = `# server: an address that nodes reach before an agent has programmed Services, not that of the Service kubernetes.
# After its first start on a node, the agent also knows the API servers' own addresses (docs/install.md).
`;

function configMap(options: InstallationOptions): KubeObject {
  return {
    apiVersion: 'v1',
    kind: 'ConfigMap',
    metadata: meta(options, NAME),
    data: {
      [CONFIGURATION_FILE]: `${BOOTSTRAP_NOTE}${stringify(agentConfiguration(options), { lineWidth: 0 })}`,
    },
  };
}

/** Returns a folder of the node, mounted at the same path. */
interface Mount {
  readonly name: string;
  readonly path: string;
  readonly type?: string;
  readonly readOnly?: true;
  readonly mountPropagation?: string;
}

function mounts(parts: Installation): Mount[] {
  return [
    { name: 'state', path: STATE_FOLDER },
    { name: 'xtables-lock', path: '/run/xtables.lock', type: 'FileOrCreate' },
    { name: 'modules', path: '/lib/modules', readOnly: true },
    { name: 'bpf', path: '/sys/fs/bpf', mountPropagation: 'Bidirectional' },
    ...(parts === 'all'
      ? [
          { name: 'cni-bin', path: '/opt/cni/bin' },
          { name: 'cni-conf', path: '/etc/cni/net.d' },
        ]
      : []),
    // Attaching pods, and reading their sockets and routes for `explain`.
    ...(answersCommands(parts)
      ? [{ name: 'netns', path: '/run/netns', mountPropagation: 'HostToContainer' }]
      : []),
  ];
}

function daemonSet(options: InstallationOptions): KubeObject {
  const folders = mounts(options.parts);
  const port = healthzPort(options.parts);
  const probe = (path: string) => ({ httpGet: { host: '127.0.0.1', path, port } });
  return {
    apiVersion: 'apps/v1',
    kind: 'DaemonSet',
    metadata: meta(options, NAME),
    spec: {
      selector: { matchLabels: { [LABEL]: NAME } },
      updateStrategy: { type: 'RollingUpdate', rollingUpdate: { maxUnavailable: '10%' } },
      template: {
        metadata: {
          labels: { [LABEL]: NAME },
          ...(answersCommands(options.parts)
            ? { annotations: { [COMMAND_PORT_ANNOTATION]: String(COMMAND_PORT) } }
            : {}),
        },
        spec: {
          serviceAccountName: NAME,
          hostNetwork: true,
          dnsPolicy: 'Default',
          priorityClassName: 'system-node-critical',
          nodeSelector: AGENT_NODE_LABELS,
          tolerations: [{ operator: 'Exists' }],
          terminationGracePeriodSeconds: 15,
          containers: [
            {
              name: 'agent',
              image: options.image,
              args: ['agent', '--config', CONFIGURATION_PATH],
              env: [{ name: 'NODE_NAME', valueFrom: { fieldRef: { fieldPath: 'spec.nodeName' } } }],
              resources: { requests: { cpu: '50m', memory: '150Mi' } },
              // The agent writes rules and sysctls of the node's network, like kube-proxy.
              securityContext: { privileged: true, readOnlyRootFilesystem: true },
              readinessProbe: { ...probe('/healthz'), periodSeconds: 2, timeoutSeconds: 5 },
              livenessProbe: {
                ...probe('/livez'),
                initialDelaySeconds: 30,
                periodSeconds: 10,
                timeoutSeconds: 10,
                failureThreshold: 6,
              },
              volumeMounts: [
                { name: 'config', mountPath: '/etc/fairlead', readOnly: true },
                ...folders.map(({ name, path, type: _, ...rest }) => ({ name, mountPath: path, ...rest })),
              ],
            },
          ],
          volumes: [
            { name: 'config', configMap: { name: NAME } },
            ...folders.map(({ name, path, type = 'DirectoryOrCreate' }) => ({
              name,
              hostPath: { path, type },
            })),
          ],
        },
      },
    },
  };
}

function dnsService({ dnsAddress }: InstallationOptions): KubeObject {
  return {
    apiVersion: 'v1',
    kind: 'Service',
    metadata: { name: 'kube-dns', namespace: 'kube-system', labels: { 'k8s-app': 'kube-dns' } },
    spec: {
      clusterIP: dnsAddress,
      ports: [
        { name: 'dns', port: 53, protocol: 'UDP' },
        { name: 'dns-tcp', port: 53, protocol: 'TCP' },
      ],
    },
  };
}

/** Returns the Deployment that assigns addresses from the pool: a single one, so that nodes need no permission to write Services. */
function addressController(options: InstallationOptions): KubeObject[] {
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
    ...leaseRights(options, CONTROLLER, ['get', 'list', 'watch', 'create', 'update']),
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
            dnsPolicy: 'Default',
            priorityClassName: 'system-cluster-critical',
            tolerations: [{ key: 'node-role.kubernetes.io/control-plane', operator: 'Exists' }],
            containers: [
              {
                name: 'address-controller',
                image: options.image,
                args: ['address-controller', '--config', CONFIGURATION_PATH],
                env: [{ name: 'POD_NAME', valueFrom: { fieldRef: { fieldPath: 'metadata.name' } } }],
                resources: { requests: { cpu: '10m', memory: '100Mi' } },
                securityContext: {
                  allowPrivilegeEscalation: false,
                  capabilities: { drop: ['ALL'] },
                  readOnlyRootFilesystem: true,
                  runAsNonRoot: true,
                  runAsUser: 65534,
                  seccompProfile: { type: 'RuntimeDefault' },
                },
                volumeMounts: [
                  { name: 'config', mountPath: '/etc/fairlead', readOnly: true },
                  { name: 'state', mountPath: STATE_FOLDER },
                ],
              },
            ],
            volumes: [
              { name: 'config', configMap: { name: NAME } },
              { name: 'state', emptyDir: {} },
            ],
          },
        },
      },
    },
  ];
}
