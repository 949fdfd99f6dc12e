/**
 * A reporter of Node's test runner that writes each result as a line of JSON, as results.ts describes it: the names of the
 * suites and of the test, how long it took and, if it failed, the message and the first lines of the stack.
 */
import { inspect } from 'node:util';

const MAX_MESSAGE = 4000;
const MAX_STACK_LINES = 8;

export default async function* events(source) {
  // Node reports starts and ends in the order of the definitions.
  const names = [];
  for await (const { type, data } of source) {
    if (type === 'test:start') {
      names.length = data.nesting;
      names[data.nesting] = data.name;
    } else if (type === 'test:pass' || type === 'test:fail') {
      const line = {
        names: [...names.slice(0, data.nesting), data.name],
        kind: data.details?.type === 'suite' ? 'suite' : 'test',
        outcome: outcomeOf(type, data),
        milliseconds: Math.round(data.details?.duration_ms ?? 0),
        ...(type === 'test:fail' ? failureOf(data.details?.error) : {}),
      };
      yield `${JSON.stringify(line)}\n`;
    }
  }
}

function outcomeOf(type, { skip, todo }) {
  if (skip !== undefined && skip !== false) return 'skipped';
  if (type === 'test:pass') return 'passed';
  return todo !== undefined && todo !== false ? 'todo' : 'failed';
}

function failureOf(error) {
  const cause = error?.cause ?? error;
  const isError = cause !== null && typeof cause === 'object' && typeof cause.message === 'string';
  const message = isError ? cause.message : inspect(cause);
  const stack = isError && typeof cause.stack === 'string' ? cause.stack : '';
  return {
    message: message.slice(0, MAX_MESSAGE),
    stack: stack
      .split('\n')
      .filter((line) => /^\s+at /.test(line) && !line.includes('node:internal'))
      .slice(0, MAX_STACK_LINES)
      .map((line) => line.trim()),
    // A suite is reported as failed by the test in it.
    byTests: error?.failureType === 'subtestsFailed',
  };
}
