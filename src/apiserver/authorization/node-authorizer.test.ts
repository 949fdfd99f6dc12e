import assert from 'node:assert/strict';
import { test } from 'node:test';
import { createNodeAuthorizer } from './node-authorizer.ts';
import type { NodeGraph } from './node-graph.ts';

const authorizer = createNodeAuthorizer({ runs: () => false, refers: () => false } as unknown as NodeGraph);
const NODE = { name: 'system:node:n1', groups: ['system:nodes', 'system:authenticated'] };

const ROWS: readonly { verb: string; name?: string; fieldSelector?: string; allowed: boolean }[] = [
  { verb: 'get', name: 'n1', allowed: true },
  { verb: 'get', name: 'n2', allowed: false },
  { verb: 'list', allowed: false },
  { verb: 'watch', allowed: false },
  { verb: 'list', fieldSelector: 'metadata.name=n1', allowed: true },
  { verb: 'watch', fieldSelector: 'metadata.name=n1', allowed: true },
  { verb: 'list', fieldSelector: 'metadata.name=n2', allowed: false },
  { verb: 'list', fieldSelector: 'spec.unschedulable=false', allowed: false },
];

for (const { verb, name = '', fieldSelector, allowed } of ROWS) {
  const what = [verb, name, fieldSelector].filter(Boolean).join(' ');
  test(`a node ${allowed ? 'may' : 'may not'} ${what} nodes`, async () => {
    const { verdict } = await authorizer.authorize({
      ...{ user: NODE, verb, name, isResourceRequest: true, apiGroup: '', apiVersion: 'v1' },
      ...{ resource: 'nodes', subresource: '', namespace: '', path: '' },
      ...(fieldSelector === undefined ? {} : { fieldSelector }),
    });
    assert.equal(verdict === 'allow', allowed);
  });
}
