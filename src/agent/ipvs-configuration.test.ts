import assert from 'node:assert/strict';
import { test } from 'node:test';
import type { ProxyConfiguration } from './agent-configuration.ts';
import { readConfiguration } from './configuration.ts';

const kubeProxy = (ipvs: object) => ({
  apiVersion: 'kubeproxy.config.k8s.io/v1alpha1',
  kind: 'KubeProxyConfiguration',
  mode: 'ipvs',
  ipvs,
});
const own = (proxy: object) => ({ kind: 'AgentConfiguration', nodeName: 'node-1', proxy });

const READ: [what: string, document: object, expected: Partial<ProxyConfiguration>][] = [
  [
    'kube-proxy’s section ipvs',
    kubeProxy({
      scheduler: 'mh',
      tcpTimeout: '15m',
      tcpFinTimeout: '1m30s',
      udpTimeout: '500ms',
      syncPeriod: '1m',
    }),
    { ipvsScheduler: 'mh', ipvsTimeouts: { tcp: 900, tcpFin: 90, udp: 1 }, syncPeriodMs: 60_000 },
  ],
  [
    'kube-proxy’s section ipvs with written defaults',
    kubeProxy({ scheduler: '', tcpTimeout: '0s', strictARP: true, excludeCIDRs: ['10.0.0.0/8'] }),
    { ipvsScheduler: 'rr', ipvsTimeouts: { tcp: 0, tcpFin: 0, udp: 0 }, syncPeriodMs: 30_000 },
  ],
  [
    'the fields of AgentConfiguration',
    own({ mode: 'ipvs', ipvsScheduler: 'wlc', ipvsTimeouts: { udp: 60 } }),
    { ipvsScheduler: 'wlc', ipvsTimeouts: { tcp: 0, tcpFin: 0, udp: 60 } },
  ],
];

for (const [what, document, expected] of READ) {
  test(`${what} are read`, () => {
    const { proxy } = readConfiguration(document);
    for (const [field, value] of Object.entries(expected)) {
      assert.deepEqual(proxy?.[field as keyof ProxyConfiguration], value, field);
    }
  });
}

const REFUSED: [document: object, message: RegExp][] = [
  [kubeProxy({ scheduler: 'fastest' }), /ipvs\.scheduler: must be one of .*rr, wrr.*ovf, not "fastest"/],
  [kubeProxy({ tcpTimeout: 'soon' }), /ipvs\.tcpTimeout: must be a duration/],
  [own({ ipvsScheduler: 'fastest' }), /proxy\.ipvsScheduler: must be one of rr, wrr.*ovf, not "fastest"/],
  [own({ ipvsTimeouts: { tcp: -1 } }), /proxy\.ipvsTimeouts\.tcp: must be an integer from 0/],
  [own({ ipvsTimeouts: { icmp: 1 } }), /proxy\.ipvsTimeouts\.icmp: unknown field/],
];

for (const [document, message] of REFUSED) {
  test(`refused: ${message.source}`, () => {
    assert.throws(() => readConfiguration(document), message);
  });
}
