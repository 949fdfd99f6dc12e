import assert from 'node:assert/strict';
import { describe, test } from 'node:test';
import type { EndpointSlice, Node, Pod, Service } from '../kube/types.ts';
import type { Problem } from './problem.ts';
import {
  egressProblems,
  gatewayProblems,
  nodeProblems,
  podNotReady,
  portProblem,
  recordNotWritable,
  serviceProblems,
} from './status-problems.ts';

const CLUSTER = { name: 'demo' };
const metadata = { namespace: 'shop', name: 'web' };
const node = (...conditions: [type: string, status: string, message: string][]) =>
  ({
    metadata: { name: 'node-1' },
    status: { conditions: conditions.map(([type, status, message]) => ({ type, status, message })) },
  }) as Node;
const READY: [string, string, string] = ['Ready', 'True', ''];
const service = (spec: object = {}) =>
  ({ metadata, spec: { selector: { app: 'web' }, ...spec }, status: {} }) as Service;
const slice = (ready: boolean) =>
  ({ metadata, endpoints: [{ addresses: ['10.244.0.2'], conditions: { ready } }] }) as EndpointSlice;
const pod = (labels: Record<string, string>, status: object = {}) =>
  ({ metadata: { ...metadata, name: 'web-0', labels }, status }) as Pod;
const objects = (slices: EndpointSlice[], pods: Pod[]) => ({ slices, pods, leases: [] });

describe('status names the fix, or where to look, for', () => {
  const rows: readonly [what: string, problems: readonly Problem[], expected: RegExp | null][] = [
    [
      'a record that cannot be written',
      [recordNotWritable('ENOSPC', CLUSTER)],
      /ENOSPC; make it writable: \/.*processes\.json$/,
    ],
    ['a node that is ready', nodeProblems('node-1', node(READY), CLUSTER), null],
    [
      'a node that has not registered',
      nodeProblems('node-1', undefined, CLUSTER),
      /not ready: it has not reported; see its log: \/.*node-1\.log$/,
    ],
    [
      'a node that is not ready',
      nodeProblems('node-1', node(['Ready', 'False', 'no CNI']), CLUSTER),
      /not ready: no CNI; see its log: /,
    ],
    [
      'a network that cannot be repaired',
      nodeProblems('node-1', node(READY, ['NetworkUnavailable', 'True', 'fl0 is down']), CLUSTER),
      /network: fl0 is down; remove the cause, its agent tries again; see its log: /,
    ],
    ['a Service with a ready endpoint', serviceProblems(service(), objects([slice(true)], [])), null],
    [
      'a Service whose pods are not ready',
      serviceProblems(service(), objects([slice(false)], [pod({ app: 'web' })])),
      /no ready endpoint; see: kubectl -n shop get pods -l app=web$/,
    ],
    [
      'a Service that selects no pod',
      serviceProblems(service(), objects([], [pod({ app: 'other' })])),
      /no ready endpoint; no pod has the labels app=web: create one, or correct the selector$/,
    ],
    [
      'a load-balancer address that no node announces',
      serviceProblems(
        {
          ...service({ type: 'LoadBalancer' }),
          status: { loadBalancer: { ingress: [{ ip: '172.30.0.200', ipMode: 'VIP' }] } },
        } as Service,
        objects([slice(true)], []),
      ),
      /no node announces 172\.30\.0\.200; see: kubectl -n shop describe service web$/,
    ],
    [
      'a pod that cannot be scheduled',
      [
        podNotReady(
          pod({}, { conditions: [{ type: 'PodScheduled', status: 'False', message: 'no node fits' }] }),
        ),
      ].filter((one) => one !== null),
      /no node fits; see: kubectl -n shop describe pod web-0$/,
    ],
    [
      'a pod that has ended',
      [podNotReady(pod({}, { phase: 'Succeeded' }))].filter((one) => one !== null),
      null,
    ],
    [
      'a published port in use',
      [portProblem(8080, 'in use')],
      /in use; stop the program .* or publish another port: fairlead up --publish$/,
    ],
    [
      'a family without a default route',
      egressProblems([{ family: 'ipv4', uplinks: [], problem: 'no default route' }], null),
      /over IPv4: no default route$/,
    ],
    ['names', egressProblems([], 'no name server'), /do not resolve external names: no name server$/],
  ];
  for (const [what, problems, expected] of rows) {
    test(what, () => {
      assert.equal(problems.length, expected === null ? 0 : 1);
      if (expected) assert.match(problems[0]?.message ?? '', expected);
    });
  }
});

describe('a problem names its code, object and field for', () => {
  const rows: readonly (readonly [string, readonly Problem[], Omit<Problem, 'message'>])[] = [
    [
      'a Service that selects no pod',
      serviceProblems(service(), objects([], [])),
      { code: 'service-without-endpoints', object: 'Service shop/web', field: 'spec.selector' },
    ],
    [
      'a Service whose pods are not ready: its selector is right',
      serviceProblems(service(), objects([], [pod({ app: 'web' })])),
      { code: 'service-without-endpoints', object: 'Service shop/web', field: null },
    ],
    [
      'a node that has not registered',
      nodeProblems('node-1', undefined, CLUSTER),
      { code: 'node-not-ready', object: 'Node node-1', field: null },
    ],
    [
      'a published port in use',
      [portProblem(8080, 'in use')],
      { code: 'port-closed', object: 'published port 8080', field: null },
    ],
  ];
  for (const [what, [found], expected] of rows) {
    test(what, () => {
      assert.ok(found);
      const { message, ...rest } = found;
      assert.deepEqual(rest, expected);
    });
  }
});

test('an EgressGateway is a problem while no node has its address, or it is not accepted', () => {
  const condition = (type: string, status: 'True' | 'False', message: string) => ({
    ...{ type, status, message, reason: 'Because', lastTransitionTime: '2026-01-01T00:00:00Z' },
  });
  const of = (...conditions: ReturnType<typeof condition>[]) =>
    gatewayProblems({ metadata: { name: 'partner' }, status: { conditions } }).map(({ message }) => message);
  assert.deepEqual(of(condition('Accepted', 'True', 'ok'), condition('Ready', 'True', 'ok')), []);
  assert.deepEqual(of(condition('Accepted', 'True', 'ok'), condition('Ready', 'False', 'no node has it')), [
    'EgressGateway partner: no node has it',
  ]);
  assert.deepEqual(of(condition('Accepted', 'False', 'wrong'), condition('Ready', 'False', 'no')), [
    'EgressGateway partner: wrong',
  ]);
  assert.match(of()[0] ?? '', /no agent has reported/);
});
