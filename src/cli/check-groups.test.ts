import assert from 'node:assert/strict';
import { test } from 'node:test';
import { command } from './check.ts';
import { checkGroups, noSuchFlow } from './check-groups.ts';

test('check --only without a value lists the groups', async () => {
  const output = { out() {}, err() {}, interactive: false, columns: null };
  await assert.rejects(command.run(['--only'], output as never), (error: Error) => {
    assert.match(error.message, /^--only needs a value: TEXT, such as a word of these:\n/);
    for (const group of checkGroups()) assert.ok(error.message.includes(group), group);
    return true;
  });
});
test('a word that no flow has is answered with the groups', () => {
  assert.match(noSuchFlow(['nosuch']).message, /no flow matches --only nosuch.*\n {2}plain: .*\n/);
});
test('each group begins the descriptions of its flows', () => {
  const groups = checkGroups();
  assert.ok(groups.length > 10);
  assert.ok(groups.some((group) => group.startsWith('policy: without a policy')));
});
