import type { Mode } from '../dataplane/dataplane.ts';
import type { IpvsTimeouts } from '../kernel/ipvs/codec.ts';
import type { Cidr } from '../lib/address.ts';
import type { CniInstallation } from '../network/cni/installation.ts';
import type { ConntrackSettings } from '../proxy/conntrack-settings.ts';
import type { LayerLimits } from '../runtime/images/layer-limits.ts';
import type { PoolConfiguration } from './load-balancer-pools.ts';

/**
 * The configuration of one node's agent. Each part is enabled separately, so that it can run alongside
 * other software.
 */
export interface AgentConfiguration {
  readonly nodeName: string;
  /** The node's primary address; null: from the Node object. */
  readonly nodeAddress: string | null;
  /** Null: the pod's service account (in-cluster). */
  readonly kubeconfig: string | null;
  /** A kubeconfig with a bootstrap token, for a node that joins the cluster; null: it uses `kubeconfig` only. */
  readonly bootstrapKubeconfig: string | null;
  /** "https://10.0.0.1:6443": the API server; null: from the kubeconfig or the pod's environment. */
  readonly server: string | null;
  /** Addresses of further API servers, in the order of preference. */
  readonly servers: readonly string[];
  readonly clusterDomain: string;
  /** The folder for state that must survive a restart of the agent. */
  readonly stateDir: string;
  /** oom_score_adj of this process (-1000 … 1000); null: unchanged. */
  readonly oomScoreAdj: number | null;
  /** Logs what is programmed into the kernel. */
  readonly verbose: boolean;
  readonly proxy: ProxyConfiguration | null;
  readonly network: NetworkConfiguration | null;
  readonly policy: PolicyConfiguration | null;
  readonly pods: PodsConfiguration | null;
  readonly dns: DnsConfiguration | null;
  readonly loadBalancer: LoadBalancerConfiguration | null;
  /** "address:port" of the health and metrics servers; null: not served. */
  readonly healthzBindAddress: string | null;
  readonly metricsBindAddress: string | null;
  /** "address:port" of the port for commands from other machines; null: not served. */
  readonly commandsBindAddress: string | null;
  /** Whether the agent exits if the address of the health or metrics server is in use, instead of retrying. */
  readonly bindFailureEnds: boolean;
  /** Warnings for the log about settings without effect. */
  readonly warnings: readonly string[];
  /** The response of /configz: the document with its defaults, by the name of its API group. */
  readonly configz: Readonly<Record<string, unknown>>;
}

export interface ProxyConfiguration {
  readonly mode: Mode;
  /** CIDRs and the keywords "primary", "localhost", "all". */
  readonly nodePortAddresses: readonly string[];
  readonly detectLocalMode: 'ClusterCIDR' | 'NodeCIDR' | 'BridgeInterface' | 'InterfaceNamePrefix';
  readonly clusterCidrs: readonly Cidr[];
  readonly bridgeInterface: string;
  readonly interfaceNamePrefix: string;
  readonly masqueradeAll: boolean;
  readonly masqueradeBit: number;
  readonly localhostNodePorts: boolean;
  /** Used while no ServiceCIDR object exists. */
  readonly serviceCidrs: readonly Cidr[];
  /** The scheduler of Services that do not set one. */
  readonly ipvsScheduler: string;
  /** Seconds after which IPVS expires idle connections; 0: the kernel's value. */
  readonly ipvsTimeouts: IpvsTimeouts;
  /** Networks whose virtual servers stay when the node is taken over from kube-proxy. */
  readonly ipvsExcludedCidrs: readonly Cidr[];
  readonly conntrack: ConntrackSettings;
  /** Minimum time between two updates of the kernel, in milliseconds. */
  readonly minSyncPeriodMs: number;
  /** After this time without a change, the kernel's state is verified, in milliseconds. */
  readonly syncPeriodMs: number;
}

export interface NetworkConfiguration {
  /** none: the pods of other nodes are reached by routes that others write. */
  readonly overlay: 'routes' | 'vxlan' | 'none';
  /** The interface towards the other nodes; null: the one with the node's address. */
  readonly uplink: string | null;
  /**
   * Whether traffic from pods to addresses outside the cluster is masqueraded; otherwise other hosts need
   * routes to the pods.
   */
  readonly masquerade: boolean;
  /** The tracked connections that one pod may open; 0: as many as it likes; null: a quarter of the kernel's limit. */
  readonly maxConnectionsPerPod: number | null;
  /** Where the CNI plugin is installed, and which plugins follow it; null: it is not installed. */
  readonly cni: Omit<CniInstallation, 'socket'> | null;
}

export interface PolicyConfiguration {
  /** Whether NetworkPolicies are enforced; false: the rules of an earlier agent are removed. */
  readonly enforce: boolean;
}

export interface PodsConfiguration {
  readonly cgroupParent: string;
  /** How many pods the node has room for; its pod network must have as many addresses. */
  readonly maxPods: number;
  /** Port of the kubelet's HTTPS server. */
  readonly port: number;
  /** Addresses that the Node object reports. */
  readonly nodeAddresses: readonly string[];
  /**
   * PEM files of the kubelet's server certificate and key (empty: self-signed), and of the authority for client certificates
   * (empty: the kubeconfig's).
   */
  readonly tls: { readonly cert: string; readonly key: string; readonly clientCa: string };
  /** Whether the cluster's signer issues the certificate of the kubelet's server. */
  readonly serverTLSBootstrap: boolean;
  /** The values of KUBERNETES_SERVICE_HOST and _PORT in pods. */
  readonly apiServiceHost: string;
  readonly apiServicePort: number;
  /** The folder of images, which nodes on one machine may share; null: below stateDir. */
  readonly imagesDir: string | null;
  /** Name servers of pods; empty: the addresses of the part dns, else the node's name servers. */
  readonly clusterDNS: readonly string[];
  /** Registries ("HOST:PORT") that are contacted over plain HTTP; registries on loopback always are. */
  readonly plainHttpRegistries: readonly string[];
  readonly imageLimits: Pick<LayerLimits, 'bytes' | 'entries' | 'seconds'>;
  /** The bounds of the process that runs the pods. */
  readonly runtime: {
    /** The largest memory of that process and of its helpers, without the pods. */
    readonly memoryMiB: number;
    /** After this time without an answer it is killed and started again. */
    readonly answerMs: number;
  };
}

export interface DnsConfiguration {
  /** Addresses on which DNS is served to pods. */
  readonly addresses: readonly string[];
  /** Name servers for names outside the cluster; empty: the name servers in the node's /etc/resolv.conf. */
  readonly upstreams: readonly string[];
  /** Domain → its name servers. */
  readonly stubDomains: Readonly<Record<string, readonly string[]>>;
  readonly ttlSeconds: number;
  readonly podRecords: 'disabled' | 'insecure' | 'verified';
  /** Lifts the kernel's rate limits for ICMP errors on this node, so that pods notice at once when no agent answers. */
  readonly refuseAtOnce: boolean;
  /**
   * "NAMESPACE/NAME" of the Service whose endpoints answer this node's pods while no agent runs here and no other node can;
   * null: the Service with one of `addresses` as its cluster IP.
   */
  readonly fallbackService: string | null;
}

export interface LoadBalancerConfiguration {
  /** The interface towards the clients; null: the interface with the node's address. */
  readonly interface: string | null;
  /** The identity for the Leases of announced addresses; null: that of the agent. */
  readonly kubeconfig: string | null;
  /** How long other nodes wait before they take over an address. */
  readonly leaseDurationMs: number;
  /**
   * Addresses for Services, by pool name: networks, ranges, single addresses. `address-controller` assigns them.
   * Empty: another program assigns addresses.
   */
  readonly pools: Readonly<Record<string, PoolConfiguration>>;
}
