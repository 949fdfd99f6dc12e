import assert from 'node:assert/strict';
import { describe, test } from 'node:test';
import type { EndpointSlice, Service } from '../kube/types.ts';
import {
  parsePublishedPorts,
  parseServicePort,
  publishedPortText,
  routeToService,
  type ServicePort,
  servicePortText,
  similarService,
} from './service-port.ts';

const web = (port: ServicePort['port'], namespace = 'default'): ServicePort => ({
  namespace,
  name: 'web',
  port,
});

describe('the Service of fairlead open', () => {
  const rows: readonly [text: string, expected: ServicePort | RegExp][] = [
    ['svc/web', web(null)],
    ['service/web:80', web(80)],
    ['svc/web:http', web('http')],
    ['svc/shop/web:80', web(80, 'shop')],
    ['shop/web:80', web(80, 'shop')],
    ['web', web(null)],
    ['svc/web:80/tcp', web(80)],
    ['svc/web:53/udp', /has the protocol UDP; only TCP is forwarded/],
    ['pod/web', /is not a Service/],
    ['pod/shop/web', /is not a Service/],
    ['deploy/web', /is not a Service/],
    ['node/node-1', /is not a Service/],
    ['http://web', /is not a Service/],
    ['web.shop.svc', /is not a Service/],
    ['10.96.0.10:53', /is not a Service/],
    ['svc/', /cannot be read/],
    ['svc/web:0', /not from 1 to 65535/],
  ];
  for (const [text, expected] of rows) {
    test(text, () => {
      if (expected instanceof RegExp) assert.throws(() => parseServicePort(text), expected);
      else assert.deepEqual(parseServicePort(text), expected);
    });
  }
});

describe('up --publish', () => {
  const rows: readonly [texts: readonly string[], expected: readonly string[] | RegExp][] = [
    [['8080:80/svc/web'], ['8080:80/svc/web']],
    [['8080:http/svc/shop/web'], ['8080:http/svc/shop/web']],
    [['8080:80/shop/web'], ['8080:80/svc/shop/web']],
    [
      ['8080:80/svc/web', '8081:81/svc/web'],
      ['8080:80/svc/web', '8081:81/svc/web'],
    ],
    [['none'], []],
    [['8080:80/svc/web', '8080:80/svc/api'], /8080" is used for two Services/],
    [['none', '8080:80/svc/web'], /"none" cannot be read/],
    [['8080:80'], /cannot be read/],
    [['8080/svc/web'], /cannot be read/],
    [['0.0.0.0:8080:80/svc/web'], /cannot be read/],
    [['0:80/svc/web'], /is not a port from 1 to 65535/],
    [['8080:80/svc/web:80'], /cannot be read/],
    [['8080:53/svc/kube-system/kube-dns/udp'], /cannot be read/],
    [['8080:80/pod/web'], /is not a Service/],
  ];
  for (const [texts, expected] of rows) {
    test(texts.join(' '), () => {
      if (expected instanceof RegExp) assert.throws(() => parsePublishedPorts(texts), expected);
      else assert.deepEqual(parsePublishedPorts(texts).map(publishedPortText), expected);
    });
  }
});

const service = (spec: Service['spec'], namespace = 'default', name = 'web'): Service => ({
  metadata: { name, namespace },
  spec: { type: 'ClusterIP', clusterIPs: ['10.96.0.9', 'fd00::9'], ...spec },
});
const slice = (...endpoints: EndpointSlice['endpoints']): EndpointSlice => ({
  metadata: { name: 'web-1' },
  addressType: 'IPv4',
  endpoints,
});
const HTTP = { name: 'http', port: 80, protocol: 'TCP' };
const ADMIN = { name: 'admin', port: 9000 };
const DNS = { name: 'dns', port: 53, protocol: 'UDP' };

describe('the route to a Service', () => {
  const rows: readonly {
    readonly name: string;
    readonly wanted?: ServicePort;
    readonly service: Service | undefined;
    readonly slices?: readonly EndpointSlice[];
    readonly expected: { readonly port: number; readonly nodes?: readonly string[] | null } | RegExp;
  }[] = [
    { name: 'its only TCP port', service: service({ ports: [DNS, HTTP] }), expected: { port: 80 } },
    {
      name: 'a port by name',
      wanted: web('admin'),
      service: service({ ports: [HTTP, ADMIN] }),
      expected: { port: 9000 },
    },
    {
      name: 'a port by number, of which UDP is another',
      wanted: web(53),
      service: service({ ports: [DNS, { name: 'dns-tcp', port: 53 }] }),
      expected: { port: 53 },
    },
    {
      name: 'internalTrafficPolicy Local: the nodes with a ready endpoint',
      service: service({ ports: [HTTP], internalTrafficPolicy: 'Local' }),
      slices: [
        slice(
          { addresses: ['10.244.0.2'], nodeName: 'node-1', conditions: { ready: false } },
          { addresses: ['10.244.1.2'], nodeName: 'node-2', conditions: { ready: true } },
        ),
      ],
      expected: { port: 80, nodes: ['node-2'] },
    },
    { name: 'no Service', service: undefined, expected: /no such Service: default\/web/ },
    {
      name: 'a headless Service',
      service: service({ clusterIPs: ['None'], ports: [HTTP] }),
      expected: /is headless: it has no cluster IP/,
    },
    {
      name: 'an ExternalName Service',
      service: service({ type: 'ExternalName', externalName: 'example.org', clusterIPs: [] }),
      expected: /is an alias of example\.org/,
    },
    { name: 'only UDP', service: service({ ports: [DNS] }), expected: /port 53 .* is UDP; only TCP/ },
    {
      name: 'several TCP ports and no choice',
      service: service({ ports: [HTTP, ADMIN] }),
      expected: /has several TCP ports: 80 \(http\), 9000 \(admin\)/,
    },
    {
      name: 'a port that the Service does not have',
      wanted: web(81),
      service: service({ ports: [HTTP] }),
      expected: /has no port 81/,
    },
  ];
  for (const { name, wanted = web(null), service: found, slices = [], expected } of rows) {
    test(name, () => {
      if (expected instanceof RegExp) {
        assert.throws(() => routeToService(wanted, found, slices), expected);
        return;
      }
      const route = routeToService(wanted, found, slices);
      assert.deepEqual(route.addresses, ['10.96.0.9', 'fd00::9']);
      assert.deepEqual({ port: route.port, nodes: route.nodes }, { nodes: null, ...expected });
    });
  }
});

test('a name that does not exist: the similar Service is suggested', () => {
  const all = [service({}), service({}, 'shop', 'cart')];
  assert.equal(similarService({ namespace: 'default', name: 'wbe', port: 80 }, all), 'did you mean svc/web?');
  assert.equal(
    similarService({ namespace: 'default', name: 'cart', port: null }, all),
    'did you mean svc/shop/cart?',
  );
  assert.equal(similarService({ namespace: 'default', name: 'other', port: null }, all), null);
  assert.equal(servicePortText(web('http', 'shop')), 'svc/shop/web:http');
});

test('Ingresses are published by a short form, which is printed again', () => {
  const [port] = parsePublishedPorts(['8443:443/ingress']);
  assert.deepEqual(port, {
    localPort: 8443,
    service: { namespace: 'fairlead-gateways', name: 'ingress-fairlead', port: 443 },
  });
  assert.equal(port && publishedPortText(port), '8443:443/ingress');
});
