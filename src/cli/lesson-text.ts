import type { LessonEntry, OpenLesson, OpenStep } from '../learn/course.ts';
import type { Prediction } from '../learn/lesson.ts';
import { COLUMNS, type Shell, shownCommand, typedCommand } from '../learn/typed-command.ts';
import { wrap } from './help-text.ts';
import { formatTable } from './table.ts';

/** Renders lessons for a terminal of COLUMNS; every text ends with a line feed. */

export function listText(lessons: readonly LessonEntry[], shell: Shell, columns: number | null): string {
  const rows = lessons.map(({ name, done, steps, title }) => [name, progressText(done, steps), title]);
  const next = lessons.find(({ done, steps }) => done !== steps);
  const hint =
    next === undefined
      ? `All lessons are finished. Remove their objects: ${learn(shell, '--reset')}`
      : `${next.done === null ? 'Begin' : 'Continue'} with: ${learn(shell, next.name)}`;
  return `${formatTable([['LESSON', 'PROGRESS', 'ABOUT'], ...rows], columns)}\n${hint}\n`;
}

const progressText = (done: number | null, steps: number): string =>
  done === null ? '-' : done === steps ? 'finished' : `${done} of ${steps}`;

/** Renders the step that the learner is at, and the one that was just found done. */
export function lessonText(lesson: OpenLesson, shell: Shell): string {
  const { name, title, steps, step, finished, seen } = lesson;
  const parts = finished === null ? [] : [`✓ ${finished}`];
  if (seen !== null) parts.push(wrap(`You have seen: ${seen}`, COLUMNS));
  if (step === null) {
    parts.push(`${title}: finished.`, `The other lessons: ${learn(shell, '')}`);
    return `${parts.join('\n\n')}\n`;
  }
  const isLook = step.missing === null;
  parts.push(
    `${title}, step ${step.number} of ${steps}`,
    step.title,
    ...step.text.map((paragraph) => wrap(paragraph, COLUMNS)),
    ...(step.predict ? predictionText(step.predict) : []),
    'Type:',
    commandsText(step.commands, shell),
    `Then: ${learn(shell, `${name}${isLook ? ' --next' : ''}`)}`,
  );
  if (!isLook) parts.push(wrap(`Still missing: ${step.missing}`, COLUMNS));
  if (step.expected.length > 0) parts.push(`What they print: ${learn(shell, `${name} --expected`)}`);
  if (step.repair) parts.push(`How to repair it: ${learn(shell, `${name} --hint`)}`);
  return `${parts.join('\n\n')}\n`;
}

/** Renders the question before the commands; its answer comes with the next step. */
const predictionText = ({ question, choices }: Prediction): string[] => [
  wrap(`What do you expect? ${question}`, COLUMNS),
  choices.map((choice, i) => `  ${'abcdefghijkl'[i] ?? '-'}) ${choice}`).join('\n'),
];

/** Renders what the commands of a step print. */
export function expectedText({ expected }: OpenStep): string {
  if (expected.length === 0) return 'What this step prints differs from cluster to cluster.\n';
  return `The commands print, among other lines (… is any text):\n\n${expected.join('\n')}\n`;
}

/** Renders how to repair what the step has planted. */
export function hintText({ name }: OpenLesson, step: OpenStep, shell: Shell): string {
  if (!step.repair) return 'This step has nothing to repair: type its commands.\n';
  const { text, commands } = step.repair;
  const parts = [wrap(text, COLUMNS), 'Type:', commandsText(commands, shell), `Then: ${learn(shell, name)}`];
  return `${parts.join('\n\n')}\n`;
}

const commandsText = (commands: readonly string[], shell: Shell): string =>
  commands.map((command) => shownCommand(typedCommand(command, shell))).join('\n');

const learn = (shell: Shell, words: string): string => typedCommand(`fairlead learn ${words}`.trim(), shell);
