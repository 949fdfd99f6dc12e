import assert from 'node:assert/strict';
import { describe, test } from 'node:test';
import { manifestsOf } from '../cluster/manifests.ts';
import type { PublishedPort } from '../cluster/service-port.ts';
import { upAdvice } from './up-advice.ts';

const service = (name: string, namespace: string, ports: readonly object[], spec: object = {}) => ({
  apiVersion: 'v1',
  kind: 'Service',
  metadata: { name, namespace },
  spec: { selector: { app: name }, ports, ...spec },
});
const pod = (name: string, namespace: string, labels: object = {}) => ({
  apiVersion: 'v1',
  kind: 'Pod',
  metadata: { name, namespace, labels },
});
const deployment = (name: string, namespace: string) => ({
  apiVersion: 'apps/v1',
  kind: 'Deployment',
  metadata: { name, namespace },
});
const published: PublishedPort = { localPort: 8081, service: { namespace: 'shop', name: 'web', port: 80 } };
const NONE: readonly PublishedPort[] = [];

describe('commands to try after "up"', () => {
  const rows: readonly (readonly [
    what: string,
    objects: object[],
    ports: readonly PublishedPort[],
    lines: string[],
  ])[] = [
    ['nothing applied', [], NONE, ['kubectl get pods,services -o wide']],
    [
      'a client and a Service',
      [pod('client', 'default'), service('hello', 'default', [{ port: 80 }])],
      NONE,
      ['kubectl get pods,services -o wide', 'fl exec client -- fairlead request http://hello --count 300'],
    ],
    [
      'a client of another namespace, and another port',
      [service('a', 'x', [{ port: 80 }]), pod('client', 'shop'), service('web', 'shop', [{ port: 8080 }])],
      NONE,
      [
        'kubectl -n shop get pods,services -o wide',
        'fl exec shop/client -- fairlead request http://web:8080 --count 300',
      ],
    ],
    [
      'a Deployment: nodes resolve names too',
      [deployment('web', 'shop'), service('web', 'shop', [{ port: 9000, name: 'http' }])],
      NONE,
      [
        'kubectl -n shop get pods,services -o wide',
        'fl exec node/node-1 -- fairlead request http://web.shop:9000 --count 300',
      ],
    ],
    [
      'a pod that serves is not a client',
      [pod('web', 'default', { app: 'web' }), service('web', 'default', [{ port: 80 }])],
      NONE,
      [
        'kubectl get pods,services -o wide',
        'fl exec node/node-1 -- fairlead request http://web.default --count 300',
      ],
    ],
    [
      'a published port',
      [deployment('web', 'shop'), service('web', 'shop', [{ port: 80 }])],
      [published],
      ['kubectl -n shop get pods,services -o wide', 'curl http://127.0.0.1:8081'],
    ],
    [
      'a Service that is not HTTP',
      [deployment('redis', 'default'), service('redis', 'default', [{ port: 6379 }])],
      NONE,
      ['kubectl get pods,services -o wide'],
    ],
    [
      'a Service without pods',
      [service('out', 'default', [{ port: 80 }], { type: 'ExternalName', externalName: 'a.example' })],
      NONE,
      ['kubectl get pods,services -o wide'],
    ],
  ];
  for (const [what, objects, publishedPorts, lines] of rows) {
    test(what, () => {
      const scene = { program: 'fl', cluster: 'default', firstNode: 'node-1', publishedPorts };
      const text = upAdvice(scene, manifestsOf(objects, 'test').objects);
      const all = ['export KUBECONFIG=$(fl kubeconfig)', ...lines, 'fl status', 'fl down'];
      assert.equal(text, ['try:', ...all.map((line) => `  ${line}`), ''].join('\n'));
    });
  }
  test('name a cluster that is not the default', () => {
    const scene = { program: 'fl', cluster: 'b', firstNode: 'node-1', publishedPorts: [] };
    assert.match(upAdvice(scene, []), /fl status --name b\n/);
  });
});
