import assert from 'node:assert/strict';
import { test } from 'node:test';
import type { OpenLesson } from '../learn/course.ts';
import { FairleadError } from '../lib/errors.ts';
import { type CommandRequest, createLessonCommands, readCommandRequest } from './lesson-commands.ts';

const LESSON: OpenLesson = {
  ...{ name: 'pods', title: 'Pods', summary: '', steps: 3, done: 1, state: 'begun', at: 'Look' },
  ...{ finished: null, seen: null },
  step: {
    ...{ number: 2, title: 'Look', text: [], missing: null, predict: null, expected: [] },
    commands: ['echo first', 'sudo echo root', 'echo $0 $#; id -u', 'sleep 1000'],
    repair: { text: '', commands: ['echo repaired'] },
  },
};
const commands = () =>
  createLessonCommands({
    ...{ open: async () => LESSON, folder: '/' },
    environment: { PATH: process.env['PATH'] },
  });
const ASKED: CommandRequest = { lesson: 'pods', step: 2, list: 'commands', index: 0 };
const run = (change: Partial<CommandRequest>) =>
  commands().run({ ...ASKED, ...change }, new AbortController().signal);

test('the command that the lesson shows runs, as the user of this process', async () => {
  assert.deepEqual(await run({}), { output: 'first\n', isCut: false, code: 0 });
  assert.equal((await run({ list: 'repair' })).output, 'repaired\n');
  assert.equal((await run({ index: 2 })).output, `/bin/sh 0\n${process.getuid?.()}\n`);
});

const REFUSED: readonly [what: string, change: Partial<CommandRequest>, code: string][] = [
  ['a command of another step', { step: 1 }, 'BadRequest'],
  ['a command that the step does not have', { index: 9 }, 'not-found'],
  ['a command that needs root', { index: 1 }, 'Forbidden'],
];
for (const [what, change, code] of REFUSED)
  test(`${what} is refused`, () =>
    assert.rejects(run(change), (error: unknown) => error instanceof FairleadError && error.code === code));

test('one command runs at a time, and a page that is gone ends it', async () => {
  const one = commands();
  const left = new AbortController();
  const long = one.run({ ...ASKED, index: 3 }, left.signal);
  await assert.rejects(one.run(ASKED, new AbortController().signal), /still running/);
  left.abort();
  assert.equal((await long).code, null);
  assert.equal((await one.run(ASKED, new AbortController().signal)).code, 0);
});

const HOSTILE: readonly unknown[] = [
  ...[
    null,
    'x',
    [],
    {},
    { ...ASKED, command: 'id' },
    { ...ASKED, commands: ['id'] },
    { ...ASKED, index: '0' },
  ],
  ...[
    { ...ASKED, index: -1 },
    { ...ASKED, index: 0.5 },
    { ...ASKED, index: 1e9 },
    { ...ASKED, list: '__proto__' },
  ],
  ...[
    { ...ASKED, list: 'constructor' },
    { ...ASKED, lesson: ['pods'] },
    { ...ASKED, environment: { PATH: '/x' } },
  ],
  JSON.parse('{"lesson":"pods","step":2,"list":"commands","index":0,"__proto__":{"a":1}}'),
];
for (const body of HOSTILE)
  test(`a page cannot send a command: ${JSON.stringify(body)}`, () =>
    assert.throws(() => readCommandRequest(body), /and nothing else/));

test('a request that names a command is read', () =>
  assert.deepEqual(readCommandRequest({ ...ASKED }), ASKED));
