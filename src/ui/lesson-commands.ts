import type { OpenLesson } from '../learn/course.ts';
import { type CommandResult, type RunOptions, runCommand } from '../learn/run-command.ts';
import { FairleadError } from '../lib/errors.ts';

/** Which command of a lesson's current step is to run. */
export interface CommandRequest {
  readonly lesson: string;
  /** The number of the step that the page shows. */
  readonly step: number;
  readonly list: 'commands' | 'repair';
  readonly index: number;
}

/** The time that a command may take: longer than any lesson waits. */
const TIMEOUT_MS = 180_000;
/** Of the output, its end is kept. */
const MAX_BYTES = 64 << 10;

/**
 * Runs commands of lessons on this machine, as the user of this process. The page names a command; it cannot send one: what runs
 * is what the lesson shows, with the cluster's names and addresses. One runs at a time.
 */
export function createLessonCommands(options: {
  /** The lesson at its current step, with the commands as the user types them. */
  readonly open: (lesson: string) => Promise<OpenLesson>;
  readonly environment: RunOptions['environment'];
  readonly folder: string;
}): { run(request: CommandRequest, signal: AbortSignal): Promise<CommandResult> } {
  const { open, environment, folder } = options;
  let isRunning = false;
  return {
    async run({ lesson, step, list, index }, signal) {
      if (isRunning) throw refused('another command of a lesson is still running', 'BadRequest');
      isRunning = true;
      try {
        const { step: current } = await open(lesson);
        if (current === null || current.number !== step)
          throw refused('the lesson has gone on: look at its current step', 'BadRequest');
        const commands = list === 'commands' ? current.commands : (current.repair?.commands ?? []);
        const command = commands[index];
        if (command === undefined) throw refused('the step has no such command', 'not-found');
        if (command.startsWith('sudo '))
          throw refused('the command needs root: type it in a terminal', 'Forbidden');
        return await runCommand(command, {
          ...{ environment, folder, signal },
          ...{ maxBytes: MAX_BYTES, timeoutMs: TIMEOUT_MS },
        });
      } finally {
        isRunning = false;
      }
    },
  };
}

const refused = (message: string, code: 'BadRequest' | 'Forbidden' | 'not-found') =>
  new FairleadError(message, { op: 'run a command of a lesson', code });

/** Reads {lesson, step, list, index}; other fields are refused. Throws FairleadError. */
export function readCommandRequest(body: unknown): CommandRequest {
  const fields = (typeof body === 'object' && body !== null ? body : {}) as Record<string, unknown>;
  const { lesson, step, list, index, ...others } = fields;
  if (
    Object.keys(others).length > 0 ||
    typeof lesson !== 'string' ||
    !isCount(step) ||
    !isCount(index) ||
    (list !== 'commands' && list !== 'repair')
  )
    throw new FairleadError(
      'lesson, step, list ("commands" or "repair") and index of a command are expected, and nothing else',
      { op: 'answer the page', code: 'BadRequest' },
    );
  return { lesson, step, list, index };
}

const isCount = (value: unknown): value is number =>
  typeof value === 'number' && Number.isInteger(value) && value >= 0 && value < 1000;
