import assert from 'node:assert/strict';
import { before, describe, test } from 'node:test';
import type { FrontendKind } from '../../service/model.ts';
import { clusterIP, everywhere, FAMILIES, type ServiceScene } from './service-scene.ts';
import { type Place, SILENCE_MS } from './topology.ts';

const RANGES = ['192.0.2.20/32', 'fd00:2::20/128'];

type Row = [what: string, from: Place, kind: FrontendKind, n: number, answer: string | RegExp];

const ROWS: readonly Row[] = [
  ['no endpoints', 'pod3', 'ClusterIP', 30, 'refused'],
  ['no endpoints', 'node', 'ClusterIP', 30, 'refused'],
  ['no endpoints', 'outside', 'ClusterIP', 30, 'refused'],
  ['no endpoints', 'pod3', 'NodePort', 30, 'refused'],
  ['no endpoints', 'node', 'NodePort', 30, 'refused'],
  ['no endpoints', 'outside', 'NodePort', 30, 'refused'],
  ['no endpoints', 'pod3', 'LoadBalancer', 30, 'refused'],
  ['no endpoints', 'node', 'LoadBalancer', 30, 'refused'],
  ['no endpoints', 'outside', 'LoadBalancer', 30, 'refused'],
  ['external policy Local without a local endpoint', 'outside', 'NodePort', 31, 'silence'],
  ['external policy Local without a local endpoint', 'outside', 'LoadBalancer', 31, 'silence'],
  ['external policy Local: pods reach endpoints of other nodes', 'pod3', 'LoadBalancer', 31, /^far /],
  ['external policy Local: the node reaches endpoints of other nodes', 'node', 'NodePort', 31, /^far /],
  ['internal policy Local without a local endpoint', 'pod3', 'ClusterIP', 32, 'silence'],
  ['internal policy Local without a local endpoint', 'node', 'ClusterIP', 32, 'silence'],
  ['internal policy does not affect node ports', 'outside', 'NodePort', 32, /^far /],
  ['a source in the ranges', 'outside', 'LoadBalancer', 33, /^pod1 /],
  ['a source outside the ranges', 'pod3', 'LoadBalancer', 33, 'silence'],
  ['the node outside the ranges', 'node', 'LoadBalancer', 33, 'silence'],
  ['source ranges do not affect node ports', 'pod3', 'NodePort', 33, /^pod1 /],
  ['in the ranges, no endpoints', 'outside', 'LoadBalancer', 34, 'refused'],
  ['outside the ranges, no endpoints', 'pod3', 'LoadBalancer', 34, 'silence'],
  ['ranges that contain all addresses', 'pod3', 'LoadBalancer', 35, /^pod1 /],
  ['empty source ranges', 'outside', 'LoadBalancer', 36, 'silence'],
];

/** Tests which clients are rejected, and which get no answer. */
export function testRefusals(scene: ServiceScene): void {
  describe('rejected and dropped packets', () => {
    before(() => {
      const { service } = scene;
      return scene.sync([
        ...service(30, []),
        ...service(31, ['far'], 'external-local'),
        ...service(32, ['far'], 'internal-local'),
        ...service(33, ['pod1'], 'plain', { allowedSources: RANGES }),
        ...service(34, [], 'plain', { allowedSources: RANGES }),
        ...service(35, ['pod1'], 'plain', { allowedSources: ['0.0.0.0/0', '::/0'] }),
        ...service(36, ['pod1'], 'plain', { allowedSources: [] }),
      ]);
    });
    for (const [what, from, kind, n, expected] of ROWS) {
      test(`${what}: ${from} → ${kind}: ${expected}`, () =>
        everywhere(async (family, protocol) => {
          const patience = expected === 'silence' ? SILENCE_MS : undefined;
          const answer = await scene.ask(from, protocol, ...scene.destination(kind, family, n), patience);
          if (typeof expected === 'string') assert.equal(answer, expected, `${family} ${protocol}`);
          else assert.match(answer, expected, `${family} ${protocol}`);
        }));
    }
    test('with external policy Local, a remote endpoint sees the pod’s address, or the proxy’s', () =>
      everywhere(async (family, protocol) => {
        const to = scene.destination('LoadBalancer', family, 31);
        await scene.expectPlaces('pod3', protocol, to, ['far'], scene.proxy);
      }));
    test('a wrong port of a cluster IP is refused, packets to an unused address are dropped', async () => {
      for (const from of ['pod3', 'node', 'outside'] as const) {
        for (const family of FAMILIES) {
          assert.equal(await scene.ask(from, 'TCP', clusterIP(family, 33), 81), 'refused');
          assert.equal(await scene.ask(from, 'UDP', clusterIP(family, 33), 81), 'refused');
          assert.equal(await scene.ask(from, 'TCP', clusterIP(family, 99), 80, SILENCE_MS), 'silence');
        }
      }
    });
    test('the kernel has the expected state', () => scene.expectVerified());
  });
}
