import { join } from 'node:path';
import type { Mode } from '../dataplane/dataplane.ts';
import { SCHEDULERS } from '../dataplane/ipvs/schedulers.ts';
import type { IpvsTimeouts } from '../kernel/ipvs/codec.ts';
import { type Cidr, familyOf, hostPort, parseCidr } from '../lib/address.ts';
import { FairleadError } from '../lib/errors.ts';
import { CNI_TYPE, type CniInstallation } from '../network/cni/installation.ts';
import type { ConntrackSettings } from '../proxy/conntrack-settings.ts';
import { LAYER_LIMITS, type LayerLimits } from '../runtime/images/layer-limits.ts';
import {
  address,
  bindProblem,
  cidr,
  domain,
  nameServer,
  nodePortAddress,
  serverUrl,
  serviceName,
} from './address-fields.ts';
import { COMMAND_PORT } from './command-rights.ts';
import { readConntrack } from './conntrack-fields.ts';
import { type FieldReader, fieldReader } from './field-reader.ts';
import { nodeNameOf, readKubeProxyConfiguration } from './kube-proxy-configuration.ts';
import { HEALTHZ_PORT, METRICS_PORT } from './kube-proxy-defaults.ts';
import { type PoolConfiguration, readPools } from './load-balancer-pools.ts';

export const MODES: readonly Mode[] = ['nftables', 'iptables', 'userspace', 'ipvs', 'ebpf'];

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

/** Seconds; the kernel converts them to ticks in a signed 32-bit number (ip_vs_set_timeout). */
const MAX_TIMEOUT = Math.floor((2 ** 31 - 1) / 1000);

export const API_VERSION = 'fairlead.dev/v1alpha1';

/**
 * Reads an agent's configuration: Fairlead's own kind, or kube-proxy's (kubeproxy.config.k8s.io/v1alpha1), which
 * enables the proxy only. Throws FairleadError that lists every wrong field and its valid values.
 */
export function readConfiguration(
  document: unknown,
  environment: NodeJS.ProcessEnv = process.env,
): AgentConfiguration {
  const kind = (document as { kind?: unknown } | null)?.kind;
  if (kind === 'KubeProxyConfiguration') return readKubeProxyConfiguration(document, environment);
  if (kind !== 'AgentConfiguration') {
    throw new FairleadError(`kind: ${JSON.stringify(kind)} is not an agent configuration`, {
      op: 'read configuration',
      code: 'bad-config',
      hint: `use kind: AgentConfiguration (apiVersion: ${API_VERSION}) or kind: KubeProxyConfiguration`,
    });
  }
  const root = fieldReader(document);
  const configuration = readAgent(root, environment);
  root.finish('read configuration');
  const { warnings: _, configz: __, ...fields } = configuration;
  return { ...configuration, configz: { 'fairlead.dev': fields } };
}

/** Reads the fields of an AgentConfiguration; the reader collects the problems. */
export function readAgent(
  root: FieldReader,
  environment: NodeJS.ProcessEnv = process.env,
): AgentConfiguration {
  root.choice('apiVersion', [API_VERSION], API_VERSION);
  root.text('kind', 'AgentConfiguration');
  const common = {
    nodeName: nodeNameOf(root.text('nodeName', ''), environment),
    nodeAddress: optionalField(root, 'nodeAddress', address),
    kubeconfig: root.optionalText('kubeconfig'),
    bootstrapKubeconfig: root.optionalText('bootstrapKubeconfig'),
    server: root.optionalText('server'),
    servers: root.texts('servers', [], serverUrl),
    clusterDomain: root.text('clusterDomain', 'cluster.local'),
    stateDir: root.text('stateDir', '/var/lib/fairlead/agent'),
    oomScoreAdj: root.optionalNumber('oomScoreAdj', -1000, 1000),
    verbose: root.flag('verbose', false),
    proxy: root.optionalObject('proxy', readProxy),
  };
  const network = root.optionalObject('network', readNetwork);
  const policy = root.optionalObject('policy', (reader) => ({ enforce: reader.flag('enforce', true) }));
  const pods = root.optionalObject('pods', readPods);
  if (common.bootstrapKubeconfig !== null && pods === null)
    root.problem('bootstrapKubeconfig', 'needs pods: only an agent that runs pods joins as a node');
  if (pods !== null && pods.nodeAddresses.length === 0 && common.nodeAddress === null)
    root.problem(
      'pods.nodeAddresses',
      'needs an address, or nodeAddress: the agent registers the Node with it',
    );
  const configuration = {
    ...common,
    ...joining(common),
    network,
    // With the pod network, policies are enforced by default.
    policy: policy ?? (network ? { enforce: true } : null),
    pods: pods && withAddress(pods, common.nodeAddress),
    dns: root.optionalObject('dns', (reader) => ({
      addresses: reader.texts('addresses', [], address),
      upstreams: reader.texts('upstreams', [], nameServer),
      stubDomains: reader.listsByName('stubDomains', domain, nameServer),
      ttlSeconds: reader.number('ttlSeconds', 5, 0, 3600),
      podRecords: reader.choice('podRecords', ['disabled', 'insecure', 'verified'], 'disabled'),
      refuseAtOnce: reader.flag('refuseAtOnce', false),
      fallbackService: optionalField(reader, 'fallbackService', serviceName),
    })),
    loadBalancer: root.optionalObject('loadBalancer', (reader) => ({
      interface: reader.optionalText('interface'),
      kubeconfig: reader.optionalText('kubeconfig'),
      leaseDurationMs: reader.number('leaseDurationMs', 750, 300, 60_000),
      pools: readPools(reader, 'pools'),
    })),
    healthzBindAddress: bindAddress(root, 'healthzBindAddress', HEALTHZ_PORT),
    metricsBindAddress: bindAddress(root, 'metricsBindAddress', METRICS_PORT),
    commandsBindAddress: bindAddress(root, 'commandsBindAddress', COMMAND_PORT),
    bindFailureEnds: root.flag('bindFailureEnds', false),
    configz: {},
  };
  return { ...configuration, warnings: idleFields(configuration) };
}

/** Returns warnings about fields that have no effect because another one is absent. */
function idleFields({
  pods,
  network,
  proxy,
  commandsBindAddress,
}: Pick<AgentConfiguration, 'pods' | 'network' | 'proxy' | 'commandsBindAddress'>): string[] {
  return [
    // `cleanup --config` reads such a document for the control group of the pods.
    ...(pods !== null && network === null
      ? ['pods has no effect without network, which connects the pods: none is started']
      : []),
    ...(commandsBindAddress !== null && proxy === null
      ? ['commandsBindAddress has no effect without proxy: commands ask about Services']
      : []),
  ];
}

/** Returns where the kubeconfig of a node that joins is: the configured file, or one in its state folder. */
export function joining({
  kubeconfig,
  bootstrapKubeconfig,
  stateDir,
}: Pick<AgentConfiguration, 'kubeconfig' | 'bootstrapKubeconfig' | 'stateDir'>): Pick<
  AgentConfiguration,
  'kubeconfig'
> {
  return { kubeconfig: kubeconfig ?? (bootstrapKubeconfig === null ? null : join(stateDir, 'kubeconfig')) };
}

function withAddress(pods: PodsConfiguration, address: string | null): PodsConfiguration {
  return pods.nodeAddresses.length > 0 || address === null ? pods : { ...pods, nodeAddresses: [address] };
}

function readProxy(reader: FieldReader): ProxyConfiguration {
  return {
    mode: reader.choice('mode', MODES, 'nftables'),
    nodePortAddresses: reader.texts('nodePortAddresses', [], nodePortAddress),
    detectLocalMode: reader.choice(
      'detectLocalMode',
      ['ClusterCIDR', 'NodeCIDR', 'BridgeInterface', 'InterfaceNamePrefix'],
      'ClusterCIDR',
    ),
    clusterCidrs: cidrs(reader, 'clusterCIDRs'),
    bridgeInterface: reader.text('bridgeInterface', ''),
    interfaceNamePrefix: reader.text('interfaceNamePrefix', ''),
    masqueradeAll: reader.flag('masqueradeAll', false),
    masqueradeBit: reader.number('masqueradeBit', 14, 0, 31),
    localhostNodePorts: reader.flag('localhostNodePorts', true),
    serviceCidrs: cidrs(reader, 'serviceCIDRs'),
    ipvsScheduler: reader.choice('ipvsScheduler', Object.keys(SCHEDULERS), 'rr'),
    ipvsTimeouts: reader.object('ipvsTimeouts', (timeouts) => ({
      tcp: timeouts.number('tcp', 0, 0, MAX_TIMEOUT),
      tcpFin: timeouts.number('tcpFin', 0, 0, MAX_TIMEOUT),
      udp: timeouts.number('udp', 0, 0, MAX_TIMEOUT),
    })),
    ipvsExcludedCidrs: cidrs(reader, 'ipvsExcludeCIDRs'),
    conntrack: readConntrack(reader),
    minSyncPeriodMs: reader.number('minSyncPeriodMs', 0, 0, 3_600_000),
    syncPeriodMs: reader.number('syncPeriodMs', 30_000, 100, 86_400_000),
  };
}

function readNetwork(reader: FieldReader): NetworkConfiguration {
  return {
    overlay: reader.choice('overlay', ['routes', 'vxlan', 'none'], 'vxlan'),
    uplink: reader.optionalText('uplink'),
    masquerade: reader.flag('masquerade', true),
    maxConnectionsPerPod: reader.optionalNumber('maxConnectionsPerPod', 0, 2 ** 31 - 1),
    cni: reader.optionalObject('cni', (fields) => ({
      binDir: fields.text('binDir', '/opt/cni/bin'),
      confDir: fields.text('confDir', '/etc/cni/net.d'),
      chained: fields.plainObjects('chained', chainedPluginProblem),
    })),
  };
}

/** Returns the problem of a plugin's configuration in a list of plugins, or null. */
function chainedPluginProblem({ type }: Readonly<Record<string, unknown>>): string | null {
  if (typeof type !== 'string' || !/^[\w.-]+$/.test(type))
    return "needs a type: the name of the plugin's program";
  return type === CNI_TYPE ? 'is the plugin that comes first' : null;
}

function readPods(reader: FieldReader): PodsConfiguration {
  const serverTLSBootstrap = reader.flag('serverTLSBootstrap', false);
  const cert = reader.text('tlsCert', '');
  const key = reader.text('tlsKey', '');
  if (serverTLSBootstrap && cert + key !== '')
    reader.problem('serverTLSBootstrap', 'excludes tlsCert and tlsKey');
  if ((cert === '') !== (key === ''))
    reader.problem(cert === '' ? 'tlsCert' : 'tlsKey', 'is missing: a certificate needs its key');
  return {
    cgroupParent: reader.text('cgroupParent', '/fairlead'),
    // A bridge has at most 1,024 ports (BR_MAX_PORTS).
    maxPods: reader.number('maxPods', 250, 1, 1000),
    port: reader.number('port', 10250, 1, 65535),
    nodeAddresses: reader.texts('nodeAddresses', [], address),
    tls: {
      cert,
      key,
      clientCa: reader.text('clientCA', ''),
    },
    serverTLSBootstrap,
    apiServiceHost: reader.text('apiServiceHost', ''),
    apiServicePort: reader.number('apiServicePort', 443, 1, 65535),
    imagesDir: reader.optionalText('imagesDir'),
    clusterDNS: reader.texts('clusterDNS', [], address),
    plainHttpRegistries: reader.texts('plainHttpRegistries', []),
    imageLimits: {
      bytes: reader.number('maxImageBytes', LAYER_LIMITS.bytes, 1, Number.MAX_SAFE_INTEGER),
      entries: reader.number('maxImageEntries', LAYER_LIMITS.entries, 1, 100_000_000),
      seconds: reader.number('maxImageSeconds', LAYER_LIMITS.seconds, 1, 86_400),
    },
    runtime: reader.object('runtime', (bounds) => ({
      memoryMiB: bounds.number('memoryMiB', 512, 16, 1_048_576),
      answerMs: bounds.number('answerMs', 30_000, 500, 3_600_000),
    })),
  };
}

function optionalField(
  reader: FieldReader,
  field: string,
  problemOf: (text: string) => string | null,
): string | null {
  const text = reader.optionalText(field);
  const wrong = text === null ? null : problemOf(text);
  if (wrong !== null) reader.problem(field, `${JSON.stringify(text)} ${wrong}`);
  return text;
}

/** Appends the default port to an address without a port. */
function bindAddress(reader: FieldReader, field: string, port: number): string | null {
  const text = reader.optionalText(field);
  if (text === null) return null;
  if (familyOf(text) !== null) return hostPort({ ip: text, port });
  const wrong = bindProblem(text);
  if (wrong !== null) reader.problem(field, `${JSON.stringify(text)} ${wrong}`);
  return text;
}

function cidrs(reader: FieldReader, field: string): Cidr[] {
  return reader.texts(field, [], cidr).flatMap((text) => parseCidr(text) ?? []);
}
