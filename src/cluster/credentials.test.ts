import assert from 'node:assert/strict';
import { X509Certificate } from 'node:crypto';
import { mkdtempSync, readFileSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after, before, test } from 'node:test';
import { readKubeconfig } from '../kube/kubeconfig.ts';
import { announcerKubeconfig, completeNodeCredentials, writeCredentials } from './credentials.ts';
import { planCluster } from './plan.ts';
import { clusterPaths } from './state.ts';
import { CLUSTER_REQUEST } from './testing/cluster-request.ts';

const root = mkdtempSync(join(tmpdir(), 'credentials-'));
const earlier = process.env['FAIRLEAD_STATE'];
before(() => {
  process.env['FAIRLEAD_STATE'] = root;
});
after(() => {
  if (earlier === undefined) delete process.env['FAIRLEAD_STATE'];
  else process.env['FAIRLEAD_STATE'] = earlier;
  rmSync(root, { recursive: true });
});

const state = planCluster({ ...CLUSTER_REQUEST, name: 'demo', nodes: 2 }, [], '1', new Date(0));

/** Returns the subject of a kubeconfig's certificate, and whether the cluster's authority issued it. */
function subjectOf(file: string): [subject: string, isIssued: boolean] {
  const certificate = new X509Certificate(readKubeconfig(file).cert ?? '');
  const authority = new X509Certificate(readFileSync(join(clusterPaths('demo').pki, 'ca.crt')));
  return [certificate.subject.replaceAll('\n', ', '), certificate.verify(authority.publicKey)];
}

test('each node has an identity of its own, and one for the Leases of announced addresses', () => {
  writeCredentials(state);
  for (const node of state.nodes) {
    const own = join(clusterPaths('demo').node(node.name), 'kubeconfig');
    assert.deepEqual(subjectOf(own), [`O=system:nodes, CN=system:node:${node.name}`, true]);
    const announcer = announcerKubeconfig(state, node);
    assert.deepEqual(subjectOf(announcer), [
      `O=fairlead:announcers, CN=fairlead:announcer:${node.name}`,
      true,
    ]);
  }
});

test('a node of an earlier version gets the missing one; others keep theirs', () => {
  writeCredentials(state);
  const [first, second] = state.nodes;
  assert.ok(first && second);
  rmSync(announcerKubeconfig(state, first));
  const kept = readFileSync(announcerKubeconfig(state, second), 'utf8');
  for (const node of [first, second]) completeNodeCredentials(state, node);
  assert.deepEqual(subjectOf(announcerKubeconfig(state, first)), [
    `O=fairlead:announcers, CN=fairlead:announcer:${first.name}`,
    true,
  ]);
  assert.equal(readFileSync(announcerKubeconfig(state, second), 'utf8'), kept);
});
