import assert from 'node:assert/strict';
import { describe, test } from 'node:test';
import { goldenServices } from '../dataplane/testing/golden-services.ts';
import type { Service } from '../kube/types.ts';
import type { ControlSources } from './control-sources.ts';
import { answerModes } from './modes-part.ts';

const service = (name: string, spec: object): Service =>
  ({ metadata: { namespace: 'shop', name }, spec }) as Service;

const SERVICES = [
  service('plain', { clusterIP: '10.96.0.1' }),
  service('pods', { clusterIP: 'None' }),
  service('elsewhere', { type: 'ExternalName', externalName: 'example.com' }),
  service('names', { clusterIP: '10.96.0.10' }),
  service('young', { clusterIP: '10.96.0.9' }),
];

/** Sources with only what the answer reads; `map` null: nothing is programmed yet. */
function sources(map: ReturnType<typeof goldenServices> | null): ControlSources {
  const proxy = {
    map,
    dataplane: {},
    drifts: async () => [{ object: 'table ip fairlead map services', kind: 'missing' }],
  };
  const part = { proxy, mode: 'nftables', nodeIn: () => map?.node };
  return { part, services: { list: () => SERVICES } } as unknown as ControlSources;
}

describe('the answer to POST /modes', () => {
  const REFUSED = [
    { what: 'a name that is not given', name: '', message: /namespace and name are needed/ },
    { what: 'the cluster DNS of the node', name: 'names', message: /answered by this node itself/ },
    { what: 'a headless Service', name: 'pods', message: /shop\/pods has no address \(headless\)/ },
    { what: 'an ExternalName Service', name: 'elsewhere', message: /DNS name only \(ExternalName\)/ },
    {
      what: 'a Service that the table does not have',
      name: 'young',
      message: /no address in the forwarding/,
    },
    {
      what: 'an unknown Service',
      name: 'plane',
      message: /no such Service: shop\/plane/,
      hint: 'shop/plain',
    },
  ];
  for (const { what, name, message, hint = '' } of REFUSED) {
    test(`${what} is refused, with the reason`, async () => {
      await assert.rejects(
        answerModes(sources(goldenServices()), { namespace: 'shop', name }),
        (error: Error & { hint?: string }) => {
          assert.match(error.message, message);
          assert.ok((error.hint ?? '').includes(hint), error.hint);
          return true;
        },
      );
    });
  }

  test('before the first programming there is nothing to compare', async () => {
    await assert.rejects(
      answerModes(sources(null), { namespace: 'shop', name: 'plain' }),
      /nothing is programmed/,
    );
  });

  test('the mode in use has the differences of the kernel', async () => {
    const { mode, modes } = await answerModes(sources(goldenServices()), {
      namespace: 'shop',
      name: 'plain',
    });
    assert.equal(mode, 'nftables');
    assert.deepEqual(
      modes.filter(({ drifts }) => drifts !== null).map(({ mode, drifts }) => [mode, drifts]),
      [['nftables', ['table ip fairlead map services: missing']]],
    );
  });
});
