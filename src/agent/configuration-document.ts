import { readAgent } from './configuration.ts';
import { recordFields } from './field-recorder.ts';

/** The meaning of each field of an AgentConfiguration; every field of the reader has a row. */
export const FIELD_MEANINGS: Readonly<Record<string, string>> = {
  apiVersion: 'The version of this format.',
  kind: 'The kind of the document; KubeProxyConfiguration is read too.',
  nodeName: "The name of this machine's Node object. Absent: the variable NODE_NAME, else the host name.",
  nodeAddress:
    "The node's primary address. Absent: the first InternalIP of its Node object, else its first ExternalIP.",
  kubeconfig: "The kubeconfig file for the API server. Absent: the pod's service account.",
  bootstrapKubeconfig:
    'A kubeconfig with a bootstrap token: while `kubeconfig` is missing or unusable, the agent requests a client certificate and writes `kubeconfig` (absent: a file in `stateDir`). Needs `pods`.',
  server:
    'https://HOST:PORT of the API server, instead of the one in the kubeconfig or the pod. An agent in a pod needs it for its first start on a node: the Service address of the API server works only once an agent has programmed it.',
  servers:
    'https://HOST:PORT of several API servers, instead of the one in the kubeconfig or the pod, preferred ones first; they follow `server` if that is set. The agent uses the first that is ready, and moves to another one when it fails.',
  oomScoreAdj:
    "The agent's oom_score_adj: how readily the kernel kills it when memory is short. Absent: unchanged.",
  verbose: 'Logs what is programmed into the kernel.',
  clusterDomain: "The DNS domain of the cluster's names.",
  stateDir: 'The folder for state that must survive a restart of the agent.',
  proxy: 'Implements Services, in place of kube-proxy.',
  'proxy.mode': "The kernel mechanism; the Node's annotation fairlead.dev/mode overrides it.",
  'proxy.nodePortAddresses':
    'The node addresses on which node ports answer: CIDRs, and the words primary, localhost, all. Empty: primary in nftables and eBPF mode, all in the others.',
  'proxy.detectLocalMode': 'How packets from pods of this node are recognized.',
  'proxy.clusterCIDRs': 'Networks of pods, with detectLocalMode ClusterCIDR.',
  'proxy.bridgeInterface': 'The bridge of pods, with detectLocalMode BridgeInterface.',
  'proxy.interfaceNamePrefix':
    "The prefix of pods' interface names, with detectLocalMode InterfaceNamePrefix.",
  'proxy.masqueradeAll': 'Masquerades all traffic to cluster IPs.',
  'proxy.masqueradeBit': 'The bit of the packet mark that requests masquerading.',
  'proxy.localhostNodePorts': 'Node ports answer on loopback addresses of the node too (127.0.0.0/8, ::1).',
  'proxy.serviceCIDRs': 'Networks of cluster IPs, used while no ServiceCIDR object exists.',
  'proxy.ipvsScheduler': 'The default scheduler, for Services without their own.',
  'proxy.ipvsTimeouts': "Seconds after which IPVS expires idle connections; 0 keeps the kernel's value.",
  'proxy.ipvsTimeouts.tcp': 'Open TCP connections.',
  'proxy.ipvsTimeouts.tcpFin': 'TCP connections that are closing (FIN received).',
  'proxy.ipvsTimeouts.udp': 'UDP flows.',
  'proxy.ipvsExcludeCIDRs':
    'Networks whose virtual servers stay when the agent takes over from kube-proxy in IPVS mode.',
  'proxy.conntrack': "Connection tracking, as in kube-proxy's configuration; 0 keeps the kernel's value.",
  'proxy.conntrack.maxPerCore': 'The maximum number of tracked connections per CPU.',
  'proxy.conntrack.min': 'The lower bound of the maximum number of tracked connections.',
  'proxy.conntrack.tcpEstablishedTimeout': 'How long an idle TCP connection is tracked.',
  'proxy.conntrack.tcpCloseWaitTimeout': 'How long a half-closed TCP connection is tracked.',
  'proxy.conntrack.tcpBeLiberal': 'Accepts TCP segments outside the window.',
  'proxy.conntrack.udpTimeout': 'How long a UDP flow without replies is tracked.',
  'proxy.conntrack.udpStreamTimeout': 'How long a UDP flow with replies is tracked.',
  'proxy.minSyncPeriodMs': 'The minimum time between two updates of the kernel, in milliseconds.',
  'proxy.syncPeriodMs': "After this time without a change, the kernel's state is verified, in milliseconds.",
  network: "Connects this node's pods with the pods of other nodes.",
  'network.overlay':
    'routes: plain routes through the other nodes; vxlan: a tunnel; none: something else routes to the pods of other nodes, and the agent needs no list of Nodes.',
  'network.uplink':
    "The interface towards the other nodes. Absent: the one with the node's address, which is used in any case; another name is answered with the event UplinkNotUsed.",
  'network.masquerade':
    "Masquerades traffic from pods to addresses outside the cluster as the node's address.",
  'network.maxConnectionsPerPod':
    "The tracked connections that one pod may open; while it has more, its new ones are dropped. 0: as many as it likes. Absent: a quarter of the kernel's limit (`proxy.conntrack`).",
  'network.cni': 'Installs the CNI plugin for the container runtime.',
  'network.cni.binDir': 'The folder in which the container runtime looks for plugins.',
  'network.cni.chained':
    'Configurations of plugins that are called after this one, such as `{"type": "bandwidth", "capabilities": {"bandwidth": true}}`; their programs must be in `binDir`.',
  'network.cni.confDir': 'The folder in which the container runtime looks for network configurations.',
  policy:
    'Enforces NetworkPolicies on this node, with any proxy and pod network; enabled by default if network is set.',
  'policy.enforce': 'false removes the rules of an earlier agent.',
  pods: 'Runs pods, in place of a kubelet and its container runtime. Needs `network`.',
  'pods.cgroupParent': 'The parent control group of all pods.',
  'pods.maxPods': 'How many pods the node has room for; its pod network needs as many addresses.',
  'pods.port': "The port of the kubelet's HTTPS server.",
  'pods.nodeAddresses': 'Addresses that the Node object reports. Empty: nodeAddress, which must then be set.',
  'pods.serverTLSBootstrap':
    "Requests the kubelet server's certificate from the cluster (signer kubernetes.io/kubelet-serving), and renews it.",
  'pods.tlsCert': "PEM file of the kubelet server's certificate. Empty: self-signed.",
  'pods.tlsKey': "PEM file of the certificate's key.",
  'pods.clientCA':
    "PEM file of the certificate authority for client certificates. Empty: the kubeconfig's authority.",
  'pods.apiServiceHost':
    'The value of KUBERNETES_SERVICE_HOST in pods. Empty: the cluster IP of the Service default/kubernetes.',
  'pods.apiServicePort': 'The value of KUBERNETES_SERVICE_PORT in pods.',
  'pods.clusterDNS':
    "Name servers of pods, usually the cluster IP of the cluster's DNS. Empty: dns.addresses, else the node's name servers.",
  'pods.imagesDir':
    'The folder of images; nodes on one machine may share it. Absent: a folder below stateDir.',
  'pods.runtime': 'The bounds of the process that runs the pods, which the agent starts and supervises.',
  'pods.runtime.memoryMiB':
    'The largest memory, in MiB, of that process and its helpers, without the pods: beyond it the process is killed, started again, and adopts the pods. Half of it is for JavaScript objects.',
  'pods.runtime.answerMs':
    'After this time, in milliseconds, without an answer the process is killed and started again; after twice this time the Node is not ready.',
  'pods.plainHttpRegistries':
    'Registries (HOST:PORT) that are contacted over plain HTTP; registries on loopback always are.',
  'pods.maxImageBytes': 'The bytes of an unpacked image; a larger one is refused.',
  'pods.maxImageEntries': 'The files, folders, links and devices of an image.',
  'pods.maxImageSeconds': 'The time for unpacking an image.',
  dns: 'Serves cluster DNS on this node.',
  'dns.addresses': 'Addresses on which DNS is served to pods.',
  'dns.upstreams':
    "Name servers for names outside the cluster. Empty: the name servers in the node's /etc/resolv.conf.",
  'dns.stubDomains': 'Domains that are forwarded to other name servers.',
  'dns.ttlSeconds': 'The TTL of answers, in seconds.',
  'dns.podRecords': 'DNS names of pods by address: none, for any address, or for existing pods only.',
  'dns.refuseAtOnce':
    "Lifts the kernel's rate limits for ICMP errors on this node, so that pods notice at once when no agent answers.",
  'dns.fallbackService':
    "NAMESPACE/NAME of a Service: its endpoints answer the node's pods while no agent runs here, if the agents of other nodes have no addresses in the pod network. Absent, or without endpoints: the Service whose cluster IP is one of `addresses`.",
  loadBalancer: 'Announces addresses of Services of type LoadBalancer on the link.',
  'loadBalancer.interface':
    "The interface towards the clients. Absent: the interface with the node's address.",
  'loadBalancer.kubeconfig':
    "A kubeconfig for the Leases of announced addresses in fairlead-leases, which the admission plugin NodeRestriction forbids to a node's identity. Absent: the agent's own identity.",
  'loadBalancer.leaseDurationMs':
    'How long other nodes wait before they take over an address, in milliseconds.',
  'loadBalancer.pools':
    'Addresses for Services, by pool name; `fairlead address-controller` assigns them. Empty: another program assigns addresses.',
  'loadBalancer.pools.NAME.addresses': 'Networks, ranges and single addresses.',
  'loadBalancer.pools.NAME.autoAssign':
    'false: only Services that request an address of the pool, or name the pool in an annotation, get one.',
  'loadBalancer.pools.NAME.serviceAllocation': 'Restricts the pool to some Services.',
  'loadBalancer.pools.NAME.serviceAllocation.priority':
    'Pools with a lower number are used first, pools with 0 last.',
  'loadBalancer.pools.NAME.serviceAllocation.namespaces':
    'Names of namespaces; Services in these, or in a namespace that namespaceSelectors select, may use the pool.',
  'loadBalancer.pools.NAME.serviceAllocation.namespaceSelectors': 'Label selectors of namespaces.',
  ...selectorDescriptions('loadBalancer.pools.NAME.serviceAllocation.namespaceSelectors'),
  'loadBalancer.pools.NAME.serviceAllocation.serviceSelectors':
    'Label selectors of Services; one of them must match.',
  ...selectorDescriptions('loadBalancer.pools.NAME.serviceAllocation.serviceSelectors'),
  healthzBindAddress: 'ADDRESS:PORT of /healthz, /livez and /programmed. Absent: not served.',
  metricsBindAddress:
    'ADDRESS:PORT of /metrics, /metrics/slis, /proxyMode, /configz, /statusz and /flagz. Absent: not served.',
  commandsBindAddress:
    'ADDRESS:PORT at which commands of other machines are answered (remote-commands.md), usually `0.0.0.0:10268`. Needs `proxy`. Absent: not served.',
  bindFailureEnds: 'true: the agent exits if such an address is in use; false: it retries.',
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
    '(kubeproxy.config.k8s.io/v1alpha1), which enables the proxy only. Invalid values and unknown fields of an',
    'AgentConfiguration are rejected at startup, all in one message. [install.md](install.md) describes the installation.',
    '',
    '| field | type | default | meaning |',
    '| --- | --- | --- | --- |',
    ...rows,
  ].join('\n')}\n`;
}

function selectorDescriptions(path: string): Record<string, string> {
  return {
    [`${path}[].matchLabels`]: 'Labels and their values.',
    [`${path}[].matchExpressions`]: 'Further requirements on labels.',
    [`${path}[].matchExpressions[].key`]: 'The label.',
    [`${path}[].matchExpressions[].operator`]: 'How the value is compared.',
    [`${path}[].matchExpressions[].values`]: 'Values for In and NotIn.',
  };
}
