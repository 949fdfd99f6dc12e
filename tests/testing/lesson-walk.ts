import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { missingLines } from '../../src/learn/expected-output.ts';
import { LESSONS } from '../../src/learn/lessons.ts';
import { eventually } from '../../src/lib/testing/eventually.ts';
import type { Cluster } from './cluster.ts';

/** How long a step's effect may take to be found, on a slow machine. */
const PATIENCE_MS = 60_000;
/** More than any lesson has. */
const MAX_STEPS = 12;

export interface Walked {
  /** What the lesson printed and its commands answered. */
  readonly log: string;
  readonly isFinished: boolean;
  /** Lines that the lesson says its commands print, and that they did not print. */
  readonly missing: readonly string[];
}

/** Returns the commands that `fairlead learn` has printed: all lines from "Type:" to "Then:". */
function printedCommands(text: string): string {
  const found = /^Type:\n\n([\s\S]*?)\n\nThen: /m.exec(text)?.[1];
  if (found === undefined) throw new Error(`no commands in:\n${text}`);
  return found;
}

/** Runs lines in a shell, as a learner does, and returns their output; commands that find a fault fail on purpose. */
export async function typeLines(cluster: Cluster, lines: string): Promise<string> {
  const env = { ...process.env, KUBECONFIG: cluster.kubeconfig, FAIRLEAD_STATE: cluster.stateRoot };
  const shell = spawn('bash', ['-c', lines], { env, stdio: ['ignore', 'pipe', 'pipe'] });
  let out = '';
  for (const stream of [shell.stdout, shell.stderr])
    stream.setEncoding('utf8').on('data', (text: string) => {
      out += text;
    });
  await once(shell, 'close');
  return out;
}

/** Walks a lesson to its end, and does nothing but what it prints: the commands, the hint of the fault, and the next step. */
export async function walkLesson(cluster: Cluster, lesson: string): Promise<Walked> {
  let log = '';
  const type = async (lines: string): Promise<string> => {
    const out = await typeLines(cluster, lines);
    log += `$ ${lines}\n${out}`;
    return out;
  };
  const { steps = [] } = LESSONS.find(({ name }) => name === lesson) ?? {};
  const missing: string[] = [];
  const learn = async (...words: readonly string[]): Promise<string> => {
    const { status, out, error } = await cluster.fairlead('learn', lesson, ...words);
    log += out;
    if (status !== 0) throw new Error(`learn ${lesson}: ${error}\n${log}`);
    return out;
  };
  const isAt = (text: string) => /, step ([0-9]+) of /.exec(text)?.[1] ?? null;

  let text = await learn();
  for (let n = 0; n < MAX_STEPS && isAt(text) !== null; n++) {
    const before = isAt(text);
    const out = await type(printedCommands(text));
    missing.push(...missingLines(out, steps[Number(before) - 1]?.expected ?? []));
    if (text.includes('How to repair it:')) await type(printedCommands(await learn('--hint')));
    const words = /^Then: .*--next$/m.test(text) ? ['--next'] : [];
    text = await eventually(
      () => learn(...words),
      (shown) => isAt(shown) !== before,
      PATIENCE_MS,
    );
  }
  return { log, isFinished: isAt(text) === null, missing };
}
