import type { Mode } from '../dataplane/dataplane.ts';
import { SCHEDULERS } from '../dataplane/ipvs/schedulers.ts';
import type { IpvsTimeouts } from '../kernel/ipvs/codec.ts';
import { type Cidr, familyOf, parseCidr } from '../lib/address.ts';
import { FairleadError } from '../lib/errors.ts';
import type { ConntrackSettings } from '../proxy/conntrack-settings.ts';
import {
  address,
  addressRange,
  bindProblem,
  cidr,
  domain,
  nameServer,
  nodePortAddress,
} from './address-fields.ts';
import { readConntrack } from './conntrack-fields.ts';
import { type FieldReader, fieldReader } from './field-reader.ts';
import { nodeNameOf, readKubeProxyConfiguration } from './kube-proxy-configuration.ts';
import { HEALTHZ_PORT, METRICS_PORT } from './kube-proxy-defaults.ts';

export const MODES: readonly Mode[] = ['nftables', 'iptables', 'userspace', 'ipvs', 'ebpf'];

/** What one node's agent does. Each part has its own switch, so that it can stand beside others' software. */
export interface AgentConfiguration {
  readonly nodeName: string;
  /** The node's primary address, whatever its Node object says; null: the Node object's. */
  readonly nodeAddress: string | null;
  /** Null: the pod's service account (in-cluster). */
  readonly kubeconfig: string | null;
  /** "https://10.0.0.1:6443": the API server, whatever kubeconfig or the pod's environment say; null: theirs. */
  readonly server: string | null;
  readonly clusterDomain: string;
  /** Folder for what must survive a restart of the agent. */
  readonly stateDir: string;
  /** How readily the kernel ends this process when memory is short (-1000 … 1000); null: as it was started. */
  readonly oomScoreAdj: number | null;
  /** The log says what is programmed. */
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
  /** An address of the health or metrics server that is in use ends the agent; else it is tried again. */
  readonly bindFailureEnds: boolean;
  /** Sentences for the log: what the document asks for and has no effect. */
  readonly warnings: readonly string[];
  /** What /configz answers: the document with its defaults, by the name of its API group. */
  readonly configz: Readonly<Record<string, unknown>>;
}

export interface ProxyConfiguration {
  readonly mode: Mode;
  /** CIDRs and the words "primary", "localhost", "all". */
  readonly nodePortAddresses: readonly string[];
  readonly detectLocalMode: 'ClusterCIDR' | 'NodeCIDR' | 'BridgeInterface' | 'InterfaceNamePrefix';
  readonly clusterCidrs: readonly Cidr[];
  readonly bridgeInterface: string;
  readonly interfaceNamePrefix: string;
  readonly masqueradeAll: boolean;
  readonly masqueradeBit: number;
  readonly localhostNodePorts: boolean;
  /** Where no ServiceCIDR object says so. */
  readonly serviceCidrs: readonly Cidr[];
  /** Of Services that name none. */
  readonly ipvsScheduler: string;
  /** Seconds after which IPVS forgets idle connections; 0: as the system has it. */
  readonly ipvsTimeouts: IpvsTimeouts;
  readonly conntrack: ConntrackSettings;
  /** Least time between two programmings, in milliseconds. */
  readonly minSyncPeriodMs: number;
  /** After this long without a change the kernel is compared with what it should be, in milliseconds. */
  readonly syncPeriodMs: number;
}

export interface NetworkConfiguration {
  readonly overlay: 'routes' | 'vxlan';
  /** The interface that leads to the other nodes. */
  readonly uplink: string;
  /** Whether pods reach addresses outside the cluster with their node's address as source; else others need routes to them. */
  readonly masquerade: boolean;
  /** Where container runtimes find plugins and network configurations; null: no CNI plugin is served. */
  readonly cni: { readonly binDir: string; readonly confDir: string } | null;
}

export interface PolicyConfiguration {
  /** Whether NetworkPolicies are enforced; false: what an earlier agent enforced is removed. */
  readonly enforce: boolean;
}

export interface PodsConfiguration {
  readonly cgroupParent: string;
  /** Port of the kubelet's HTTPS server. */
  readonly port: number;
  /** Addresses that the Node object reports. */
  readonly nodeAddresses: readonly string[];
  /** PEM files of the kubelet's server and of the authority that its clients must come from. */
  readonly tls: { readonly cert: string; readonly key: string; readonly clientCa: string };
  /** Address and port that pods find in KUBERNETES_SERVICE_HOST and _PORT. */
  readonly apiServiceHost: string;
  readonly apiServicePort: number;
  /** Folder of images, which nodes of one machine may share; null: below stateDir. */
  readonly imagesDir: string | null;
  /** Registries ("HOST:PORT") that speak plain HTTP; those on loopback do anyway. */
  readonly plainHttpRegistries: readonly string[];
}

export interface DnsConfiguration {
  /** Addresses on which this node answers the pods. */
  readonly addresses: readonly string[];
  /** Where names outside the cluster are asked for; empty: at the name servers of the node's /etc/resolv.conf. */
  readonly upstreams: readonly string[];
  /** Domain → name servers of its own. */
  readonly stubDomains: Readonly<Record<string, readonly string[]>>;
  readonly ttlSeconds: number;
  readonly podRecords: 'disabled' | 'insecure' | 'verified';
  /** Lifts the kernel's limits of ICMP errors on this node, so that pods notice at once when no agent answers. */
  readonly refuseAtOnce: boolean;
}

export interface LoadBalancerConfiguration {
  /** The interface that leads to the clients; null: the one that has the node's address. */
  readonly interface: string | null;
  /** How long the other nodes wait for one that announces addresses before they take over. */
  readonly leaseDurationMs: number;
  /**
   * Addresses for Services, by the pool's name: networks, ranges, single addresses. `address-controller` gives them.
   * Empty: another program assigns addresses.
   */
  readonly pools: Readonly<Record<string, readonly string[]>>;
}

/** Seconds; the kernel counts them in ticks, as a signed 32-bit number (ip_vs_set_timeout). */
const MAX_TIMEOUT = Math.floor((2 ** 31 - 1) / 1000);

export const API_VERSION = 'fairlead.dev/v1alpha1';

/**
 * Reads an agent's configuration: Fairlead's own kind, or kube-proxy's (kubeproxy.config.k8s.io/v1alpha1), which
 * turns on the proxy alone. Throws FairleadError that lists every field that is wrong, with what it should be.
 */
export function readConfiguration(
  document: unknown,
  environment: NodeJS.ProcessEnv = process.env,
): AgentConfiguration {
  const kind = (document as { kind?: unknown } | null)?.kind;
  if (kind === 'KubeProxyConfiguration') return readKubeProxyConfiguration(document, environment);
  if (kind !== 'AgentConfiguration') {
    throw new FairleadError(`kind: ${JSON.stringify(kind)} is not a configuration of an agent`, {
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

/** Reads the fields of an AgentConfiguration; problems stay with the reader. */
export function readAgent(
  root: FieldReader,
  environment: NodeJS.ProcessEnv = process.env,
): AgentConfiguration {
  root.choice('apiVersion', [API_VERSION], API_VERSION);
  root.text('kind', 'AgentConfiguration');
  const common = {
    nodeName: nodeNameOf(root.text('nodeName', ''), environment),
    nodeAddress: optionalAddress(root, 'nodeAddress'),
    kubeconfig: root.optionalText('kubeconfig'),
    server: root.optionalText('server'),
    clusterDomain: root.text('clusterDomain', 'cluster.local'),
    stateDir: root.text('stateDir', '/var/lib/fairlead/agent'),
    oomScoreAdj: root.optionalNumber('oomScoreAdj', -1000, 1000),
    verbose: root.flag('verbose', false),
    proxy: root.optionalObject('proxy', readProxy),
  };
  const network = root.optionalObject('network', readNetwork);
  const policy = root.optionalObject('policy', (reader) => ({ enforce: reader.flag('enforce', true) }));
  return {
    ...common,
    network,
    // Where the agent connects the pods, it enforces their policies, unless it is told not to.
    policy: policy ?? (network ? { enforce: true } : null),
    pods: root.optionalObject('pods', readPods),
    dns: root.optionalObject('dns', (reader) => ({
      addresses: reader.texts('addresses', [], address),
      upstreams: reader.texts('upstreams', [], nameServer),
      stubDomains: reader.listsByName('stubDomains', domain, nameServer),
      ttlSeconds: reader.number('ttlSeconds', 5, 0, 3600),
      podRecords: reader.choice('podRecords', ['disabled', 'insecure', 'verified'], 'disabled'),
      refuseAtOnce: reader.flag('refuseAtOnce', false),
    })),
    loadBalancer: root.optionalObject('loadBalancer', (reader) => ({
      interface: reader.optionalText('interface'),
      leaseDurationMs: reader.number('leaseDurationMs', 750, 300, 60_000),
      pools: reader.listsByName('pools', () => null, addressRange),
    })),
    healthzBindAddress: bindAddress(root, 'healthzBindAddress', HEALTHZ_PORT),
    metricsBindAddress: bindAddress(root, 'metricsBindAddress', METRICS_PORT),
    bindFailureEnds: root.flag('bindFailureEnds', false),
    warnings: [],
    configz: {},
  };
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
    conntrack: readConntrack(reader),
    minSyncPeriodMs: reader.number('minSyncPeriodMs', 0, 0, 3_600_000),
    syncPeriodMs: reader.number('syncPeriodMs', 30_000, 100, 86_400_000),
  };
}

function readNetwork(reader: FieldReader): NetworkConfiguration {
  return {
    overlay: reader.choice('overlay', ['routes', 'vxlan'], 'vxlan'),
    uplink: reader.text('uplink', 'eth0'),
    masquerade: reader.flag('masquerade', true),
    cni: reader.optionalObject('cni', (fields) => ({
      binDir: fields.text('binDir', '/opt/cni/bin'),
      confDir: fields.text('confDir', '/etc/cni/net.d'),
    })),
  };
}

function readPods(reader: FieldReader): PodsConfiguration {
  return {
    cgroupParent: reader.text('cgroupParent', '/fairlead'),
    port: reader.number('port', 10250, 1, 65535),
    nodeAddresses: reader.texts('nodeAddresses', [], address),
    tls: {
      cert: reader.text('tlsCert', ''),
      key: reader.text('tlsKey', ''),
      clientCa: reader.text('clientCA', ''),
    },
    apiServiceHost: reader.text('apiServiceHost', ''),
    apiServicePort: reader.number('apiServicePort', 443, 1, 65535),
    imagesDir: reader.optionalText('imagesDir'),
    plainHttpRegistries: reader.texts('plainHttpRegistries', []),
  };
}

function optionalAddress(reader: FieldReader, field: string): string | null {
  const text = reader.optionalText(field);
  const wrong = text === null ? null : address(text);
  if (wrong !== null) reader.problem(field, `${JSON.stringify(text)} ${wrong}`);
  return text;
}

/** An address without a port gets the usual one. */
function bindAddress(reader: FieldReader, field: string, port: number): string | null {
  const text = reader.optionalText(field);
  if (text === null) return null;
  const family = familyOf(text);
  if (family !== null) return family === 'ipv6' ? `[${text}]:${port}` : `${text}:${port}`;
  const wrong = bindProblem(text);
  if (wrong !== null) reader.problem(field, `${JSON.stringify(text)} ${wrong}`);
  return text;
}

function cidrs(reader: FieldReader, field: string): Cidr[] {
  return reader.texts(field, [], cidr).flatMap((text) => parseCidr(text) ?? []);
}
