import { openCluster } from '../cluster/cluster-access.ts';
import { createClient } from '../kube/client.ts';
import { httpTransport } from '../kube/transport.ts';
import { createCourse } from '../learn/course.ts';
import { LESSONS } from '../learn/lessons.ts';
import { shellOf } from '../learn/typed-command.ts';
import { systemClock } from '../lib/clock.ts';
import { defineCommand } from './command.ts';
import { hintText, lessonText, listText } from './lesson-text.ts';
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
    { name: 'LESSON', optional: true, help: 'the lesson', choices: LESSONS.map(({ name }) => name) },
  ],
  synopsis: ['[LESSON [--next]]', '--reset'],
  options: {
    next: flag('continue after a step that has nothing to check'),
    hint: flag('show how to repair the planted fault'),
    skip: flag('continue without checking this step'),
    reset: flag('remove everything that the lessons have created'),
    ...FORMAT_OPTIONS,
    name: NAME_OPTION,
  },
  examples: ['learn', 'learn pods', 'learn pods --hint', 'learn --reset'],
  asUser: ({ options }) => ({ cluster: options.name }),
  async run({ options, args: [lesson] }, output) {
    const { next, hint, skip, reset } = options;
    if ([next, hint, skip].filter(Boolean).length > 1)
      throw usageError('learn', 'use one of --next, --hint and --skip');
    if (lesson === undefined && (next || hint || skip)) throw usageError('learn', 'missing LESSON');
    if (lesson !== undefined && reset) throw usageError('learn', '--reset does not take LESSON');
    const access = await openCluster(options.name);
    const shell = shellOf(options.name, process.env);
    const transport = httpTransport(access.credentials);
    try {
      const course = createCourse({
        access,
        client: createClient(transport, 'fairlead-learn'),
        clock: systemClock,
      });
      if (reset) {
        await course.reset();
        output.out(renderFacts({ reset: true }, options) ?? 'everything that lessons created is removed\n');
        return 0;
      }
      if (lesson === undefined) {
        const lessons = await course.list();
        output.out(renderFacts({ lessons }, options) ?? listText(lessons, shell, output.columns));
        return 0;
      }
      // A hint does not go on, even if the step is done.
      const open = await course.open(lesson, hint ? 'stay' : skip ? 'skip' : next ? 'next' : 'check');
      const text = () => (hint && open.step ? hintText(open, open.step, shell) : lessonText(open, shell));
      output.out(renderFacts(open, options) ?? text());
      return 0;
    } finally {
      transport.close();
    }
  },
});
