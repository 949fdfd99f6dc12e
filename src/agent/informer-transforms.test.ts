import assert from 'node:assert/strict';
import { describe, test } from 'node:test';
import type { EndpointSlice, Node, Service } from '../kube/types.ts';
import { createSliceTransform, trimNode, trimService } from './informer-transforms.ts';

const managedFields = [{ manager: 'kubectl', operation: 'Apply' }];

test('a Service is kept without its field owners and kubectl’s copy of the manifest', () => {
  const annotations = { 'kubectl.kubernetes.io/last-applied-configuration': '{…}', note: 'kept' };
  const service = { metadata: { name: 'web', managedFields, annotations }, spec: { clusterIP: '10.96.0.1' } };
  assert.deepEqual(trimService(service as Service), {
    metadata: { name: 'web', annotations: { note: 'kept' } },
    spec: { clusterIP: '10.96.0.1' },
  });
});

test('a Node is kept without the list of its images', () => {
  const node: Node = {
    metadata: { name: 'node-1' },
    status: { images: [{ names: ['a'] }], addresses: [{ type: 'InternalIP', address: '192.0.2.1' }] },
  };
  assert.deepEqual(trimNode(node), {
    metadata: { name: 'node-1' },
    status: { addresses: [{ type: 'InternalIP', address: '192.0.2.1' }] },
  });
});

describe('an EndpointSlice', () => {
  const endpoint = (i: number) => ({
    addresses: [`10.244.0.${i}`],
    conditions: { ready: true, serving: true, terminating: false },
    nodeName: ['node', '1'].join('-'),
    zone: 'a',
    targetRef: { kind: 'Pod', namespace: 'default', name: `web-${i}`, uid: `uid-${i}` },
  });
  const slice = (fields: object): EndpointSlice =>
    ({
      metadata: { name: 'web-x', namespace: 'default' },
      addressType: 'IPv4',
      ports: [{ name: 'http', protocol: 'TCP', port: 8080 }],
      endpoints: [],
      ...fields,
    }) as EndpointSlice;

  test('keeps the fields that forwarding, DNS and explain use', () => {
    const hints = { forZones: [{ name: 'a' }] };
    const kept = createSliceTransform()(
      slice({
        metadata: {
          name: 'web-x',
          namespace: 'default',
          uid: 'u',
          resourceVersion: '7',
          generation: 3,
          managedFields,
          ownerReferences: [{ kind: 'Service', name: 'web' }],
          labels: {
            'kubernetes.io/service-name': 'web',
            'service.kubernetes.io/service-proxy-name': 'x',
            app: 'web',
          },
          annotations: { 'endpoints.kubernetes.io/last-change-trigger-time': 'now', other: 'dropped' },
        },
        endpoints: [{ ...endpoint(1), hints, hostname: 'web-0', deprecatedTopology: {} }],
      }),
    );
    assert.deepEqual(kept, {
      metadata: {
        name: 'web-x',
        namespace: 'default',
        uid: 'u',
        resourceVersion: '7',
        labels: { 'kubernetes.io/service-name': 'web', 'service.kubernetes.io/service-proxy-name': 'x' },
        annotations: { 'endpoints.kubernetes.io/last-change-trigger-time': 'now' },
      },
      addressType: 'IPv4',
      ports: [{ name: 'http', protocol: 'TCP', port: 8080 }],
      endpoints: [
        {
          ...endpoint(1),
          targetRef: { kind: 'Pod', namespace: 'default', name: 'web-1' },
          hints,
          hostname: 'web-0',
        },
      ],
    });
  });

  test('shares conditions that are equal', () => {
    const transform = createSliceTransform();
    const [a] = transform(slice({ endpoints: [endpoint(1)] })).endpoints;
    const [b] = transform(slice({ endpoints: [endpoint(2)] })).endpoints;
    assert.equal(a?.conditions, b?.conditions);
  });

  const mistakes: Record<string, object> = {
    'endpoints is not a list': { endpoints: 'none' },
    'endpoints is null': { endpoints: null },
    'an endpoint is not an object': { endpoints: [null, 7, 'x', []] },
    'fields of the wrong type': {
      endpoints: [{ addresses: 'a', conditions: 'ready', nodeName: 7, zone: {}, targetRef: 'pod', hints: 1 }],
    },
    'conditions that are not booleans': {
      endpoints: [{ addresses: [], conditions: { ready: 'yes', serving: null } }],
    },
    'labels and annotations of the wrong type': {
      metadata: { name: 'a', namespace: 'b', labels: { 'kubernetes.io/service-name': 7 } },
    },
    'an invalid name': { metadata: { name: 7, namespace: null, extra: true } },
  };
  for (const [mistake, fields] of Object.entries(mistakes)) {
    test(`is kept unchanged, so that its readers report it: ${mistake}`, () => {
      const wrong = slice(fields);
      assert.deepEqual(createSliceTransform()(wrong), wrong);
    });
  }
});
