// Runs packet test files, each in separate namespaces (tools/private-node), two at a time, or as many as
// FAIRLEAD_TEST_CONCURRENCY says: node tools/run-private-tests.mjs TIMEOUT_MS FILE…
import { compose } from 'node:stream';
import { run } from 'node:test';
import { spec } from 'node:test/reporters';
import { fileURLToPath } from 'node:url';
import runSummary from './run-summary-reporter.mjs';

const [timeout, ...files] = process.argv.slice(2);
process.env.FAIRLEAD_TEST_NODE = process.execPath;
// Node's runner starts test files with process.execPath.
process.execPath = fileURLToPath(new URL('./private-node', import.meta.url));

const events = run({
  files,
  concurrency: Number(process.env.FAIRLEAD_TEST_CONCURRENCY || 2),
  timeout: Number(timeout),
  execArgv: ['--disable-warning=ExperimentalWarning'],
});
events.on('test:fail', ({ todo }) => {
  if (todo === undefined || todo === false) process.exitCode = 1;
});
compose(events, new spec()).pipe(process.stdout, { end: false });
compose(events, runSummary).pipe(process.stdout, { end: false });
