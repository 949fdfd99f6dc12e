import { isIPv6 } from 'node:net';

/** kube-proxy's ports for health checks and for metrics (pkg/cluster/ports). */
export const HEALTHZ_PORT = 10256;
export const METRICS_PORT = 10249;

type Fields = Readonly<Record<string, unknown>>;

/** The defaults of KubeProxyConfiguration in Kubernetes 1.36, as printed by `kube-proxy --write-config-to`. */
const DEFAULTS: Fields = {
  apiVersion: 'kubeproxy.config.k8s.io/v1alpha1',
  kind: 'KubeProxyConfiguration',
  clientConnection: {
    kubeconfig: '',
    acceptContentTypes: '',
    contentType: 'application/vnd.kubernetes.protobuf',
    qps: 5,
    burst: 10,
  },
  logging: {
    format: 'text',
    flushFrequency: '5s',
    verbosity: 0,
    options: { text: { infoBufferSize: '0' }, json: { infoBufferSize: '0' } },
  },
  hostnameOverride: '',
  bindAddress: '0.0.0.0',
  healthzBindAddress: '',
  metricsBindAddress: '',
  bindAddressHardFail: false,
  enableProfiling: false,
  showHiddenMetricsForVersion: '',
  mode: 'iptables',
  iptables: {
    masqueradeBit: 14,
    masqueradeAll: false,
    localhostNodePorts: true,
    syncPeriod: '0s',
    minSyncPeriod: '0s',
  },
  ipvs: {
    syncPeriod: '0s',
    minSyncPeriod: '0s',
    scheduler: '',
    excludeCIDRs: [],
    strictARP: false,
    tcpTimeout: '0s',
    tcpFinTimeout: '0s',
    udpTimeout: '0s',
  },
  nftables: { masqueradeBit: 14, masqueradeAll: false, syncPeriod: '0s', minSyncPeriod: '0s' },
  winkernel: {
    networkName: '',
    sourceVip: '',
    enableDSR: false,
    rootHnsEndpointName: '',
    forwardHealthCheckVip: false,
  },
  detectLocalMode: 'ClusterCIDR',
  detectLocal: { bridgeInterface: '', interfaceNamePrefix: '' },
  clusterCIDR: '',
  nodePortAddresses: [],
  oomScoreAdj: -999,
  conntrack: {
    maxPerCore: 32768,
    min: 131072,
    tcpEstablishedTimeout: '24h0m0s',
    tcpCloseWaitTimeout: '1h0m0s',
    tcpBeLiberal: false,
    udpTimeout: '0s',
    udpStreamTimeout: '0s',
  },
  configSyncPeriod: '15m0s',
  portRange: '',
};

/** Strings and durations whose empty value means the default. */
const EMPTY_IS_DEFAULT: readonly string[] = [
  ...[
    'mode',
    'detectLocalMode',
    'bindAddress',
    'configSyncPeriod',
    'logging.format',
    'logging.flushFrequency',
  ],
  ...['clientConnection.contentType', 'clientConnection.qps', 'clientConnection.burst'],
];
const EMPTY: readonly unknown[] = ['', 0, '0', '0s'];

/**
 * Applies kube-proxy's default to each field that is absent, null, or empty where that means the
 * default (pkg/proxy/apis/config/v1alpha1/defaults.go). Values of a wrong type are kept, so that the reader rejects them.
 */
export function withKubeProxyDefaults(document: Fields): Fields {
  const full = merge(DEFAULTS, document, '') as Record<string, unknown>;
  const isIPv6Bound = typeof full['bindAddress'] === 'string' && isIPv6(full['bindAddress']);
  full['healthzBindAddress'] = withPort(
    full['healthzBindAddress'],
    isIPv6Bound ? '::' : '0.0.0.0',
    HEALTHZ_PORT,
  );
  full['metricsBindAddress'] = withPort(
    full['metricsBindAddress'],
    isIPv6Bound ? '::1' : '127.0.0.1',
    METRICS_PORT,
  );
  // Only the section of the mode in use gets its periods.
  const section = full['mode'];
  if (section === 'iptables' || section === 'nftables' || section === 'ipvs') {
    const periods = full[section] as Record<string, unknown>;
    if (typeof periods === 'object' && periods !== null) {
      if (EMPTY.includes(periods['syncPeriod'])) periods['syncPeriod'] = '30s';
      if (section !== 'ipvs' && EMPTY.includes(periods['minSyncPeriod'])) periods['minSyncPeriod'] = '1s';
    }
  }
  if (
    section === 'nftables' &&
    Array.isArray(full['nodePortAddresses']) &&
    full['nodePortAddresses'].length === 0
  )
    full['nodePortAddresses'] = ['primary'];
  return full;
}

function merge(fallback: unknown, value: unknown, path: string): unknown {
  if (!isFields(fallback)) {
    if (value === undefined || value === null) return fallback;
    return EMPTY_IS_DEFAULT.includes(path) && EMPTY.includes(value) ? fallback : value;
  }
  if (value === undefined || value === null) return merge(fallback, {}, path);
  if (!isFields(value)) return value;
  const names = new Set([...Object.keys(fallback), ...Object.keys(value)]);
  return Object.fromEntries(
    [...names].map((name) => [
      name,
      merge(fallback[name], value[name], path === '' ? name : `${path}.${name}`),
    ]),
  );
}

function isFields(value: unknown): value is Fields {
  return typeof value === 'object' && value !== null && !Array.isArray(value);
}

/** Returns `bind` with `port` appended if it has none, and `host`:`port` if it is empty. */
function withPort(bind: unknown, host: string, port: number): unknown {
  if (typeof bind !== 'string') return bind;
  const address = bind === '' ? host : bind;
  if (isIPv6(address)) return `[${address}]:${port}`;
  return /^[0-9.]+$/.test(address) && address.split('.').length === 4 ? `${address}:${port}` : address;
}

/** Returns the names of fields below `section` that differ from their default: "winkernel.enableDSR". */
export function changedFields(full: Fields, section: string): string[] {
  const fallback = DEFAULTS[section];
  const value = full[section];
  if (!isFields(fallback) || !isFields(value)) {
    return JSON.stringify(value) === JSON.stringify(fallback) ? [] : [section];
  }
  return Object.keys(fallback).flatMap((name) =>
    JSON.stringify(value[name]) === JSON.stringify(fallback[name]) ? [] : [`${section}.${name}`],
  );
}
