import { existsSync } from 'node:fs';
import { openCluster } from '../cluster/cluster-access.ts';
import { withoutPassedListeners } from '../cluster/rootless/passed-listeners.ts';
import { clusterPaths } from '../cluster/state.ts';
import type { Client } from '../kube/client.ts';
import { type Advance, createCourse, type OpenLesson } from '../learn/course.ts';
import type { Lesson } from '../learn/lesson.ts';
import { LESSONS } from '../learn/lessons.ts';
import { type Shell, shellOf, shownCommand, typedCommand } from '../learn/typed-command.ts';
import type { Clock } from '../lib/clock.ts';
import { FairleadError } from '../lib/errors.ts';
import { createMutex } from '../lib/semaphore.ts';
import { createLessonCommands, readCommandRequest } from './lesson-commands.ts';
import type { Operation } from './page-server.ts';

const ADVANCES: readonly Advance[] = ['stay', 'check', 'next', 'skip'];

/**
 * The operations of the page's lessons: GET lessons (LessonEntry[]), POST lesson ({lesson, advance} → OpenLesson, with the
 * commands as the user types them), POST lesson-command (CommandRequest → CommandResult) and DELETE lessons.
 */
export function lessonOperations(options: {
  readonly name: string;
  readonly client: Client;
  readonly clock: Clock;
  /** Of a teacher, after those of Fairlead. */
  readonly ownLessons: readonly Lesson[];
}): Map<string, Operation> {
  const { name, client, clock, ownLessons } = options;
  const shell = shellOf(name, process.env);
  // Two pages must not plant the fault of a step twice.
  const turns = createMutex();
  const lessons = [...LESSONS, ...ownLessons];
  const course = async () => createCourse({ access: await openCluster(name), client, clock, lessons });
  const typed = (commands: readonly string[]) =>
    commands.map((command) => shownCommand(typedCommand(command, shell)));
  const asTyped = (lesson: OpenLesson): OpenLesson => {
    const { step } = lesson;
    if (step === null) return lesson;
    const repair = step.repair && { ...step.repair, commands: typed(step.repair.commands) };
    return { ...lesson, step: { ...step, commands: typed(step.commands), repair } };
  };
  const commands = createLessonCommands({
    open: async (lesson) => await turns.run(async () => asTyped(await (await course()).open(lesson, 'stay'))),
    environment: environmentOf(name, shell),
    folder: process.cwd(),
  });
  return new Map<string, Operation>([
    [
      'POST lesson-command',
      async (body, _query, signal) => await commands.run(readCommandRequest(body), signal),
    ],
    ['GET lessons', async () => await (await course()).list()],
    [
      'POST lesson',
      async (body) => {
        const { lesson, advance } = readLessonRequest(body);
        return await turns.run(async () => asTyped(await (await course()).open(lesson, advance)));
      },
    ],
    [
      'DELETE lessons',
      async () => {
        await turns.run(async () => (await course()).reset());
        return [];
      },
    ],
  ]);
}

/**
 * The environment of a lesson's commands: that of this process, with the cluster's own kubeconfig where the commands do not name
 * a context of the user's.
 */
function environmentOf(name: string, { context }: Shell): NodeJS.ProcessEnv {
  const { kubeconfig } = clusterPaths(name);
  const isOwn = context === null && process.getuid?.() === 0 && existsSync(kubeconfig);
  // The page's own listeners are not those of its commands.
  const environment = withoutPassedListeners(process.env);
  return isOwn ? { ...environment, KUBECONFIG: kubeconfig } : environment;
}

/** Reads {lesson, advance}. Throws FairleadError. */
function readLessonRequest(body: unknown): { lesson: string; advance: Advance } {
  const { lesson, advance } = (typeof body === 'object' && body !== null ? body : {}) as Record<
    string,
    unknown
  >;
  const known = ADVANCES.find((one) => one === advance);
  if (typeof lesson === 'string' && known) return { lesson, advance: known };
  throw new FairleadError(`lesson must be a name, and advance one of ${ADVANCES.join(', ')}`, {
    op: 'answer the page',
    code: 'BadRequest',
  });
}
