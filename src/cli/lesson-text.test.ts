import assert from 'node:assert/strict';
import { describe, test } from 'node:test';
import { LESSONS } from '../learn/lessons.ts';
import { unknownWords } from '../learn/names.ts';
import { COLUMNS, type Shell, shownCommand, typedCommand } from '../learn/typed-command.ts';
import { COMMANDS } from './commands.ts';
import { expectedText, hintText, lessonText } from './lesson-text.ts';
import { parseWords } from './options.ts';

const SHELL: Shell = { program: './fairlead', cluster: null, context: null, isRoot: false };
/** The subcommands of kubectl that lessons use. */
const KUBECTL = new Set([
  'apply',
  'delete',
  'expose',
  'get',
  'patch',
  'rollout',
  'run',
  'scale',
  'set',
  'wait',
]);

for (const { name, title, summary, steps } of LESSONS) {
  describe(`lesson ${name}`, () => {
    for (const [
      index,
      { title: stepTitle, text, commands, check, prepare, repair = null, predict = null, expected = [] },
    ] of steps.entries()) {
      const own = [...commands, ...(repair?.commands ?? [])];
      test(`step ${index + 1}, ${stepTitle}: it fits ${COLUMNS} columns`, () => {
        const missing = check === null ? null : 'the fault is still there';
        const step = {
          number: index + 1,
          title: stepTitle,
          text,
          commands,
          missing,
          repair,
          predict,
          expected,
        };
        const facts = {
          state: 'begun',
          at: stepTitle,
          finished: stepTitle,
          seen: predict?.why ?? null,
        } as const;
        const lesson = { name, title, summary, steps: steps.length, done: index, ...facts, step };
        const lines = [
          ...lessonText(lesson, SHELL).split('\n'),
          ...hintText(lesson, step, SHELL).split('\n'),
          ...expectedText(step).split('\n'),
        ];
        assert.deepEqual(
          lines.filter((line) => line.length > COLUMNS),
          [],
        );
      });

      test(`step ${index + 1}: its commands exist, with these options`, async () => {
        for (const command of own) {
          assert.deepEqual(unknownWords(command), []);
          const [program = '', ...words] = command
            .replaceAll(/{[^}]*}/g, 'x')
            .replaceAll('"', '')
            .split(/\s+/);
          if (program === 'kubectl') {
            assert.ok(
              words.some((word) => KUBECTL.has(word)),
              command,
            );
            continue;
          }
          assert.equal(program, 'fairlead');
          const entry = COMMANDS.find((one) => one.name === words[0]);
          assert.ok(entry && !entry.internal, command);
          const { syntax } = (await entry.load()).command;
          assert.doesNotThrow(() => parseWords(syntax, words.slice(1)), command);
        }
      });

      test(`step ${index + 1}: what to expect, before its commands and after them`, () => {
        if (index === steps.length - 1) assert.equal(predict, null, 'the fault is to be found');
        else assert.ok(predict?.choices[predict.answer] && expected.length > 0);
      });

      test(`step ${index + 1}: a planted fault has a repair, and a check`, () => {
        const plants = (prepare ?? []).length > 0;
        if (plants) assert.ok(repair !== null && check !== null);
      });
    }

    test('it ends with a fault to find by explain and trace, and to repair', () => {
      const last = steps.at(-1);
      assert.ok(last?.repair && last.check);
      for (const tool of ['explain', 'trace']) {
        assert.ok(
          last.commands.some((command) => command.startsWith(`fairlead ${tool} `)),
          tool,
        );
      }
    });
  });
}

describe('commands as the learner types them', () => {
  const rows: { command: string; shell: Partial<Shell>; typed: string }[] = [
    {
      command: 'fairlead explain learn/client svc/learn/shop',
      shell: {},
      typed: './fairlead explain learn/client svc/learn/shop',
    },
    {
      command: 'fairlead exec learn/client -- ip link',
      shell: {},
      typed: 'sudo ./fairlead exec learn/client -- ip link',
    },
    {
      command: 'fairlead exec learn/client -- ip link',
      shell: { isRoot: true, cluster: 'two' },
      typed: './fairlead exec --name two learn/client -- ip link',
    },
    { command: 'kubectl -n learn get pods', shell: {}, typed: 'kubectl -n learn get pods' },
    {
      command: 'kubectl -n learn get pods',
      shell: { context: 'fairlead-two' },
      typed: 'kubectl --context fairlead-two -n learn get pods',
    },
  ];
  for (const { command, shell, typed } of rows) {
    test(typed, () => assert.equal(typedCommand(command, { ...SHELL, ...shell }), typed));
  }

  test('long ones are continued, and quoted words stay whole', () => {
    const command = `kubectl -n learn patch service shop -p '{"spec":{"ports":[{"port": 80, "targetPort": 8080}]}}'`;
    assert.equal(
      shownCommand(command),
      `kubectl -n learn patch service shop -p \\\n  '{"spec":{"ports":[{"port": 80, "targetPort": 8080}]}}'`,
    );
  });
});
