import assert from 'node:assert/strict';
import { mkdirSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { type TestContext, test } from 'node:test';
import { DEFAULT_CLUSTER, isUnfinished, readCluster, usualCluster } from './state.ts';

const ROWS: readonly { readonly name: string; readonly files: readonly string[] | null; is: boolean }[] = [
  { name: 'no folder', files: null, is: false },
  { name: 'a folder without the state: up was killed before its first write', files: [], is: true },
  { name: 'a state that is half written', files: ['cluster.json.812.0.new'], is: true },
  { name: 'a cluster', files: ['cluster.json', 'cluster.json.812.0.new'], is: false },
  { name: 'a folder of something else', files: ['notes.txt'], is: false },
];

/** Returns an empty folder for the state of clusters. */
function stateFolder(t: TestContext): string {
  const root = mkdtempSync(join(tmpdir(), 'state-'));
  const earlier = process.env['FAIRLEAD_STATE'];
  process.env['FAIRLEAD_STATE'] = root;
  t.after(() => {
    if (earlier === undefined) delete process.env['FAIRLEAD_STATE'];
    else process.env['FAIRLEAD_STATE'] = earlier;
    rmSync(root, { recursive: true });
  });
  return root;
}

for (const { name, files, is } of ROWS) {
  test(`${name}: ${is ? 'down removes it' : 'not taken for an interrupted up'}`, (t) => {
    const root = stateFolder(t);
    if (files) mkdirSync(join(root, 'one'));
    for (const file of files ?? []) writeFileSync(join(root, 'one', file), '');
    assert.equal(isUnfinished('one'), is);
  });
}

for (const { what, stored, pools } of [
  { what: 'none', stored: [], pools: [] },
  {
    what: 'addresses without a name, as earlier versions wrote them',
    stored: ['192.0.2.0/28', '192.0.2.77'],
    pools: [{ name: 'default', ranges: ['192.0.2.0/28', '192.0.2.77'] }],
  },
  {
    what: 'pools',
    stored: [{ name: 'vip', ranges: ['192.0.2.0/28'], autoAssign: false }],
    pools: [{ name: 'vip', ranges: ['192.0.2.0/28'], autoAssign: false }],
  },
]) {
  test(`load-balancer pools of a stored cluster: ${what}`, (t) => {
    const root = stateFolder(t);
    mkdirSync(join(root, 'one'));
    writeFileSync(
      join(root, 'one', 'cluster.json'),
      JSON.stringify({ nodes: [], loadBalancerPools: stored }),
    );
    assert.deepEqual(readCluster('one')?.loadBalancerPools, pools);
  });
}

const WITHOUT_CONTEXTS = { KUBECONFIG: '/nonexistent' };
for (const [what, clusters, environment, chosen] of [
  ['FAIRLEAD_CLUSTER', ['one', 'two'], { FAIRLEAD_CLUSTER: 'two' }, 'two'],
  ['the only cluster', ['one'], {}, 'one'],
  ['"default" of several', ['one', 'two'], {}, DEFAULT_CLUSTER],
  ['"default" without a cluster', [], {}, DEFAULT_CLUSTER],
] as const) {
  test(`without --name, commands use ${what}`, (t) => {
    const root = stateFolder(t);
    for (const name of clusters) {
      mkdirSync(join(root, name));
      writeFileSync(join(root, name, 'cluster.json'), '');
    }
    assert.equal(usualCluster({ ...WITHOUT_CONTEXTS, ...environment }), chosen);
  });
}
