import assert from 'node:assert/strict';
import { describe, test } from 'node:test';
import type { Pod, Service } from '../kube/types.ts';
import { backendsOf } from './who-can.ts';

const pod = (name: string, fields: { app?: string; port?: number; namespace?: string } = {}): Pod => ({
  metadata: { name, namespace: fields.namespace ?? 'shop', labels: { app: fields.app ?? 'web', name } },
  spec: {
    containers: [{ name: 'c', ports: [{ name: 'http', containerPort: fields.port ?? 8080 }] }],
  },
  status: { phase: 'Running', podIPs: [{ ip: '10.244.0.9' }] },
});
const PODS = [
  pod('a'),
  pod('b', { port: 9090 }),
  pod('other', { app: 'db' }),
  pod('elsewhere', { namespace: 'x' }),
];
const service = (
  ports: NonNullable<NonNullable<Service['spec']>['ports']>,
  selector = { app: 'web' },
): Service => ({
  metadata: { name: 'web', namespace: 'shop' },
  spec: { selector, ports },
});

describe('who can reach a Service: the pods behind it', () => {
  const rows: readonly {
    readonly name: string;
    readonly service: Service;
    readonly port?: number | string;
    readonly found: readonly string[] | RegExp;
  }[] = [
    {
      name: 'its only port, by a named target port: the number of each pod',
      service: service([{ port: 80, targetPort: 'http' }]),
      found: ['shop/a 8080', 'shop/b 9090'],
    },
    {
      name: 'a port by number',
      service: service([{ port: 80 }]),
      port: 80,
      found: ['shop/a 80', 'shop/b 80'],
    },
    {
      name: 'a port by name',
      service: service([
        { name: 'x', port: 80 },
        { name: 'y', port: 81, targetPort: 7 },
      ]),
      port: 'y',
      found: ['shop/a 7', 'shop/b 7'],
    },
    {
      name: 'several ports, none named',
      service: service([
        { name: 'x', port: 80 },
        { name: 'y', port: 81, protocol: 'TCP' },
      ]),
      found: /name one of the Service's ports: 80\/TCP, 81\/TCP/,
    },
    { name: 'a port that it does not have', service: service([{ port: 80 }]), port: 90, found: /80\/TCP/ },
    {
      name: 'a port of another protocol',
      service: service([{ port: 53, protocol: 'UDP' }]),
      found: /53\/UDP/,
    },
    { name: 'no selector', service: service([{ port: 80 }], {} as never), found: /has no selector/ },
    {
      name: 'no pods',
      service: service([{ port: 80 }], { app: 'none' }),
      found: /no pod behind "svc\/shop\/web"/,
    },
  ];
  for (const { name, service, port = null, found } of rows) {
    test(name, () => {
      const ask = () => backendsOf(service, PODS, { text: 'svc/shop/web', port, protocol: 'TCP' });
      if (found instanceof RegExp) assert.throws(ask, found);
      else
        assert.deepEqual(
          ask().map((one) => `${one.pod.key} ${one.port}`),
          found,
        );
    });
  }
});
