import { openCluster } from '../cluster/cluster-access.ts';
import { createClient } from '../kube/client.ts';
import { httpTransport } from '../kube/transport.ts';
import { createCourse } from '../learn/course.ts';
import { LESSONS } from '../learn/lessons.ts';
import { shellOf } from '../learn/typed-command.ts';
import { systemClock } from '../lib/clock.ts';
import { defineCommand } from './command.ts';
import { expectedText, hintText, lessonText, listText } from './lesson-text.ts';
import { LESSONS_OPTION, ownLessonsIn } from './lessons-option.ts';
import { NAME_OPTION } from './name-option.ts';
import { flag, usageError } from './options.ts';
import { FORMAT_OPTIONS, renderFacts } from './output-format.ts';

export const command = defineCommand({
  name: 'learn',
  summary: 'learn Kubernetes networking on this cluster, in eight short lessons',
  description: [
    'Without arguments it lists the lessons. "learn LESSON" shows the step that you are at, with the commands to type; the same command then checks what you did and continues. The last step of each lesson has a planted fault to find and to repair.',
    'All objects are in the namespace "learn", with the progress; "learn --reset" removes everything, and switches back to the mode in which the first lesson began.',
  ],
  arguments: [
    {
      ...{ name: 'LESSON', optional: true, help: 'the lesson', isOpen: true },
      choices: LESSONS.map(({ name }) => name),
    },
  ],
  synopsis: ['[LESSON [--next]] [--lessons FOLDER]', '--reset'],
  options: {
    next: flag('continue after a step that has nothing to check'),
    expected: flag('show what the commands of the step print'),
    hint: flag('show how to repair the planted fault'),
    skip: flag('continue without checking this step'),
    reset: flag('remove everything that the lessons have created'),
    lessons: LESSONS_OPTION,
    ...FORMAT_OPTIONS,
    name: NAME_OPTION,
  },
  examples: [
    'learn',
    'learn pods',
    'learn pods --hint',
    'learn -o json',
    'learn --lessons ./our-lessons',
    'learn --reset',
  ],
  asUser: ({ options }) => ({ cluster: options.name }),
  async run({ options, args: [lesson] }, output) {
    const { next, hint, skip, reset, expected } = options;
    if ([next, hint, skip, expected].filter(Boolean).length > 1)
      throw usageError('learn', 'use one of --next, --expected, --hint and --skip');
    if (lesson === undefined && (next || hint || skip || expected))
      throw usageError('learn', 'missing LESSON');
    if (lesson !== undefined && reset) throw usageError('learn', '--reset does not take LESSON');
    const lessons = [...LESSONS, ...ownLessonsIn(options.lessons)];
    const access = await openCluster(options.name);
    const shell = shellOf(options.name, process.env);
    const transport = httpTransport(access.credentials);
    try {
      const course = createCourse({
        access,
        client: createClient(transport, 'fairlead-learn'),
        clock: systemClock,
        lessons,
      });
      if (reset) {
        await course.reset();
        output.out(renderFacts({ reset: true }, options) ?? 'everything that lessons created is removed\n');
        return 0;
      }
      if (lesson === undefined) {
        const entries = await course.list();
        const facts = { cluster: options.name, lessons: entries };
        output.out(renderFacts(facts, options) ?? listText(entries, shell, output.columns));
        return 0;
      }
      // A hint does not go on, even if the step is done.
      const stays = hint || expected;
      const open = await course.open(lesson, stays ? 'stay' : skip ? 'skip' : next ? 'next' : 'check');
      const text = () => {
        if (open.step && hint) return hintText(open, open.step, shell);
        return open.step && expected ? expectedText(open.step) : lessonText(open, shell);
      };
      output.out(renderFacts(open, options) ?? text());
      return 0;
    } finally {
      transport.close();
    }
  },
});
