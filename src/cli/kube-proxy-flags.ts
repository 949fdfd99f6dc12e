import { FairleadError } from '../lib/errors.ts';
import { choice, type Option, type OptionTable, text } from './options.ts';

/** One flag of kube-proxy 1.36. */
interface KubeProxyFlag {
  /** The placeholder of its value; null: boolean. */
  readonly value: string | null;
  readonly help: string;
  /** The fields of KubeProxyConfiguration that it sets: "iptables.masqueradeBit". */
  readonly fields?: readonly string[];
  /** Parses its value; absent: the text itself. */
  readonly read?: (text: string) => unknown;
  /** The reason why it is rejected, unless its value is false or empty. */
  readonly refused?: string;
  /** Accepted with a warning, as it has no effect. */
  readonly hasNoEffect?: true;
}

const number = (text: string): unknown => (/^-?[0-9]+(\.[0-9]+)?$/.test(text) ? Number(text) : text);
const list = (text: string): unknown => (text === '' ? [] : text.split(','));
/** As a flag 0 means no pause; in a file it means the default. */
const pause = (text: string): unknown => (text === '0' || text === '0s' ? '0ms' : text);
const isTrue = (text: string): unknown => (text === 'true' ? true : text === 'false' ? false : text);

const field = (value: string | null, help: string, ...fields: string[]): KubeProxyFlag => ({
  value,
  help,
  fields,
  ...(value === null
    ? { read: isTrue }
    : value === 'N'
      ? { read: number }
      : value === 'LIST'
        ? { read: list }
        : {}),
});
const withoutEffect = (value: string | null): KubeProxyFlag => ({
  value,
  help: 'accepted without effect, as in kube-proxy',
  hasNoEffect: true,
});
const refused = (value: string | null, reason: string): KubeProxyFlag => ({
  value,
  help: `refused: ${reason}`,
  refused: reason,
});

const ONE_STREAM = 'the log is one stream of JSON lines, written at once';

/** Flags with kube-proxy's names and values, without those that the command `agent` defines itself. */
const FLAGS: Readonly<Record<string, KubeProxyFlag>> = {
  'bind-address': field('ADDRESS', "the node's primary address", 'bindAddress'),
  'bind-address-hard-fail': field(
    null,
    'exit if the address of the health or metrics server is in use',
    'bindAddressHardFail',
  ),
  'cluster-cidr': field(
    'CIDR[,CIDR]',
    'networks of pods, with --detect-local-mode ClusterCIDR',
    'clusterCIDR',
  ),
  'config-sync-period': field('DURATION', 'accepted; changes are applied at once', 'configSyncPeriod'),
  'conntrack-max-per-core': field('N', 'tracked connections per CPU', 'conntrack.maxPerCore'),
  'conntrack-min': field('N', 'the minimum of tracked connections', 'conntrack.min'),
  'conntrack-tcp-be-liberal': field(null, 'accept TCP segments outside the window', 'conntrack.tcpBeLiberal'),
  'conntrack-tcp-timeout-close-wait': field(
    'DURATION',
    'how long a half-closed TCP connection is tracked',
    'conntrack.tcpCloseWaitTimeout',
  ),
  'conntrack-tcp-timeout-established': field(
    'DURATION',
    'how long an idle TCP connection is tracked',
    'conntrack.tcpEstablishedTimeout',
  ),
  'conntrack-udp-timeout': field(
    'DURATION',
    'how long a UDP flow without replies is tracked',
    'conntrack.udpTimeout',
  ),
  'conntrack-udp-timeout-stream': field(
    'DURATION',
    'how long a UDP flow with replies is tracked',
    'conntrack.udpStreamTimeout',
  ),
  'detect-local-mode': field('MODE', 'how packets from pods of this node are recognized', 'detectLocalMode'),
  'feature-gates': {
    value: 'GATE=BOOL,…',
    help: 'accepted with a warning: there are no feature gates',
    fields: ['featureGates'],
    read: (gates) => Object.fromEntries(gates.split(',').map((gate) => gate.split('=', 2))),
  },
  'healthz-bind-address': field('ADDRESS:PORT', 'the address of /healthz and /livez', 'healthzBindAddress'),
  'healthz-port': {
    ...field('PORT', 'the port of --healthz-bind-address', 'healthzBindAddress'),
    read: (port) => `0.0.0.0:${port}`,
  },
  'iptables-localhost-nodeports': field(
    null,
    'node ports answer on 127.0.0.1 in iptables mode',
    'iptables.localhostNodePorts',
  ),
  'iptables-masquerade-bit': field(
    'N',
    'the bit of the packet mark that requests masquerading',
    'iptables.masqueradeBit',
  ),
  'iptables-min-sync-period': {
    ...field('DURATION', 'the minimum time between two updates in iptables mode', 'iptables.minSyncPeriod'),
    read: pause,
  },
  'iptables-sync-period': field(
    'DURATION',
    'how often rules are verified in iptables mode',
    'iptables.syncPeriod',
  ),
  'ipvs-exclude-cidrs': field(
    'LIST',
    'networks whose virtual servers stay when the agent takes over from kube-proxy in IPVS mode',
    'ipvs.excludeCIDRs',
  ),
  'ipvs-min-sync-period': {
    ...field('DURATION', 'the minimum time between two updates in IPVS mode', 'ipvs.minSyncPeriod'),
    read: pause,
  },
  'ipvs-scheduler': field('NAME', 'the default scheduler', 'ipvs.scheduler'),
  'ipvs-strict-arp': field(
    null,
    "accepted: ARP requests for Services' addresses are never answered",
    'ipvs.strictARP',
  ),
  'ipvs-sync-period': field(
    'DURATION',
    'how often virtual servers are verified in IPVS mode',
    'ipvs.syncPeriod',
  ),
  'ipvs-tcp-timeout': field('DURATION', 'when IPVS expires idle TCP connections', 'ipvs.tcpTimeout'),
  'ipvs-tcpfin-timeout': field(
    'DURATION',
    'when IPVS expires TCP connections that are closing',
    'ipvs.tcpFinTimeout',
  ),
  'ipvs-udp-timeout': field('DURATION', 'when IPVS expires UDP flows', 'ipvs.udpTimeout'),
  'kube-api-burst': field('N', 'accepted with a warning: requests are few', 'clientConnection.burst'),
  'kube-api-content-type': field(
    'TYPE',
    'accepted with a warning: the agent speaks JSON',
    'clientConnection.contentType',
  ),
  'kube-api-qps': field('N', 'accepted with a warning: requests are few', 'clientConnection.qps'),
  kubeconfig: field('FILE', 'the kubeconfig file for the API server', 'clientConnection.kubeconfig'),
  'log-flush-frequency': field('DURATION', 'accepted: lines are written at once', 'logging.flushFrequency'),
  'log-json-info-buffer-size': refused('SIZE', ONE_STREAM),
  'log-json-split-stream': refused(null, ONE_STREAM),
  'log-text-info-buffer-size': refused('SIZE', ONE_STREAM),
  'log-text-split-stream': refused(null, ONE_STREAM),
  'logging-format': field('FORMAT', 'accepted: the log is JSON lines', 'logging.format'),
  'masquerade-all': field(
    null,
    'masquerade all traffic to cluster IPs',
    'iptables.masqueradeAll',
    'nftables.masqueradeAll',
  ),
  'metrics-bind-address': field('ADDRESS:PORT', 'the address of /metrics', 'metricsBindAddress'),
  'metrics-port': {
    ...field('PORT', 'the port of --metrics-bind-address', 'metricsBindAddress'),
    read: (port) => `127.0.0.1:${port}`,
  },
  'nodeport-addresses': field(
    'LIST',
    'the node addresses on which node ports answer: CIDRs, or primary',
    'nodePortAddresses',
  ),
  'oom-score-adj': field('N', "the agent's oom_score_adj", 'oomScoreAdj'),
  'pod-bridge-interface': field(
    'NAME',
    'the bridge of pods, with --detect-local-mode BridgeInterface',
    'detectLocal.bridgeInterface',
  ),
  'pod-interface-name-prefix': field(
    'PREFIX',
    "the prefix of pods' interface names, with --detect-local-mode InterfaceNamePrefix",
    'detectLocal.interfaceNamePrefix',
  ),
  profiling: field(null, 'accepted with a warning: profiles are not served', 'enableProfiling'),
  'proxy-mode': field('MODE', 'iptables, ipvs, nftables, ebpf or userspace', 'mode'),
  'show-hidden-metrics-for-version': field(
    'VERSION',
    'accepted for 1.35: no metric is hidden',
    'showHiddenMetricsForVersion',
  ),
  vmodule: refused('PATTERN=N,…', 'the log level applies to the whole agent: use --v'),
  // cAdvisor's flags are part of kube-proxy's binary, without effect.
  ...Object.fromEntries(
    ['allow-dynamic-housekeeping', 'disable-root-cgroup-stats', 'docker-only', 'enable-load-reader']
      .concat(['log-cadvisor-usage', 'storage-driver-secure'])
      .map((name) => [name, withoutEffect(null)]),
  ),
  ...Object.fromEntries(
    ['application-metrics-count-limit', 'boot-id-file', 'container-hints', 'containerd']
      .concat(['containerd-env-metadata-whitelist', 'containerd-namespace', 'crio-client-timeout'])
      .concat(['event-storage-age-limit', 'event-storage-event-limit', 'global-housekeeping-interval'])
      .concat(['housekeeping-interval', 'machine-id-file', 'max-housekeeping-interval'])
      .concat(['referenced-reset-interval', 'storage-driver-buffer-duration', 'storage-driver-db'])
      .concat(['storage-driver-host', 'storage-driver-password', 'storage-driver-table'])
      .concat(['storage-driver-user', 'update-machine-info-interval'])
      .map((name) => [name, withoutEffect('VALUE')]),
  ),
};

/** Flags that apply in addition to --config, as in kube-proxy, which then ignores all others. */
const BESIDE_CONFIG: readonly string[] = ['logging-format', 'log-flush-frequency'];

/** kube-proxy's flags, as options of a command. */
export const KUBE_PROXY_OPTIONS: OptionTable = Object.fromEntries(
  Object.entries(FLAGS).map(([name, { value, help }]): [string, Option] => [
    name,
    value === null
      ? choice('BOOL', ['true', 'false'], 'false', help, { implied: 'true' })
      : text(value, help),
  ]),
);

export interface ReadFlags {
  /** A KubeProxyConfiguration with the values of the flags. */
  readonly document: Record<string, unknown>;
  /** Sentences for the log. */
  readonly warnings: readonly string[];
}

/**
 * Converts kube-proxy's flags among the options that were `given` into a KubeProxyConfiguration. With a
 * configuration file they are ignored, with a warning. Throws FairleadError "usage" for an unsupported
 * flag, with the reason.
 */
export function readKubeProxyFlags(
  values: Readonly<Record<string, unknown>>,
  given: ReadonlySet<string>,
  hasConfigurationFile: boolean,
): ReadFlags {
  const document: Record<string, unknown> = {
    apiVersion: 'kubeproxy.config.k8s.io/v1alpha1',
    kind: 'KubeProxyConfiguration',
  };
  const used = Object.entries(FLAGS).filter(([name]) => given.has(name));
  for (const [name, { fields = [], read, refused: reason }] of used) {
    const typed = String(values[name] ?? '');
    if (reason !== undefined && !['', 'false', '0'].includes(typed)) {
      throw new FairleadError(`--${name}: ${reason}`, {
        op: 'fairlead agent',
        code: 'usage',
        hint: `remove --${name}`,
      });
    }
    for (const path of fields) set(document, path.split('.'), read ? read(typed) : typed);
  }
  const names = (wanted: (name: string, flag: KubeProxyFlag) => boolean) =>
    used.filter(([name, flag]) => wanted(name, flag)).map(([name]) => `--${name}`);
  const idle = names((_, flag) => flag.hasNoEffect === true);
  const ignored = hasConfigurationFile
    ? names((name, flag) => flag.fields !== undefined && !BESIDE_CONFIG.includes(name))
    : [];
  return {
    document,
    warnings: [
      ...(idle.length > 0 ? [`flags without effect: ${idle.join(', ')}`] : []),
      ...(ignored.length > 0 ? [`flags ignored because --config is given: ${ignored.join(', ')}`] : []),
    ],
  };
}

/** Returns true if one of kube-proxy's flags was given. */
export function hasKubeProxyFlag(given: ReadonlySet<string>): boolean {
  return Object.keys(FLAGS).some((name) => given.has(name));
}

function set(object: Record<string, unknown>, path: readonly string[], value: unknown): void {
  const [first = '', ...rest] = path;
  if (rest.length === 0) object[first] = value;
  else {
    const inner = (object[first] ?? {}) as Record<string, unknown>;
    object[first] = inner;
    set(inner, rest, value);
  }
}
