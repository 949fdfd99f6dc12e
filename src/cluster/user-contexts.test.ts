import assert from 'node:assert/strict';
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after, test } from 'node:test';
import { findContext, userContexts } from './user-contexts.ts';

const folder = mkdtempSync(join(tmpdir(), 'flt-contexts-'));
after(() => rmSync(folder, { recursive: true }));

const write = (name: string, current: string, contexts: readonly string[]): string => {
  const file = join(folder, name);
  const list = contexts.map((one) => `- {name: ${one}, context: {cluster: ${one}, user: ${one}}}`);
  writeFileSync(file, `current-context: ${current}\ncontexts:\n${list.join('\n')}\n`);
  return file;
};
const first = write('first', 'work', ['work', 'fairlead-one']);
const second = write('second', 'fairlead-two', ['fairlead-two', 'fairlead-one']);

test('the clusters of a user are the contexts of fairlead in all files of KUBECONFIG', () => {
  const contexts = userContexts({ KUBECONFIG: `${first}:${second}:/nonexistent` });
  assert.deepEqual(
    contexts.map(({ cluster, file, isCurrent }) => [cluster, file, isCurrent]),
    [
      ['one', first, false],
      ['two', second, false],
    ],
  );
});

test('the current context is that of the first file', () => {
  const [one] = userContexts({ KUBECONFIG: second });
  assert.deepEqual([one?.cluster, one?.isCurrent], ['two', true]);
});

test('a cluster is found by its name', () => {
  assert.equal(findContext('two', { KUBECONFIG: second })?.name, 'fairlead-two');
  assert.equal(findContext('three', { KUBECONFIG: second }), null);
});
