import { relative } from 'node:path';
import { type Failure, type FileResult, MAX_UNSTEADY, type Verdict } from './results.ts';

const MAX_SLOWEST = 12;
const MAX_FAILURES = 30;
const MAX_LINES_OF_FIRST = 25;
const MAX_LINES = 6;
const MAX_CHARACTERS = 8000;

/** The line that says how a file ended. */
export function describeResult(result: FileResult): string {
  const { failures, seconds, file, passed, skipped } = result;
  const counts = [
    `${passed} passed`,
    failures.length > 0 && `${failures.length} failed`,
    skipped > 0 && `${skipped} skipped`,
  ];
  return `${failures.length > 0 ? 'FAIL' : 'ok  '} ${seconds.toFixed(1).padStart(7)} s  ${file} (${counts.filter(Boolean).join(', ')})`;
}

/** Lists failures, short enough for the end of a long log: the first one at length. */
export function describeFailures(results: readonly FileResult[]): string {
  const all = results.flatMap(({ file, failures }) => failures.map((failure) => ({ file, failure })));
  const lines = all.slice(0, MAX_FAILURES).flatMap(({ file, failure }, i) => [
    `failed: ${[file, ...failure.names].join(' › ')}`,
    ...textOf(failure)
      .slice(0, i === 0 ? MAX_LINES_OF_FIRST : MAX_LINES)
      .map((line) => `    ${line}`),
  ]);
  if (all.length > MAX_FAILURES) lines.push(`and ${all.length - MAX_FAILURES} more failures`);
  const text = lines.join('\n');
  return text.length > MAX_CHARACTERS ? `${text.slice(0, MAX_CHARACTERS)}…` : text;
}

export function textOf({ message, stack }: Failure): readonly string[] {
  return [...message.split('\n'), ...stack.slice(0, 4)];
}

/** Lists the slowest files: seconds, seconds of processors, and seconds outside of tests. */
export function describeSlowest(results: readonly FileResult[]): readonly string[] {
  const slowest = results.toSorted((a, b) => b.seconds - a.seconds).slice(0, MAX_SLOWEST);
  return slowest.map(
    ({ seconds, processorSeconds, file }) =>
      `${seconds.toFixed(1).padStart(8)} s, ${(processorSeconds?.toFixed(1) ?? '?').padStart(6)} s of processors  ${file}`,
  );
}

/** The table by file, tab-separated. */
export function timesTable(results: readonly FileResult[]): string {
  const head = 'part\tfile\tseconds\tprocessor seconds\tseconds outside of tests\tpassed\tfailed\tskipped';
  const rows = results
    .toSorted((a, b) => b.seconds - a.seconds)
    .map((one) =>
      [
        one.part,
        one.file,
        one.seconds.toFixed(1),
        one.processorSeconds?.toFixed(1) ?? '',
        Math.max(0, one.seconds - one.testSeconds).toFixed(1),
        one.passed,
        one.failed,
        one.skipped,
      ].join('\t'),
    );
  return `${[head, ...rows].join('\n')}\n`;
}

/** Reads the seconds of each file from a table of an earlier run. */
export function parseTimesTable(text: string): ReadonlyMap<string, number> {
  return new Map(
    text
      .split('\n')
      .slice(1)
      .flatMap((line): readonly (readonly [string, number])[] => {
        const [, file = '', seconds = ''] = line.split('\t');
        return file === '' ? [] : [[file, Number(seconds)]];
      }),
  );
}

/** The last lines of a run, the counts alone on the last one. */
export function describeVerdict(verdict: Verdict, output: string): string {
  const { failed, unsteady, isPassed, passedTests, failedTests, skippedTests } = verdict;
  const lines: string[] = [];
  if (failed.length > 0) lines.push('', describeFailures(failed));
  if (unsteady.length > 0) {
    const many = unsteady.length > MAX_UNSTEADY ? `; more than ${MAX_UNSTEADY} fail the run` : '';
    const list = relative(process.cwd(), `${output}/unsteady.jsonl`);
    lines.push('', `unsteady, failed once and passed when run again (${list})${many}:`);
    lines.push(describeFailures(unsteady));
  }
  if (failed.length > 0) lines.push('', `failed: ${[...new Set(failed.map(({ file }) => file))].join(' ')}`);
  if (skippedTests > 0) lines.push(`${skippedTests} skipped`);
  // A run fails also by unsteady files, each of which then counts.
  const failures = isPassed ? 0 : Math.max(failedTests, failed.length > 0 ? 1 : unsteady.length);
  lines.push(`${passedTests} passed, ${failures} failed`);
  return lines.join('\n');
}
