import assert from 'node:assert/strict';
import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after, test } from 'node:test';
import type { Client } from '../kube/client.ts';
import type { Resource } from '../kube/types.ts';
import { listFaults } from './faults.ts';
import type { ClusterState } from './state.ts';

const folder = mkdtempSync(join(tmpdir(), 'fairlead-faults-'));
process.env['FAIRLEAD_STATE'] = folder;
after(() => rmSync(folder, { recursive: true, force: true }));

test('a pod that ends after it was listed has no fault, and does not keep the others from being listed', async () => {
  const ended = {
    metadata: { name: 'ended', namespace: 'default', uid: 'u' },
    spec: { nodeName: 'node-1' },
    status: { phase: 'Running' },
  };
  const client = {
    list: async ({ plural }: Resource<object>) => ({ items: plural === 'pods' ? [ended] : [] }),
  } as unknown as Client;
  const state = { name: 'gone', nodes: [] } as unknown as ClusterState;
  assert.deepEqual(await listFaults(state, client), []);
});
