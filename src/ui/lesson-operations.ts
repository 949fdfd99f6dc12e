import { openCluster } from '../cluster/cluster-access.ts';
import type { Client } from '../kube/client.ts';
import { type Advance, createCourse, type OpenLesson } from '../learn/course.ts';
import { shellOf, shownCommand, typedCommand } from '../learn/typed-command.ts';
import type { Clock } from '../lib/clock.ts';
import { FairleadError } from '../lib/errors.ts';
import { createMutex } from '../lib/semaphore.ts';
import type { Operation } from './page-server.ts';

const ADVANCES: readonly Advance[] = ['stay', 'check', 'next', 'skip'];

/**
 * The operations of the page's lessons: GET lessons (LessonEntry[]), POST lesson ({name, advance} → OpenLesson, with the
 * commands as the user types them) and DELETE lessons.
 */
export function lessonOperations(options: {
  readonly name: string;
  readonly client: Client;
  readonly clock: Clock;
}): Map<string, Operation> {
  const { name, client, clock } = options;
  const shell = shellOf(name, process.env);
  // Two pages must not plant the fault of a step twice.
  const turns = createMutex();
  const course = async () => createCourse({ access: await openCluster(name), client, clock });
  const typed = (commands: readonly string[]) =>
    commands.map((command) => shownCommand(typedCommand(command, shell)));
  const asTyped = (lesson: OpenLesson): OpenLesson => {
    const { step } = lesson;
    if (step === null) return lesson;
    const repair = step.repair && { ...step.repair, commands: typed(step.repair.commands) };
    return { ...lesson, step: { ...step, commands: typed(step.commands), repair } };
  };
  return new Map<string, Operation>([
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
