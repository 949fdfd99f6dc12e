import assert from 'node:assert/strict';
import { test } from 'node:test';
import { readAuthority } from './authorities.ts';
import { findReferences } from './references.ts';
import {
  gateway,
  gatewayClass,
  ingress,
  ingressClass,
  object,
  objects,
  tlsListener,
} from './testing/objects.ts';

test('only what objects of ours refer to, and may, is read', () => {
  const grant = object(
    'grant',
    {
      from: [{ group: 'gateway.networking.k8s.io', kind: 'Gateway', namespace: 'default' }],
      to: [{ group: '', kind: 'Secret', name: 'granted' }],
    },
    { namespace: 'other' },
  );
  const refs = (...certificateRefs: readonly unknown[]) =>
    tlsListener('https', 'a.example', { tls: { certificateRefs } });
  const found = findReferences(
    objects({
      gatewayClasses: [gatewayClass(), object('theirs', { controllerName: 'x/y' })],
      ingressClasses: [ingressClass()],
      referenceGrants: [grant],
      gateways: [
        gateway(
          'gw',
          [
            refs(
              { name: 'own' },
              { name: 'granted', namespace: 'other' },
              { name: 'secret', namespace: 'other' },
              { name: 'no', kind: 'Pod' },
              7,
            ),
          ],
          {},
          {
            tls: {
              backend: { clientCertificateRef: { name: 'client' } },
              frontend: {
                default: {
                  validation: {
                    caCertificateRefs: [
                      { kind: 'ConfigMap', name: 'ca' },
                      { kind: 'ConfigMap', name: 'ca', namespace: 'other' },
                    ],
                  },
                },
                perPort: [
                  {
                    port: 1,
                    tls: { validation: { caCertificateRefs: [{ kind: 'Secret', name: 'port-ca' }] } },
                  },
                ],
              },
            },
          },
        ),
        object('theirs', { gatewayClassName: 'theirs', listeners: [refs({ name: 'theirs' })] }),
      ],
      listenerSets: [
        object('set', { listeners: [refs({ name: 'of-set' }, { name: 'granted', namespace: 'other' })] }),
      ],
      ingresses: [
        ingress('i', [], {}, { tls: [{ secretName: 'of-ingress' }] }),
        ingress('j', [], {}, { ingressClassName: 'nginx', tls: [{ secretName: 'of-nginx' }] }),
      ],
      backendTlsPolicies: [
        object('p', {
          validation: { caCertificateRefs: [{ kind: 'ConfigMap', name: 'backend-ca', namespace: 'other' }] },
        }),
      ],
    }),
  );
  assert.deepEqual(found.certificates, [
    'default/client',
    'default/of-ingress',
    'default/of-set',
    'default/own',
    'other/granted',
  ]);
  assert.deepEqual(found.authorities, [
    'default/ConfigMap/backend-ca',
    'default/ConfigMap/ca',
    'default/Secret/port-ca',
  ]);
});

test('authorities without a certificate are refused with the reason', () => {
  for (const [data, problem] of [
    [{}, /no ca.crt/],
    [{ 'ca.crt': '' }, /no ca.crt/],
    [{ 'ca.crt': 'text' }, /no PEM certificate/],
    [{ 'ca.crt': '-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----' }, /cannot be read/],
    [{ 'ca.crt': 'x'.repeat(600_000) }, /more than/],
    [null, /no ca.crt/],
  ] as const)
    assert.match(readAuthority('ConfigMap', data).problem ?? 'accepted', problem);
});
