import assert from 'node:assert/strict';
import { test } from 'node:test';
import { renderFacts } from './output-format.ts';

const FACTS = { name: 'web', ports: [80] };
const ROWS = [
  ['-o json', { output: 'json', json: false }, '{\n  "name": "web",\n  "ports": [\n    80\n  ]\n}\n'],
  ['--json', { output: 'text', json: true }, '{\n  "name": "web",\n  "ports": [\n    80\n  ]\n}\n'],
  ['-o yaml', { output: 'yaml', json: false }, 'name: web\nports:\n  - 80\n'],
  ['neither: the text of the command', { output: 'text', json: false }, null],
] as const;
for (const [what, options, rendered] of ROWS) {
  test(what, () => assert.equal(renderFacts(FACTS, options), rendered));
}
