import { join } from 'node:path';
import type { Mode } from '../dataplane/dataplane.ts';
import { SCHEDULERS } from '../dataplane/ipvs/schedulers.ts';
import { type Cidr, familyOf, hostPort, parseCidr } from '../lib/address.ts';
import { FairleadError } from '../lib/errors.ts';
import { CNI_TYPE } from '../network/cni/installation.ts';
import { LAYER_LIMITS } from '../runtime/images/layer-limits.ts';
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
import type {
  AgentConfiguration,
  NetworkConfiguration,
  PodsConfiguration,
  ProxyConfiguration,
} from './agent-configuration.ts';
import { COMMAND_PORT } from './command-rights.ts';
import { readConntrack } from './conntrack-fields.ts';
import { type FieldReader, fieldReader } from './field-reader.ts';
import { nodeNameOf, readKubeProxyConfiguration } from './kube-proxy-configuration.ts';
import { HEALTHZ_PORT, METRICS_PORT } from './kube-proxy-defaults.ts';
import { readPools } from './load-balancer-pools.ts';

export const MODES: readonly Mode[] = ['nftables', 'iptables', 'userspace', 'ipvs', 'ebpf'];

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
