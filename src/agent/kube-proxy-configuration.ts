import { hostname } from 'node:os';
import type { Mode } from '../dataplane/dataplane.ts';
import { SCHEDULERS } from '../dataplane/ipvs/schedulers.ts';
import { parseCidr } from '../lib/address.ts';
import { bindProblem, cidr } from './address-fields.ts';
import type { AgentConfiguration } from './agent-configuration.ts';
import { readConntrack } from './conntrack-fields.ts';
import { type FieldReader, fieldReader } from './field-reader.ts';
import { changedFields, withKubeProxyDefaults } from './kube-proxy-defaults.ts';

/** kube-proxy's modes on Linux, and the two that only Fairlead has. */
const MODE_NAMES: readonly Mode[] = ['iptables', 'ipvs', 'nftables', 'userspace', 'ebpf'];
const DETECT_LOCAL = ['ClusterCIDR', 'NodeCIDR', 'BridgeInterface', 'InterfaceNamePrefix'] as const;
/** int32, for unused sections, whose bounds kube-proxy does not check. */
const MAX_INT32 = 2 ** 31 - 1;
/** The minimum verbosity at which the agent logs what it programs. */
export const DEBUG_VERBOSITY = 4;

/**
 * Reads kube-proxy's configuration (kubeproxy.config.k8s.io/v1alpha1 KubeProxyConfiguration), so that a
 * node's existing file works: only the proxy is enabled. Defaults and bounds are those of Kubernetes 1.36.
 * As in kube-proxy, an unknown field causes a warning; so does a field without effect here. `environment`
 * may have NODE_NAME. Throws FairleadError that names every wrong field.
 */
export function readKubeProxyConfiguration(
  document: unknown,
  environment: NodeJS.ProcessEnv = process.env,
): AgentConfiguration {
  const full = withKubeProxyDefaults(document as Readonly<Record<string, unknown>>);
  const root = fieldReader(full);
  root.text('kind', '');
  root.choice('apiVersion', ['kubeproxy.config.k8s.io/v1alpha1'], 'kubeproxy.config.k8s.io/v1alpha1');
  root.ignore('featureGates', 'winkernel', 'windowsRunAsService', 'portRange', 'configSyncPeriod');
  if (root.duration('configSyncPeriod', 0) <= 0) root.problem('configSyncPeriod', 'must be greater than 0');
  root.choice('showHiddenMetricsForVersion', ['', '1.35'], '');
  const withoutEffect = [
    ...['portRange', 'configSyncPeriod', 'enableProfiling', 'winkernel'].flatMap((field) =>
      changedFields(full, field),
    ),
    ...changedFields(full, 'clientConnection').filter((field) => field !== 'clientConnection.kubeconfig'),
    // The log is one stream of JSON lines, written at once.
    ...changedFields(full, 'logging').filter((field) => field === 'logging.options'),
    ...(hasItems((full['logging'] as { vmodule?: unknown } | null)?.vmodule) ? ['logging.vmodule'] : []),
    ...Object.keys((full['featureGates'] ?? {}) as object).map((gate) => `featureGates.${gate}`),
    ...(full['windowsRunAsService'] === true ? ['windowsRunAsService'] : []),
  ];
  root.flag('enableProfiling', false);
  const kubeconfig = root.object('clientConnection', (reader) => {
    reader.ignore('acceptContentTypes', 'contentType', 'qps', 'burst');
    return reader.optionalText('kubeconfig');
  });
  const verbosity = root.object('logging', (reader) => {
    reader.ignore('flushFrequency', 'options', 'vmodule');
    reader.choice('format', ['text', 'json'], 'text');
    return reader.number('verbosity', 0, 0, MAX_INT32);
  });
  const mode = root.choice('mode', MODE_NAMES, 'iptables');
  const sections = {
    iptables: readSection(root, 'iptables', mode === 'iptables' || mode === 'ipvs'),
    nftables: readSection(root, 'nftables', mode === 'nftables'),
    ipvs: readSection(root, 'ipvs', mode === 'ipvs'),
  };
  // In IPVS mode, masqueradeAll and masqueradeBit come from the section iptables (cmd/kube-proxy/app/server_linux.go).
  const masquerade = mode === 'nftables' ? sections.nftables : sections.iptables;
  const { minSyncPeriodMs, syncPeriodMs } = mode === 'ipvs' ? sections.ipvs : masquerade;
  const bindAddress = root.text('bindAddress', '0.0.0.0');
  if (bindProblem(`[${bindAddress}]:1`) !== null) {
    root.problem('bindAddress', `${JSON.stringify(bindAddress)} is not an IP address`);
  }
  const detectLocalMode = root.choice('detectLocalMode', DETECT_LOCAL, 'ClusterCIDR');
  const detectLocal = root.object('detectLocal', (reader) => ({
    bridgeInterface: readDetection(reader, 'bridgeInterface', detectLocalMode === 'BridgeInterface'),
    interfaceNamePrefix: readDetection(
      reader,
      'interfaceNamePrefix',
      detectLocalMode === 'InterfaceNamePrefix',
    ),
  }));
  const configuration: AgentConfiguration = {
    nodeName: nodeNameOf(root.text('hostnameOverride', ''), environment),
    nodeAddress: ['0.0.0.0', '::'].includes(bindAddress) ? null : bindAddress,
    kubeconfig,
    bootstrapKubeconfig: null,
    server: null,
    servers: [],
    clusterDomain: 'cluster.local',
    stateDir: '/var/lib/fairlead/agent',
    oomScoreAdj: root.number('oomScoreAdj', -999, -1000, 1000),
    verbose: verbosity >= DEBUG_VERBOSITY,
    proxy: {
      mode,
      nodePortAddresses: readNodePortAddresses(root),
      detectLocalMode,
      clusterCidrs: readClusterCidrs(root),
      ...detectLocal,
      masqueradeAll: masquerade.masqueradeAll,
      masqueradeBit: masquerade.masqueradeBit,
      localhostNodePorts: sections.iptables.localhostNodePorts,
      serviceCidrs: [],
      ipvsScheduler: sections.ipvs.scheduler,
      ipvsTimeouts: sections.ipvs.timeouts,
      ipvsExcludedCidrs: sections.ipvs.excludedCidrs,
      conntrack: readConntrack(root),
      minSyncPeriodMs,
      syncPeriodMs,
    },
    network: null,
    pods: null,
    policy: null,
    dns: null,
    loadBalancer: null,
    healthzBindAddress: readBindAddress(root, 'healthzBindAddress'),
    metricsBindAddress: readBindAddress(root, 'metricsBindAddress'),
    commandsBindAddress: null,
    bindFailureEnds: root.flag('bindAddressHardFail', false),
    warnings: [],
    configz: { 'kubeproxy.config.k8s.io': full },
  };
  const unknown = root.unknownFields();
  root.ignoreUnknown();
  root.finish('read configuration');
  return {
    ...configuration,
    warnings: [
      ...(withoutEffect.length > 0
        ? [`configuration fields without effect here: ${withoutEffect.join(', ')}`]
        : []),
      ...(unknown.length > 0 ? [`unknown configuration fields: ${unknown.join(', ')}`] : []),
    ],
  };
}

/**
 * Returns the name of this machine's Node object: the configured one, otherwise the variable NODE_NAME,
 * otherwise the host name.
 */
export function nodeNameOf(configured: string, environment: NodeJS.ProcessEnv): string {
  return (configured.trim() || environment['NODE_NAME']?.trim() || hostname()).toLowerCase();
}

function readSection(root: FieldReader, field: 'iptables' | 'nftables' | 'ipvs', isActive: boolean) {
  return root.object(field, (reader) => {
    const isIpvs = field === 'ipvs';
    const syncPeriodMs = reader.duration('syncPeriod', 30_000);
    const minSyncPeriodMs = reader.duration('minSyncPeriod', 0);
    if (isActive && minSyncPeriodMs > syncPeriodMs)
      reader.problem('syncPeriod', 'must be greater than or equal to minSyncPeriod');
    // ARP requests for Services' addresses never answered.
    if (isIpvs) reader.flag('strictARP', false);
    const excluded = isIpvs ? reader.texts('excludeCIDRs', [], isActive ? cidr : undefined) : [];
    return {
      excludedCidrs: excluded.flatMap((text) => parseCidr(text) ?? []),
      scheduler: isIpvs ? reader.choice('scheduler', ['', ...Object.keys(SCHEDULERS)], '') || 'rr' : 'rr',
      timeouts: {
        tcp: isIpvs ? seconds(reader, 'tcpTimeout') : 0,
        tcpFin: isIpvs ? seconds(reader, 'tcpFinTimeout') : 0,
        udp: isIpvs ? seconds(reader, 'udpTimeout') : 0,
      },
      masqueradeBit: isIpvs
        ? 14
        : reader.number('masqueradeBit', 14, isActive ? 0 : -MAX_INT32, isActive ? 31 : MAX_INT32),
      masqueradeAll: isIpvs ? false : reader.flag('masqueradeAll', false),
      localhostNodePorts: field === 'iptables' ? reader.flag('localhostNodePorts', true) : true,
      syncPeriodMs: syncPeriodMs || 30_000,
      minSyncPeriodMs,
    };
  });
}

const hasItems = (value: unknown): boolean => Array.isArray(value) && value.length > 0;

function readDetection(reader: FieldReader, field: string, isNeeded: boolean): string {
  const value = reader.text(field, '');
  if (isNeeded && value === '') reader.problem(field, 'must not be empty');
  return value;
}

function readNodePortAddresses(root: FieldReader): string[] {
  const entries = root.texts('nodePortAddresses', [], (item) => (item === 'primary' ? null : cidr(item)));
  if (entries.length > 1 && entries.includes('primary')) {
    root.problem('nodePortAddresses', 'must be only "primary", or networks');
  }
  return entries;
}

function readClusterCidrs(root: FieldReader) {
  const text = root.text('clusterCIDR', '');
  const cidrs = (text === '' ? [] : text.split(',')).flatMap((part) => {
    const wrong = cidr(part);
    if (wrong) root.problem('clusterCIDR', `${JSON.stringify(part)} ${wrong}`);
    return parseCidr(part) ?? [];
  });
  if (cidrs.length > 2 || (cidrs.length === 2 && cidrs[0]?.family === cidrs[1]?.family)) {
    root.problem('clusterCIDR', 'must be one network, or two networks of different families');
  }
  return cidrs;
}

function readBindAddress(root: FieldReader, field: string): string {
  const bind = root.text(field, '');
  const wrong = bindProblem(bind);
  if (wrong) root.problem(field, `${JSON.stringify(bind)} ${wrong}`);
  return bind;
}

/** IPVS counts whole seconds; 0 leaves the kernel's value. */
const seconds = (reader: FieldReader, field: string): number => Math.ceil(reader.duration(field, 0) / 1000);
