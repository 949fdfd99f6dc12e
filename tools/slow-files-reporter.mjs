/** A reporter of Node's test runner that finally lists the files that took longest. */
const MAX_FILES = 12;
const MIN_MS = 2000;

export default async function* slowFiles(source) {
  const files = new Map();
  for await (const { type, data } of source) {
    if ((type !== 'test:pass' && type !== 'test:fail') || data.nesting > 0 || !data.file) continue;
    files.set(data.file, (files.get(data.file) ?? 0) + (data.details?.duration_ms ?? 0));
  }
  const slow = [...files].filter(([, ms]) => ms >= MIN_MS).sort(([, a], [, b]) => b - a);
  if (slow.length === 0) return;
  yield 'took longest:\n';
  for (const [file, ms] of slow.slice(0, MAX_FILES)) {
    yield `${(ms / 1000).toFixed(1).padStart(8)} s  ${file.replace(`${process.cwd()}/`, '')}\n`;
  }
}
