import { hostname } from 'node:os';
import type { Mode } from '../dataplane/dataplane.ts';
import { SCHEDULERS } from '../dataplane/ipvs/schedulers.ts';
import { parseCidr } from '../lib/address.ts';
import { cidr, nodePortAddress } from './address-fields.ts';
import type { AgentConfiguration } from './configuration.ts';
import { readConntrack } from './conntrack-fields.ts';
import { type FieldReader, fieldReader } from './field-reader.ts';

/** kube-proxy's word for a mode → ours. Its default on Linux is iptables. */
const MODE_NAMES: Readonly<Record<string, Mode>> = {
  '': 'iptables',
  iptables: 'iptables',
  ipvs: 'ipvs',
  nftables: 'nftables',
  userspace: 'userspace',
  ebpf: 'ebpf',
};

/**
 * Reads kube-proxy's own configuration (kubeproxy.config.k8s.io/v1alpha1 KubeProxyConfiguration) so that a node's
 * existing file works: the proxy is on, everything else off. Bounds are upstream's. Fields that concern Windows or
 * only the upstream process are accepted and unused.
 */
export function readKubeProxyConfiguration(document: unknown): AgentConfiguration {
  const root = fieldReader(document);
  root.text('kind', '');
  root.choice('apiVersion', ['kubeproxy.config.k8s.io/v1alpha1'], 'kubeproxy.config.k8s.io/v1alpha1');
  root.ignore('featureGates', 'logging', 'winkernel', 'windowsRunAsService', 'portRange', 'enableProfiling');
  root.ignore(
    'showHiddenMetricsForVersion',
    'oomScoreAdj',
    'configSyncPeriod',
    'bindAddress',
    'bindAddressHardFail',
  );
  root.ignore('detectLocal');
  const kubeconfig = root.object('clientConnection', (reader) => {
    reader.ignore('acceptContentTypes', 'contentType', 'qps', 'burst');
    return reader.optionalText('kubeconfig');
  });
  const mode = MODE_NAMES[root.choice('mode', Object.keys(MODE_NAMES), '')] ?? 'iptables';
  const rules = (field: string) =>
    root.object(field, (reader) => {
      // Virtual servers of others are never touched, and addresses of Services never answered for by ARP.
      reader.ignore('localhostNodePorts', 'excludeCIDRs', 'strictARP');
      return {
        scheduler: reader.choice('scheduler', ['', ...Object.keys(SCHEDULERS)], '') || 'rr',
        timeouts: {
          tcp: seconds(reader, 'tcpTimeout'),
          tcpFin: seconds(reader, 'tcpFinTimeout'),
          udp: seconds(reader, 'udpTimeout'),
        },
        masqueradeBit: reader.number('masqueradeBit', 14, 0, 31),
        masqueradeAll: reader.flag('masqueradeAll', false),
        syncPeriodMs: reader.duration('syncPeriod', 30_000) || 30_000,
        minSyncPeriodMs: reader.duration('minSyncPeriod', mode === 'ipvs' ? 0 : 1000),
      };
    });
  const sections = { iptables: rules('iptables'), nftables: rules('nftables'), ipvs: rules('ipvs') };
  // IPVS takes what is masqueraded from the section iptables (cmd/kube-proxy/app/server_linux.go).
  const section = mode === 'nftables' ? sections.nftables : sections.iptables;
  const { minSyncPeriodMs, syncPeriodMs } = mode === 'ipvs' ? sections.ipvs : section;
  if (minSyncPeriodMs > syncPeriodMs) {
    root.problem(`${mode}.minSyncPeriod`, 'must not be longer than syncPeriod');
  }
  const raw = document as { iptables?: { localhostNodePorts?: unknown } };
  const detectLocal = ((document as { detectLocal?: unknown }).detectLocal ?? {}) as Record<string, unknown>;
  const clusterCidr = root.optionalText('clusterCIDR');
  const clusterCidrs = (clusterCidr === null ? [] : clusterCidr.split(',')).flatMap((text) => {
    const wrong = cidr(text);
    if (wrong) root.problem('clusterCIDR', `${JSON.stringify(text)} ${wrong}`);
    return parseCidr(text) ?? [];
  });
  const configuration: AgentConfiguration = {
    nodeName: (root.text('hostnameOverride', '').trim() || hostname()).toLowerCase(),
    kubeconfig,
    clusterDomain: 'cluster.local',
    stateDir: '/var/lib/fairlead/agent',
    proxy: {
      mode,
      nodePortAddresses: root.texts('nodePortAddresses', [], nodePortAddress),
      detectLocalMode:
        root.choice(
          'detectLocalMode',
          ['', 'ClusterCIDR', 'NodeCIDR', 'BridgeInterface', 'InterfaceNamePrefix'],
          '',
        ) || 'ClusterCIDR',
      clusterCidrs,
      bridgeInterface: text(detectLocal['bridgeInterface']),
      interfaceNamePrefix: text(detectLocal['interfaceNamePrefix']),
      masqueradeAll: section.masqueradeAll,
      masqueradeBit: section.masqueradeBit,
      localhostNodePorts: raw.iptables?.localhostNodePorts !== false,
      serviceCidrs: [],
      ipvsScheduler: sections.ipvs.scheduler,
      ipvsTimeouts: sections.ipvs.timeouts,
      conntrack: readConntrack(root),
      minSyncPeriodMs,
      syncPeriodMs,
    },
    network: null,
    pods: null,
    dns: null,
    loadBalancer: null,
    healthzBindAddress: root.text('healthzBindAddress', '0.0.0.0:10256') || null,
    metricsBindAddress: root.text('metricsBindAddress', '127.0.0.1:10249') || null,
  };
  root.finish('read configuration');
  return configuration;
}

/** IPVS counts whole seconds; 0: as the system has it. */
const seconds = (reader: FieldReader, field: string): number => Math.ceil(reader.duration(field, 0) / 1000);

function text(value: unknown): string {
  return typeof value === 'string' ? value : '';
}
