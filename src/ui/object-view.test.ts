import assert from 'node:assert/strict';
import { test } from 'node:test';
import type { EndpointSlice, Service } from '../kube/types.ts';
import { viewNode, viewService } from './object-view.ts';

const service = (spec: Service['spec'], status?: Service['status']): Service =>
  ({ metadata: { namespace: 'shop', name: 'web' }, spec, status }) as Service;
const slice = (endpoints: EndpointSlice['endpoints']): EndpointSlice =>
  ({ addressType: 'IPv4', endpoints }) as EndpointSlice;

const rows = [
  {
    what: 'a node port is shown beside its port',
    view: viewService(
      service({
        type: 'NodePort',
        clusterIPs: ['10.96.0.1'],
        ports: [
          { port: 80, nodePort: 30080 },
          { port: 53, protocol: 'UDP' },
        ],
      }),
      [],
      [],
    ),
    wanted: { ports: ['80:30080/TCP', '53/UDP'], addresses: ['10.96.0.1'], hasSelector: false },
  },
  {
    what: 'addresses from outside are those of the load balancer and spec.externalIPs, once',
    view: viewService(
      service(
        { type: 'LoadBalancer', externalIPs: ['192.0.2.7', '192.0.2.8'] },
        { loadBalancer: { ingress: [{ ip: '192.0.2.7' }] } },
      ),
      [],
      [],
    ),
    wanted: { externalAddresses: ['192.0.2.7', '192.0.2.8'] },
  },
  {
    what: 'the DNS of the cluster is answered by each node',
    view: viewService(service({ clusterIPs: ['10.96.0.10'] }), [], ['10.96.0.10']),
    wanted: { isOnNodes: true, endpoints: [] },
  },
  {
    what: 'the state of endpoints, and a pod with an address of each family once',
    view: viewService(
      service({ selector: { app: 'web' } }),
      [
        slice([
          { addresses: ['10.244.0.4'], conditions: { ready: false, serving: true, terminating: true } },
          { addresses: ['10.244.0.3'], conditions: { ready: false } },
          ...['fd00::2', '10.244.0.2'].map((address) => ({
            addresses: [address],
            nodeName: 'node-1',
            targetRef: { kind: 'Pod', namespace: 'shop', name: 'web-1' },
          })),
        ]),
      ],
      [],
    ),
    wanted: {
      hasSelector: true,
      endpoints: [
        { addresses: ['10.244.0.2', 'fd00::2'], pod: 'shop/web-1', node: 'node-1', state: 'ready' },
        { addresses: ['10.244.0.3'], pod: null, node: null, state: 'not-ready' },
        { addresses: ['10.244.0.4'], pod: null, node: null, state: 'terminating' },
      ],
    },
  },
  {
    what: 'a node with the annotation of its mode',
    view: viewNode({
      metadata: { name: 'node-1', annotations: { 'fairlead.dev/mode': 'ebpf' } },
      spec: { unschedulable: true },
      status: {
        conditions: [{ type: 'Ready', status: 'True' }],
        addresses: [{ type: 'InternalIP', address: '172.30.0.11' }],
      },
    }),
    wanted: { name: 'node-1', isReady: true, isDrained: true, addresses: ['172.30.0.11'], mode: 'ebpf' },
  },
] as const;

for (const { what, view, wanted } of rows) {
  test(what, () => assert.deepEqual({ ...view, ...wanted }, view));
}

const PORTS = [
  { what: 'the number of HTTP', port: { port: 80 }, isHttp: true },
  { what: 'the name of HTTP', port: { port: 7000, name: 'http-admin' }, isHttp: true },
  { what: 'a target with the name of HTTP', port: { port: 7000, targetPort: 'http' }, isHttp: true },
  { what: 'the protocol in words', port: { port: 7000, appProtocol: 'HTTP' }, isHttp: true },
  {
    what: 'another protocol in words',
    port: { port: 80, name: 'http', appProtocol: 'redis' },
    isHttp: false,
  },
  { what: 'HTTP behind TLS', port: { port: 443, name: 'https' }, isHttp: false },
  { what: 'Redis', port: { port: 6379, name: 'redis', targetPort: 6379 }, isHttp: false },
  { what: 'HTTP/3', port: { port: 80, name: 'http', protocol: 'UDP' }, isHttp: false },
] as const;
for (const { what, port, isHttp } of PORTS)
  test(`a port with ${what} ${isHttp ? 'answers' : 'does not answer'} HTTP`, () => {
    const { httpPorts } = viewService({ spec: { ports: [port] } }, [], []);
    assert.deepEqual(httpPorts, isHttp ? [port.port] : []);
  });
