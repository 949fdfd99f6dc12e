import { DNS_SERVER_HEALTH_PORT, DNS_SERVER_LINGER_S } from '../agent/dns-server-settings.ts';
import { AGENT_NODE_LABELS } from '../agent/node-events.ts';
import { HOSTNAME_LABEL } from '../kube/well-known-labels.ts';
import {
  CLUSTER_CONTAINER,
  CLUSTER_MOUNTS,
  CLUSTER_POD,
  CLUSTER_VOLUMES,
  CONFIGURATION_PATH,
  clusterRoleBinding,
  type InstallationOptions,
  type KubeObject,
  LABEL,
  meta,
  probes,
  RBAC,
  serviceAccount,
} from './installation-shared.ts';

export const DNS_SERVER = 'fairlead-dns';
/** The Service with the cluster IP of DNS, as kubeadm and kind call it. */
export const DNS_SERVICE = 'kube-dns';
/** Enough for one to end; all queries of a node whose agent does not run go to these pods. */
export const DNS_REPLICAS = 2;

const DNS_PORTS = [
  { name: 'dns', port: 53, protocol: 'UDP' },
  { name: 'dns-tcp', port: 53, protocol: 'TCP' },
];

export function dnsService({ dnsAddress }: InstallationOptions): KubeObject {
  return {
    apiVersion: 'v1',
    kind: 'Service',
    metadata: { name: DNS_SERVICE, namespace: 'kube-system', labels: DNS_LABELS },
    spec: { clusterIP: dnsAddress, ports: DNS_PORTS },
  };
}

/** By which network policies allow DNS. */
const DNS_LABELS = { 'k8s-app': 'kube-dns' };

/** Returns the Deployment that answers DNS for nodes whose agent does not run, and the Service that names its pods. */
export function dnsServers(options: InstallationOptions): KubeObject[] {
  const labels = { [LABEL]: DNS_SERVER, ...DNS_LABELS };
  const selector = { [LABEL]: DNS_SERVER };
  return [
    serviceAccount(options, DNS_SERVER),
    {
      apiVersion: `${RBAC}/v1`,
      kind: 'ClusterRole',
      metadata: meta(options, DNS_SERVER, false),
      rules: [
        { apiGroups: [''], resources: ['services', 'namespaces'], verbs: ['list', 'watch'] },
        { apiGroups: ['discovery.k8s.io'], resources: ['endpointslices'], verbs: ['list', 'watch'] },
      ],
    },
    clusterRoleBinding(options, DNS_SERVER, DNS_SERVER),
    {
      apiVersion: 'v1',
      kind: 'Service',
      metadata: meta(options, DNS_SERVER),
      // In the families of the cluster, as the pods.
      spec: { clusterIP: 'None', ipFamilyPolicy: 'PreferDualStack', selector, ports: DNS_PORTS },
    },
    {
      apiVersion: 'apps/v1',
      kind: 'Deployment',
      metadata: meta(options, DNS_SERVER),
      spec: {
        replicas: options.dnsReplicas,
        // The next pod is not replaced before the last one has stopped answering.
        minReadySeconds: DNS_SERVER_LINGER_S,
        strategy: { type: 'RollingUpdate', rollingUpdate: { maxSurge: 1, maxUnavailable: 0 } },
        selector: { matchLabels: selector },
        template: {
          metadata: { labels },
          spec: {
            serviceAccountName: DNS_SERVER,
            ...CLUSTER_POD,
            nodeSelector: AGENT_NODE_LABELS,
            topologySpreadConstraints: [
              {
                maxSkew: 1,
                topologyKey: HOSTNAME_LABEL,
                whenUnsatisfiable: 'ScheduleAnyway',
                labelSelector: { matchLabels: selector },
              },
            ],
            terminationGracePeriodSeconds: DNS_SERVER_LINGER_S + 10,
            securityContext: { sysctls: [{ name: 'net.ipv4.ip_unprivileged_port_start', value: '53' }] },
            containers: [
              {
                name: 'dns-server',
                image: options.image,
                args: ['dns-server', '--config', CONFIGURATION_PATH, '--address', '$(POD_IPS)'],
                env: [{ name: 'POD_IPS', valueFrom: { fieldRef: { fieldPath: 'status.podIPs' } } }],
                ...CLUSTER_CONTAINER,
                ...probes(DNS_SERVER_HEALTH_PORT),
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
