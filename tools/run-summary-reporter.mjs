/**
 * A reporter of Node's test runner that finally names each failed test with the suites that it is in, which the runner's own
 * summary leaves out, and lists the files that took longest.
 */
const MAX_FILES = 12;
const MIN_MS = 2000;

export default async function* runSummary(source) {
  const files = new Map();
  const failed = [];
  for await (const { type, data } of source) {
    if ((type !== 'test:pass' && type !== 'test:fail') || !data.file) continue;
    if (type === 'test:fail') noteFailure(failed, data);
    if (data.nesting > 0) continue;
    files.set(data.file, (files.get(data.file) ?? 0) + (data.details?.duration_ms ?? 0));
  }
  for (const { file, names } of failed) yield `failed: ${relative(file)}: ${names.join(' › ')}\n`;
  const slow = [...files].filter(([, ms]) => ms >= MIN_MS).sort(([, a], [, b]) => b - a);
  if (slow.length === 0) return;
  yield 'took longest:\n';
  for (const [file, ms] of slow.slice(0, MAX_FILES)) {
    yield `${(ms / 1000).toFixed(1).padStart(8)} s  ${relative(file)}\n`;
  }
}

/** A suite's failure is reported after those of its tests, whose names it then completes. */
function noteFailure(failed, { file, nesting, name, details }) {
  const inside = failed.filter((one) => one.file === file && one.nesting === nesting + 1);
  for (const one of inside) {
    one.names.unshift(name);
    one.nesting = nesting;
  }
  if (inside.length === 0 || details?.error?.failureType !== 'subtestsFailed')
    failed.push({ file, nesting, names: [name] });
}

const relative = (file) => file.replace(`${process.cwd()}/`, '');
