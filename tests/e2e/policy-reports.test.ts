import assert from 'node:assert/strict';
import { test } from 'node:test';
import { cyclonusCases, cyclonusDocument, cyclonusSection } from './policy-reports.ts';

const JUNIT = `<testsuite tests="0" failures="0" time="" name="cyclonus">
    <properties></properties>
    <testcase classname="" name="set pod selector to [&#34;MatchLabels&#34;]" time=""></testcase>
    <testcase classname="" name="deny a | b" time="">
        <failure message="9 wrong" type="">a &lt; b</failure>
    </testcase>
</testsuite>`;

test('the cases of cyclonus are read from its JUnit report, whose own counts are 0', () => {
  const cases = cyclonusCases(JUNIT);
  assert.deepEqual(cases, [
    { name: 'set pod selector to ["MatchLabels"]', problem: null },
    { name: 'deny a | b', problem: '9 wrong' },
  ]);
  const section = cyclonusSection(cases, { include: 'action', exclude: 'sctp' });
  const document = cyclonusDocument('', section, 'ebpf');
  assert.match(document, /^1 of 2 cases passed\.$/m);
  assert.match(document, /^\| deny a \\\| b \| 9 wrong \|$/m);
  const other = cyclonusSection(cases.slice(0, 1), { include: '', exclude: 'sctp' });
  const both = cyclonusDocument(cyclonusDocument(document, other, 'ebpf'), section, 'ebpf');
  assert.match(both, /^2 of 3 cases passed\. Each section/m);
  assert.equal(both.match(/^## /gm)?.length, 2);
  assert.equal(cyclonusDocument(both, other, 'ebpf'), both);
});
