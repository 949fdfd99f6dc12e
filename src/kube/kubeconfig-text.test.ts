import assert from 'node:assert/strict';
import { test } from 'node:test';
import { parse } from 'yaml';
import { kubeconfigJson, kubeconfigText } from './kubeconfig-text.ts';

test('a kubeconfig has the same contents as JSON and as YAML', () => {
  const options = { name: 'a: "b"', server: 'https://[fd00::1]:6443', ca: 'CA', cert: 'C', key: 'K' };
  assert.deepEqual(JSON.parse(kubeconfigJson(options)), parse(kubeconfigText(options)));
});
