import { GROUPS } from './groups.ts';
import { notApplicable } from './not-applicable.ts';
import type { ResultSet } from './results.ts';

type Verdict = 'passed' | 'failed' | 'not applicable' | 'not run';

const SIGN: Readonly<Record<Verdict, string>> = {
  passed: '✓',
  failed: '✗',
  'not applicable': '–',
  'not run': ' ',
};

/** Renders docs/conformance.md: counts of each run, then every spec with its result in each run. */
export function conformanceDocument(sets: readonly ResultSet[]): string {
  const lines = [
    "# Results of Kubernetes' own end-to-end tests",
    '',
    'Generated from `tests/e2e/results` by `node tests/e2e/run.ts --document`; do not edit. How to run them:',
    '[tests/e2e/README.md](../tests/e2e/README.md). A spec that skips itself, or that cannot apply to a cluster of',
    'network namespaces, counts as not applicable, with its reason: ✓ passed, ✗ failed, – not applicable, empty not run.',
    '',
    '| specs | mode | IP family | Kubernetes | passed | failed | not applicable | not run |',
    '| --- | --- | --- | --- | --- | --- | --- | --- |',
  ];
  for (const group of GROUPS) {
    for (const set of sets.filter((one) => one.group === group.name)) {
      const verdicts = Object.keys(set.specs).map((name) => verdictOf(set, name).verdict);
      const count = (verdict: Verdict) => verdicts.filter((one) => one === verdict).length;
      lines.push(
        `| ${group.title} | ${set.mode} | ${set.family} | ${set.version} | ${count('passed')} | ${count('failed')} | ${count('not applicable')} | ${count('not run')} |`,
      );
    }
  }
  for (const group of GROUPS) {
    const ofGroup = sets.filter((one) => one.group === group.name);
    if (ofGroup.length > 0) lines.push('', ...groupSection(group.title, ofGroup));
  }
  return `${lines.join('\n')}\n`;
}

function groupSection(title: string, sets: readonly ResultSet[]): string[] {
  const names = [...new Set(sets.flatMap((set) => Object.keys(set.specs)))].sort();
  const columns = sets.map((set) => `${set.mode}, ${set.family}`);
  const reasons: string[] = [];
  const rows = names.map((name) => {
    const cells = sets.map((set) => {
      const { verdict, reason } = verdictOf(set, name);
      if (verdict === 'failed' || verdict === 'not applicable') {
        reasons.push(`* ${SIGN[verdict]} ${set.mode}, ${set.family}: ${text(name)}: ${text(reason)}`);
      }
      return SIGN[verdict];
    });
    return `| ${text(name)} | ${cells.join(' | ')} |`;
  });
  return [
    `## ${title}`,
    '',
    ...(reasons.length > 0 ? ['Not passed:', '', ...reasons, ''] : []),
    `| spec | ${columns.join(' | ')} |`,
    `| --- |${columns.map(() => ' --- |').join('')}`,
    ...rows,
  ];
}

function verdictOf(set: ResultSet, name: string): { verdict: Verdict; reason: string } {
  const spec = set.specs[name];
  if (!spec || spec.state === 'not run') return { verdict: 'not run', reason: '' };
  if (spec.state === 'passed') return { verdict: 'passed', reason: '' };
  const why = notApplicable(name, set.mode, spec.reason ?? '');
  if (why !== null) return { verdict: 'not applicable', reason: why };
  return { verdict: spec.state === 'skipped' ? 'not applicable' : 'failed', reason: spec.reason ?? '' };
}

/** Escapes text for a table in Markdown. */
const text = (value: string) => value.replace(/\|/g, '\\|').replace(/</g, '&lt;');
