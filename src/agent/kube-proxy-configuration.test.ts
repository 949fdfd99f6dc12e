import assert from 'node:assert/strict';
import { test } from 'node:test';
import { parse } from 'yaml';
import type { AgentConfiguration } from './agent-configuration.ts';
import { readConfiguration } from './configuration.ts';

const read = (yaml: string, environment: NodeJS.ProcessEnv = {}): AgentConfiguration =>
  readConfiguration(
    {
      apiVersion: 'kubeproxy.config.k8s.io/v1alpha1',
      kind: 'KubeProxyConfiguration',
      hostnameOverride: 'node-1',
      ...(parse(yaml) as object | null),
    },
    environment,
  );

/** kube-proxy's ConfigMap as written by kubeadm 1.36. */
const KUBEADM = `
bindAddress: 0.0.0.0
bindAddressHardFail: false
clientConnection: {acceptContentTypes: "", burst: 0, contentType: "", kubeconfig: /var/lib/kube-proxy/kubeconfig.conf, qps: 0}
clusterCIDR: 10.244.0.0/16
configSyncPeriod: 0s
conntrack: {maxPerCore: null, min: null, tcpBeLiberal: false, tcpCloseWaitTimeout: null, tcpEstablishedTimeout: null, udpStreamTimeout: 0s, udpTimeout: 0s}
detectLocal: {bridgeInterface: "", interfaceNamePrefix: ""}
detectLocalMode: ""
enableProfiling: false
healthzBindAddress: ""
hostnameOverride: ""
iptables: {localhostNodePorts: null, masqueradeAll: false, masqueradeBit: null, minSyncPeriod: 0s, syncPeriod: 0s}
ipvs: {excludeCIDRs: null, minSyncPeriod: 0s, scheduler: "", strictARP: false, syncPeriod: 0s, tcpFinTimeout: 0s, tcpTimeout: 0s, udpTimeout: 0s}
logging: {flushFrequency: 0, options: {json: {infoBufferSize: "0"}, text: {infoBufferSize: "0"}}, verbosity: 0}
metricsBindAddress: ""
mode: ""
nftables: {masqueradeAll: false, masqueradeBit: null, minSyncPeriod: 0s, syncPeriod: 0s}
nodePortAddresses: null
oomScoreAdj: null
portRange: ""
showHiddenMetricsForVersion: ""
winkernel: {enableDSR: false, forwardHealthCheckVip: false, networkName: "", rootHnsEndpointName: "", sourceVip: ""}
`;

test("the file of kubeadm yields kube-proxy's defaults, without a warning", () => {
  const configuration = read(KUBEADM, { NODE_NAME: 'Worker-1' });
  const { proxy } = configuration;
  assert.deepEqual(configuration.warnings, []);
  assert.deepEqual(
    {
      nodeName: configuration.nodeName,
      kubeconfig: configuration.kubeconfig,
      healthz: configuration.healthzBindAddress,
      metrics: configuration.metricsBindAddress,
      oomScoreAdj: configuration.oomScoreAdj,
      mode: proxy?.mode,
      minSyncPeriodMs: proxy?.minSyncPeriodMs,
      syncPeriodMs: proxy?.syncPeriodMs,
      masqueradeBit: proxy?.masqueradeBit,
      localhostNodePorts: proxy?.localhostNodePorts,
      maxPerCore: proxy?.conntrack.maxPerCore,
      tcpEstablishedTimeoutMs: proxy?.conntrack.tcpEstablishedTimeoutMs,
    },
    {
      nodeName: 'worker-1',
      kubeconfig: '/var/lib/kube-proxy/kubeconfig.conf',
      healthz: '0.0.0.0:10256',
      metrics: '127.0.0.1:10249',
      oomScoreAdj: -999,
      mode: 'iptables',
      minSyncPeriodMs: 1000,
      syncPeriodMs: 30_000,
      masqueradeBit: 14,
      localhostNodePorts: true,
      maxPerCore: 32_768,
      tcpEstablishedTimeoutMs: 86_400_000,
    },
  );
});

const MEANT: readonly [
  what: string,
  yaml: string,
  meaning: (c: AgentConfiguration) => unknown,
  expected: unknown,
][] = [
  ['an address without a port', 'healthzBindAddress: 1.2.3.4', (c) => c.healthzBindAddress, '1.2.3.4:10256'],
  ['an IPv6 address without a port', 'metricsBindAddress: "::"', (c) => c.metricsBindAddress, '[::]:10249'],
  ['an IPv6 bindAddress', 'bindAddress: "::"', (c) => c.metricsBindAddress, '[::1]:10249'],
  ['bindAddress', 'bindAddress: 10.0.0.7', (c) => c.nodeAddress, '10.0.0.7'],
  ['no minimum period in IPVS mode', 'mode: ipvs', (c) => c.proxy?.minSyncPeriodMs, 0],
  ['nftables mode', 'mode: nftables', (c) => c.proxy?.nodePortAddresses, ['primary']],
  [
    'a section of another mode out of bounds',
    'mode: iptables\nnftables: {masqueradeBit: 40}',
    (c) => c.proxy?.masqueradeBit,
    14,
  ],
  ['verbosity', 'logging: {verbosity: 4}', (c) => c.verbose, true],
  [
    'fields without effect',
    'featureGates: {Foo: true}\nwinkernel: {enableDSR: true}\nclientConnection: {qps: 50}',
    (c) => c.warnings,
    ['configuration fields without effect here: winkernel.enableDSR, clientConnection.qps, featureGates.Foo'],
  ],
  [
    'settings of a log that is one stream',
    'logging: {flushFrequency: 1s, vmodule: [{filePattern: a, verbosity: 4}], options: {json: {splitStream: true}}}',
    (c) => c.warnings,
    ['configuration fields without effect here: logging.options, logging.vmodule'],
  ],
  [
    'unknown fields, which kube-proxy ignores with a warning',
    'foo: 1\niptables: {bar: 1}',
    (c) => c.warnings,
    ['unknown configuration fields: foo, iptables.bar'],
  ],
  [
    'the response of /configz',
    'mode: nftables',
    (c) => (c.configz['kubeproxy.config.k8s.io'] as { nftables: unknown }).nftables,
    { masqueradeBit: 14, masqueradeAll: false, syncPeriod: '30s', minSyncPeriod: '1s' },
  ],
];

for (const [what, yaml, meaning, expected] of MEANT) {
  test(`${what}: read as by kube-proxy`, () => assert.deepEqual(meaning(read(yaml)), expected));
}

/** Files that kube-proxy 1.36 rejects at startup. */
const REFUSED: readonly [yaml: string, message: RegExp][] = [
  ['iptables: {masqueradeBit: 40}', /iptables\.masqueradeBit: must be an integer from 0 to 31/],
  ['iptables: {masqueradeBit: -1}', /iptables\.masqueradeBit/],
  ['iptables: {syncPeriod: -1s}', /iptables\.syncPeriod/],
  ['iptables: {syncPeriod: 10s, minSyncPeriod: 20s}', /syncPeriod: must be greater than or equal to/],
  ['iptables: {syncPeriod: foo}', /iptables\.syncPeriod: must be a duration/],
  ['iptables: {syncPeriod: 5}', /iptables\.syncPeriod: must be a duration/],
  ['iptables: {masqueradeAll: "yes"}', /iptables\.masqueradeAll: must be true or false/],
  ['mode: nftables\nnftables: {masqueradeBit: 40}', /nftables\.masqueradeBit/],
  ['mode: foo', /mode: must be one of iptables, ipvs, nftables/],
  ['mode: Iptables', /mode: must be one of/],
  ['mode: 3', /mode: must be one of/],
  ['oomScoreAdj: 2000', /oomScoreAdj: must be an integer from -1000 to 1000/],
  ['configSyncPeriod: -1s', /configSyncPeriod/],
  ['bindAddress: foo', /bindAddress: "foo" is not an IP address/],
  ['healthzBindAddress: foo:10256', /healthzBindAddress: .* does not begin with an IP address/],
  ['healthzBindAddress: 0.0.0.0:99999', /healthzBindAddress: .* does not end with a port/],
  ['healthzBindAddress: 0.0.0.0:0', /healthzBindAddress: .* does not end with a port/],
  ['healthzBindAddress: ":10256"', /healthzBindAddress: .* does not begin with an IP address/],
  ['healthzBindAddress: 1.2.3', /healthzBindAddress: "1\.2\.3" is not ADDRESS:PORT/],
  ['clusterCIDR: foo', /clusterCIDR: "foo" is not a network/],
  ['clusterCIDR: 10.0.0.0/8,10.1.0.0/16', /clusterCIDR: must be one network, or two/],
  ['clusterCIDR: 10.0.0.0/8,fd00::/64,fd01::/64', /clusterCIDR: must be one network, or two/],
  ['nodePortAddresses: [foo]', /nodePortAddresses\[0\]: "foo" is not a network/],
  ['nodePortAddresses: [primary, 10.0.0.0/8]', /nodePortAddresses: must be only "primary"/],
  ['showHiddenMetricsForVersion: "1.2"', /showHiddenMetricsForVersion: must be one of/],
  ['detectLocalMode: Foo', /detectLocalMode: must be one of/],
  ['detectLocalMode: BridgeInterface', /detectLocal\.bridgeInterface: must not be empty/],
  ['detectLocalMode: InterfaceNamePrefix', /detectLocal\.interfaceNamePrefix: must not be empty/],
  ['logging: {format: xml}', /logging\.format: must be one of text, json/],
  ['conntrack: {maxPerCore: -1}', /conntrack\.maxPerCore/],
  ['conntrack: {min: -1}', /conntrack\.min/],
  ['conntrack: {tcpEstablishedTimeout: -1s}', /conntrack\.tcpEstablishedTimeout/],
  ['conntrack: {udpTimeout: -1s}', /conntrack\.udpTimeout/],
  ['mode: ipvs\nipvs: {excludeCIDRs: [foo]}', /ipvs\.excludeCIDRs\[0\]/],
  ['mode: ipvs\nipvs: {tcpTimeout: -1s}', /ipvs\.tcpTimeout/],
];

for (const [yaml, message] of REFUSED) {
  test(`refused as by kube-proxy: ${yaml.replace('\n', ', ')}`, () => {
    assert.throws(() => read(yaml), message);
  });
}

const NAMES: readonly [what: string, configured: string, environment: NodeJS.ProcessEnv, expected: string][] =
  [
    ['the configured name', ' Node-7 ', { NODE_NAME: 'other' }, 'node-7'],
    ['NODE_NAME if none is configured', '', { NODE_NAME: 'Node-8' }, 'node-8'],
  ];

for (const [what, configured, environment, expected] of NAMES) {
  test(`the node is ${what}`, () => {
    assert.equal(read(`hostnameOverride: "${configured}"`, environment).nodeName, expected);
    assert.equal(
      readConfiguration({ kind: 'AgentConfiguration', nodeName: configured }, environment).nodeName,
      expected,
    );
  });
}
