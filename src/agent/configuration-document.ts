import { readAgent } from './configuration.ts';
import { recordFields } from './field-recorder.ts';

/** What each field of an AgentConfiguration means; every field of the reader has a row. */
export const FIELD_MEANINGS: Readonly<Record<string, string>> = {
  apiVersion: 'The version of this format.',
  kind: 'The kind of the document; KubeProxyConfiguration is read too.',
  nodeName: 'The Node object of this machine. Absent: the variable NODE_NAME, else the host name.',
  nodeAddress: "The node's primary address, where it is not the first InternalIP of its Node object.",
  kubeconfig: "How the API server is reached. Absent: the pod's service account.",
  server:
    'https://HOST:PORT of the API server, instead of the one that the kubeconfig or the pod names. An agent in a pod needs it: the Service address of the API server works only once an agent has programmed it.',
  oomScoreAdj: 'How readily the kernel ends the agent when memory is short. Absent: as it was started.',
  verbose: 'The log says what is programmed.',
  clusterDomain: "The DNS domain of the cluster's names.",
  stateDir: 'A folder for what must survive a restart of the agent.',
  proxy: 'Carries Services, in place of kube-proxy.',
  'proxy.mode': "The kernel mechanism; the Node's annotation fairlead.dev/mode overrides it.",
  'proxy.nodePortAddresses':
    'Where node ports answer: CIDRs, and the words primary, localhost, all. Empty: primary in nftables and eBPF mode, all in the others.',
  'proxy.detectLocalMode': 'How packets of pods are told from others.',
  'proxy.clusterCIDRs': 'Networks of pods, with detectLocalMode ClusterCIDR.',
  'proxy.bridgeInterface': 'The bridge of pods, with detectLocalMode BridgeInterface.',
  'proxy.interfaceNamePrefix': "What pods' interfaces begin with, with detectLocalMode InterfaceNamePrefix.",
  'proxy.masqueradeAll': 'Masquerades everything that is sent to cluster IPs.',
  'proxy.masqueradeBit': 'The bit of the packet mark that asks for masquerading.',
  'proxy.localhostNodePorts': 'Node ports answer on 127.0.0.1 (IPv4).',
  'proxy.serviceCIDRs': 'Networks of cluster IPs, where no ServiceCIDR object names them.',
  'proxy.ipvsScheduler': 'The scheduler of Services that name none.',
  'proxy.ipvsTimeouts': 'Seconds after which IPVS forgets idle connections; 0 leaves the kernel’s.',
  'proxy.ipvsTimeouts.tcp': 'Open TCP connections.',
  'proxy.ipvsTimeouts.tcpFin': 'TCP connections that were closed.',
  'proxy.ipvsTimeouts.udp': 'UDP flows.',
  'proxy.conntrack': "Connection tracking, as in kube-proxy's configuration; 0 leaves the kernel's value.",
  'proxy.conntrack.maxPerCore': 'Connections that may be tracked, for each processor.',
  'proxy.conntrack.min': 'The least number of connections that may be tracked.',
  'proxy.conntrack.tcpEstablishedTimeout': 'How long an idle TCP connection is remembered.',
  'proxy.conntrack.tcpCloseWaitTimeout': 'How long a half-closed TCP connection is remembered.',
  'proxy.conntrack.tcpBeLiberal': 'Accepts TCP segments outside the window.',
  'proxy.conntrack.udpTimeout': 'How long a UDP flow without an answer is remembered.',
  'proxy.conntrack.udpStreamTimeout': 'How long a UDP flow that was answered is remembered.',
  'proxy.minSyncPeriodMs': 'The least time between two programmings of the kernel, in milliseconds.',
  'proxy.syncPeriodMs':
    'After this long without a change the kernel is compared with what it should hold, in milliseconds.',
  network: "Connects this node's pods with those of the others.",
  'network.overlay': 'routes: plain routes by way of the other nodes; vxlan: a tunnel.',
  'network.uplink': 'The interface that leads to the other nodes.',
  'network.masquerade': "Pods reach addresses outside the cluster by their node's own.",
  'network.cni': 'Serves the CNI plugin to the container runtime.',
  'network.cni.binDir': 'Where the container runtime finds plugins.',
  'network.cni.confDir': 'Where the container runtime finds network configurations.',
  policy:
    'Enforces NetworkPolicies on this node, beside any proxy and pod network; on by default where network is set.',
  'policy.enforce': 'Whether they are enforced; false removes what an earlier agent enforced.',
  pods: 'Runs pods, in place of a kubelet and its container runtime.',
  'pods.cgroupParent': 'The control group below which pods run.',
  'pods.port': "The port of the kubelet's HTTPS server.",
  'pods.nodeAddresses': 'Addresses that the Node object reports.',
  'pods.tlsCert': "PEM file of the kubelet server's certificate.",
  'pods.tlsKey': 'PEM file of its key.',
  'pods.clientCA': 'PEM file of the authority whose clients it admits.',
  'pods.apiServiceHost': 'What pods find in KUBERNETES_SERVICE_HOST.',
  'pods.apiServicePort': 'What pods find in KUBERNETES_SERVICE_PORT.',
  'pods.imagesDir': 'A folder of images that nodes of one machine may share. Absent: below stateDir.',
  'pods.plainHttpRegistries': 'Registries (HOST:PORT) that speak plain HTTP; those on loopback do anyway.',
  dns: "Answers the cluster's names on this node.",
  'dns.addresses': 'Addresses on which the pods are answered.',
  'dns.upstreams': "Name servers for other names. Empty: those of the node's /etc/resolv.conf.",
  'dns.stubDomains': 'Domains with name servers of their own.',
  'dns.ttlSeconds': 'How long answers may be kept.',
  'dns.podRecords': 'Names of pods by address: none, all, or those of pods that exist.',
  'dns.refuseAtOnce':
    "Lifts the kernel's limits of ICMP errors on this node, so that pods notice at once when no agent answers.",
  loadBalancer: 'Announces addresses of Services of type LoadBalancer on the link.',
  'loadBalancer.interface':
    "The interface that leads to the clients. Absent: the one with the node's address.",
  'loadBalancer.leaseDurationMs': 'How long other nodes wait before they take over, in milliseconds.',
  'loadBalancer.pools':
    'Addresses for Services by name of the pool: networks, ranges, single addresses; `fairlead address-controller` gives them. Empty: another program assigns addresses.',
  healthzBindAddress: 'ADDRESS:PORT of /healthz and /livez. Absent: not served.',
  metricsBindAddress:
    'ADDRESS:PORT of /metrics, /proxyMode, /configz, /statusz and /flagz. Absent: not served.',
  bindFailureEnds: 'An address that is in use ends the agent; else it is tried again.',
};

/** Renders docs/configuration.md. */
export function configurationDocument(): string {
  const rows = recordFields(readAgent).map(({ path, type, fallback }) => {
    const shown = fallback === null || fallback === '""' ? '' : `\`${fallback}\``;
    return `| \`${path}\` | ${type} | ${shown} | ${FIELD_MEANINGS[path] ?? ''} |`;
  });
  return `${[
    '# Configuration of the agent',
    '',
    'Generated from `src/agent/configuration-document.ts` by `node tools/configuration-document.mjs`; do not edit.',
    '',
    '`fairlead agent --config FILE` reads one YAML document: kind AgentConfiguration, below, or KubeProxyConfiguration',
    '(kubeproxy.config.k8s.io/v1alpha1), which turns on the proxy alone. Wrong values are refused at the start, all at',
    'once; so are unknown fields of an AgentConfiguration. [install.md](install.md) tells how to install the agent.',
    '',
    '| field | type | default | meaning |',
    '| --- | --- | --- | --- |',
    ...rows,
  ].join('\n')}\n`;
}
