import assert from 'node:assert/strict';
import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { test } from 'node:test';
import { conformanceDocument } from './conformance-document.ts';
import { readReport } from './ginkgo-report.ts';
import { notApplicable } from './not-applicable.ts';
import { loadResults } from './results.ts';

const spec = (text: string, State: string, Message?: string) => ({
  LeafNodeType: 'It',
  LeafNodeText: text,
  ContainerHierarchyTexts: ['[sig-network] Services'],
  State,
  ...(Message === undefined ? {} : { Failure: { Message } }),
});

const states: readonly [what: string, state: string, message: string | undefined, expected: string | null][] =
  [
    ['a spec that passed', 'passed', undefined, 'passed'],
    ['a spec that failed', 'failed', 'timed out', 'failed'],
    ['a spec that panicked', 'panicked', 'nil map', 'failed'],
    ['a spec that skipped itself, with its reason', 'skipped', 'needs SCTP', 'skipped'],
    ['a spec excluded by the focus', 'skipped', undefined, null],
    ['a spec that exceeded its own timeout', 'timedout', 'A node timeout occurred', 'failed'],
    ['a spec that was running at the timeout of the run', 'timedout', 'A suite timeout occurred', null],
    ['a spec that was interrupted', 'interrupted', 'Interrupted by User', null],
  ];
for (const [what, state, message, expected] of states) {
  test(`${what} is ${expected ?? 'not reported'}`, () => {
    const [result] = readReport(JSON.stringify([{ SpecReports: [spec('x', state, message)] }]));
    assert.equal(result?.state ?? null, expected);
  });
}

test('the reason of a failed spec is one line of text', () => {
  const [result] = readReport(
    JSON.stringify([{ SpecReports: [spec('x', 'failed', 'k8s\0\n\u0002 refused\uFFFD')] }]),
  );
  assert.equal(result?.reason, 'k8s refused');
});

test('set-up steps are not specs', () => {
  const before = { ...spec('', 'passed'), LeafNodeType: 'SynchronizedBeforeSuite' };
  assert.deepEqual(readReport(JSON.stringify([{ SpecReports: [before] }])), []);
});

test('a spec that is not applicable for one reason has failed if it fails for another', () => {
  const spec = '[sig-node] Pod InPlace Resize Container resize pod via the replace endpoint';
  const reason = notApplicable(spec, 'nftables', 'Timed out: failed to read cgroup value "/sys/fs/cgroup/x"');
  assert.match(reason ?? '', /cgroup v1/);
  assert.equal(notApplicable(spec, 'nftables', 'timed out waiting for the condition'), null);
});

test('docs/conformance.md is rendered from the results', () => {
  const file = join(import.meta.dirname, '..', '..', 'docs', 'conformance.md');
  assert.equal(readFileSync(file, 'utf8'), conformanceDocument(loadResults()));
});
