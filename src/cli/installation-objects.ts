import { stringify } from 'yaml';
import { COMMAND_PORT, COMMAND_PORT_ANNOTATION } from '../agent/command-rights.ts';
import { AGENT_NODE_LABELS } from '../agent/node-events.ts';
import { NODE_CONTROL_GROUPS } from '../kernel/control-group.ts';
import { EGRESS_GATEWAYS, egressGatewayDefinition } from '../kube/egress-gateway.ts';
import { addressController } from './address-controller-objects.ts';
import { commandAccessObjects } from './command-access-objects.ts';
import { agentSecurity, SYSCTL_MOUNT } from './container-rights.ts';
import { DNS_SERVER, dnsServers, dnsService } from './dns-objects.ts';
import {
  AGENT_REQUESTS,
  CONFIGURATION_FILE,
  CONFIGURATION_MOUNT,
  CONFIGURATION_PATH,
  CONFIGURATION_VOLUME,
  clusterRoleBinding,
  earlierLeaseRights,
  type Installation,
  type InstallationOptions,
  type KubeObject,
  LABEL,
  leaseNamespace,
  leaseRights,
  meta,
  NAME,
  probes,
  RBAC,
  STATE_FOLDER,
  serviceAccount,
} from './installation-shared.ts';
import { METRICS_PORT_NAME, metricsPort, monitorObjects } from './monitor-objects.ts';

/** Returns the objects that install Fairlead on a cluster, in the order of creation. */
export function installationObjects(options: InstallationOptions): KubeObject[] {
  const hasPool = options.pool.length > 0;
  return [
    serviceAccount(options, NAME),
    // The role of kube-proxy, which every cluster has, is enough for Services and routes.
    clusterRoleBinding(options, NAME, 'system:node-proxier'),
    // With policies, their rights contain these.
    ...(options.parts === 'proxy-dns' ? nameRights(options) : []),
    ...(enforcesPolicies(options.parts) ? policyRights(options) : []),
    ...(hasPool ? announcementRights(options) : []),
    // Nodes have their addresses by the same Leases as those of Services, in a pod network of ours.
    ...(hasPool && options.parts === 'all' ? egressGateways(options) : []),
    configMap(options),
    daemonSet(options),
    ...(answersDns(options.parts) && !options.keepsDnsService ? [dnsService(options)] : []),
    ...(hasDnsServers(options) ? dnsServers(options) : []),
    ...(hasPool ? addressController(options) : []),
    ...monitorObjects(options),
    ...(opensCommands(options) ? commandAccessObjects(options.namespace) : []),
  ];
}

const answersDns = (parts: Installation) => parts === 'proxy-dns' || parts === 'all';
/** With a pod network of ours, the agents of other nodes answer. */
const hasDnsServers = ({ parts, dnsReplicas }: InstallationOptions) =>
  parts === 'proxy-dns' && dnsReplicas > 0;
/** Commands ask about Services. */
const answersCommands = (parts: Installation) => parts !== 'policy';
/** The port is closed unless it was asked for: it is one of the node. */
const opensCommands = ({ parts, commands }: InstallationOptions) => commands && answersCommands(parts);
const enforcesPolicies = (parts: Installation) => parts === 'policy' || parts === 'all';

/** Renders the objects as YAML documents. */
export const installationYaml = (options: InstallationOptions): string =>
  objectsYaml(installationObjects(options));

export const objectsYaml = (objects: readonly KubeObject[]): string =>
  objects.map((object) => stringify(object, { lineWidth: 0, aliasDuplicateObjects: false })).join('---\n');

/** Returns a ClusterRole with these rules, and its binding to the agents. */
function agentRights(options: InstallationOptions, role: string, rules: readonly object[]): KubeObject[] {
  const metadata = meta(options, role, false);
  return [
    { apiVersion: `${RBAC}/v1`, kind: 'ClusterRole', metadata, rules },
    { ...clusterRoleBinding(options, NAME, role), metadata },
  ];
}

/** The agents' DNS knows namespaces without Services. */
const nameRights = (options: InstallationOptions): KubeObject[] =>
  agentRights(options, 'fairlead-names', [
    { apiGroups: [''], resources: ['namespaces'], verbs: ['list', 'watch'] },
  ]);

/** Network policies select pods by labels of pods and namespaces. */
const policyRights = (options: InstallationOptions): KubeObject[] =>
  agentRights(options, 'fairlead-policy', [
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
  ]);

/** With the rights of policies, which contain those to pods and namespaces. */
const egressGateways = (options: InstallationOptions): KubeObject[] => [
  egressGatewayDefinition(),
  ...agentRights(options, 'fairlead-egress', [
    { apiGroups: [EGRESS_GATEWAYS.group], resources: [EGRESS_GATEWAYS.plural], verbs: ['list', 'watch'] },
    {
      apiGroups: [EGRESS_GATEWAYS.group],
      resources: [`${EGRESS_GATEWAYS.plural}/status`],
      verbs: ['patch'],
    },
  ]),
];

const announcementRights = (options: InstallationOptions) => [
  leaseNamespace(),
  ...leaseRights(options, NAME, ['get', 'list', 'watch', 'create', 'update', 'delete']),
  ...earlierLeaseRights(options, NAME),
];

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
    ...(parts === 'all'
      ? {
          network: {
            overlay: 'vxlan',
            ...(options.uplink === '' ? {} : { uplink: options.uplink }),
            cni: {},
          },
        }
      : {}),
    ...(!answersDns(parts)
      ? {}
      : {
          dns: {
            addresses: [options.dnsAddress],
            ...(hasDnsServers(options) ? { fallbackService: `${options.namespace}/${DNS_SERVER}` } : {}),
          },
        }),
    ...(options.pool.length > 0 ? { loadBalancer: { pools: { default: options.pool } } } : {}),
    // kube-proxy, which runs too, has the usual ports.
    healthzBindAddress: `0.0.0.0:${healthzPort(parts)}`,
    ...(opensCommands(options) ? { commandsBindAddress: `0.0.0.0:${COMMAND_PORT}` } : {}),
    metricsBindAddress: `${options.metricsAddress || '127.0.0.1'}:${metricsPort(parts)}`,
  };
}

const healthzPort = (parts: Installation) => (parts === 'policy' ? 10266 : 10256);

/** For the administrator who edits the configuration. */
export const BOOTSTRAP_NOTE = `# server: an address that nodes reach before an agent has programmed Services, not that of the Service kubernetes.
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

/** A folder of the node. */
interface Mount {
  readonly name: string;
  readonly path: string;
  /** Absent: the same path. */
  readonly mountPath?: string;
  readonly type?: string;
  readonly readOnly?: true;
  readonly mountPropagation?: string;
}

function mounts({ parts, privileged }: InstallationOptions): Mount[] {
  return [
    { name: 'state', path: STATE_FOLDER },
    { name: 'xtables-lock', path: '/run/xtables.lock', type: 'FileOrCreate' },
    { name: 'modules', path: '/lib/modules', readOnly: true },
    // Only a privileged container can mount a file system for the node.
    {
      name: 'bpf',
      path: '/sys/fs/bpf',
      mountPropagation: privileged ? 'Bidirectional' : 'HostToContainer',
    },
    ...(privileged ? [] : [SYSCTL_MOUNT]),
    // Programs at sockets, of eBPF mode and for fast failover, apply to the control groups of all pods.
    ...(parts === 'policy'
      ? []
      : [
          { name: 'cgroup', path: '/sys/fs/cgroup', mountPath: NODE_CONTROL_GROUPS, readOnly: true as const },
        ]),
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
  const folders = mounts(options);
  const port = healthzPort(options.parts);
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
          ...(opensCommands(options)
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
              resources: { requests: AGENT_REQUESTS },
              securityContext: agentSecurity(options.parts, options.privileged),
              // Monitors name the port.
              ...(options.metricsAddress === ''
                ? {}
                : { ports: [{ name: METRICS_PORT_NAME, containerPort: metricsPort(options.parts) }] }),
              ...probes(port, '127.0.0.1'),
              volumeMounts: [
                CONFIGURATION_MOUNT,
                ...folders.map(({ name, path, mountPath = path, type: _, ...rest }) => ({
                  name,
                  mountPath,
                  ...rest,
                })),
              ],
            },
          ],
          volumes: [
            CONFIGURATION_VOLUME,
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
