import assert from 'node:assert/strict';
import { type ChildProcess, spawn } from 'node:child_process';
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join, resolve } from 'node:path';
import { after, test } from 'node:test';
import { eventually } from '../src/lib/testing/eventually.ts';
import { REAL_CONTROL_PLANE } from './testing/cluster.ts';
import { readTour, shapeProblem, shapesOf, type TourStep, withOutputs } from './testing/readme-tour.ts';

// README's tour, command by command in one cluster, in which the output of each command has README's shape. With
// FAIRLEAD_RECORD_TOUR=1 the outputs are written to README instead:
//   FAIRLEAD_RECORD_TOUR=1 ./test netns tests/readme-tour.netns.test.ts

const ROOT = resolve(import.meta.dirname, '..');
const README = join(ROOT, 'README.md');
const isRecording = process.env['FAIRLEAD_RECORD_TOUR'] === '1';
const markdown = readFileSync(README, 'utf8');
const steps = readTour(markdown);
const stateRoot = mkdtempSync(join(tmpdir(), 'flt-tour-'));
const outputs = new Map<string, readonly string[]>();
/** Lines of the shell that later commands need. */
const exported: string[] = [];
const running = new Set<{ readonly step: TourStep; readonly child: ChildProcess; output(): string[] }>();

after(async () => {
  for (const { child } of running) child.kill();
  await shell('./fairlead down').ended;
  rmSync(stateRoot, { recursive: true, force: true });
});

/** Commands that run until Ctrl-C, and show what the commands after them do. */
const UNTIL_INTERRUPTED = /^\.\/fairlead (flows|ui)\b/;
/** Flows are shortened for a terminal only. */
const IN_TERMINAL = /^\.\/fairlead flows\b/;
/** README shows a packet whose endpoint is on another node; the kernel chooses one of three at random. */
const TO_OTHER_NODE = /^\.\/fairlead trace\b/;
/** That 40 attempts miss it has a probability of 10⁻¹⁹ or less. */
const MAX_ATTEMPTS = 40;
/** When `flows` follows all nodes is not shown: a flow that it shows tells. */
const PROBE = './fairlead exec client -- fairlead request http://hello';

for (const step of steps) {
  // The rows of the tour depend on one another.
  test(`$ ${step.command}`, {
    skip: REAL_CONTROL_PLANE ? 'README shows the embedded control plane' : false,
  }, async () => {
    if (UNTIL_INTERRUPTED.test(step.command)) {
      const { child, output } = shell(step.command, IN_TERMINAL.test(step.command));
      running.add({ step, child, output });
      await eventually(
        async () => {
          if (IN_TERMINAL.test(step.command)) await shell(PROBE).ended;
          return output();
        },
        (lines) => child.exitCode !== null || shapesOf(lines).length > 0,
      );
      return;
    }
    let lines = await outputOf(step);
    for (
      let i = 1;
      i < MAX_ATTEMPTS && TO_OTHER_NODE.test(step.command) && !/out uplink/.test(lines.join());
      i++
    )
      lines = await outputOf(step);
    if (step.command.startsWith('export ')) exported.push(step.command);
    outputs.set(step.command, lines);
    // Machines with a newer crun do not print it.
    const shown = lines.filter((line) => !line.startsWith('fairlead: crun '));
    if (!isRecording) assert.equal(shapeProblem(step, shown), null, shown.join('\n'));
  });
}

test('what runs until Ctrl-C has shown what README shows', async () => {
  for (const one of running) {
    const { step, child, output } = one;
    const wanted = shapesOf(step.output);
    const missing = () => wanted.filter((line) => !shapesOf(output()).includes(line));
    if (!isRecording) await eventually(missing, (lines) => lines.length === 0).catch(() => {});
    outputs.set(step.command, output());
    child.kill();
    running.delete(one);
    if (!isRecording) assert.deepEqual(missing(), [], output().join('\n'));
  }
  if (isRecording) writeFileSync(README, withOutputs(markdown, outputs));
});

async function outputOf({ command }: TourStep): Promise<string[]> {
  const { ended, output } = shell(command);
  await ended;
  return output();
}

/** Starts a command in a shell, or in a terminal of 110 columns; its output has both streams. */
function shell(command: string, inTerminal = false) {
  const line = inTerminal
    ? `script -qefc ${JSON.stringify(`stty cols 110; exec ${command}`)} /dev/null`
    : command;
  const child = spawn('bash', ['-c', [...exported, `${inTerminal ? 'exec ' : ''}${line}`].join('\n')], {
    cwd: ROOT,
    env: { ...process.env, FAIRLEAD_STATE: stateRoot, NO_COLOR: '1' },
    stdio: ['ignore', 'pipe', 'pipe'],
  });
  let text = '';
  for (const stream of [child.stdout, child.stderr])
    stream.setEncoding('utf8').on('data', (part: string) => {
      text += part;
    });
  return {
    child,
    ended: new Promise<void>((done) => child.on('close', () => done())),
    output: () => (text.trim() === '' ? [] : text.replaceAll('\r', '').trimEnd().split('\n')),
  };
}
