import { spawn } from 'node:child_process';
import { snapshotName } from '../cluster/snapshot.ts';
import { listClusters } from '../cluster/state.ts';
import type { Output } from './command.ts';
import type { Option, OptionTable, Parsed } from './options.ts';
import { keepEvidence } from './run-evidence.ts';
import { refuseExisting, runName } from './run-name.ts';
import { awaitProgram, followSignals, runProgram, type Signals } from './run-program.ts';

/**
 * Runs a command with a cluster of an ordinary user. "restore", "up" and "down" are processes of their own, because they enter the
 * user's namespaces: the command has the network and the files of the user.
 */
export async function runAsUser(parsed: Parsed, upOptions: OptionTable, output: Output): Promise<number> {
  const { options } = parsed;
  const snapshot = options['restore'] === null ? null : String(options['restore']);
  const name =
    snapshot === null
      ? runName(options['name'] === null ? null : String(options['name']))
      : await snapshotName(snapshot);
  refuseExisting(name);
  const evidence = options['evidence'] === null ? null : String(options['evidence']);
  const signals = followSignals();
  const restored = snapshot === null ? 0 : await runOwn(['restore', snapshot], signals);
  // It has left nothing.
  if (restored !== 0) return restored;
  try {
    const up = ['up', '--detach', '--no-kubeconfig', '--name', name, ...wordsOf(parsed, upOptions)];
    const started = signals.ended ?? (await runOwn(up, signals));
    const status =
      signals.ended ?? (started === 0 ? await runProgram(parsed.program, name, signals) : started);
    if (status !== 0 && listClusters().includes(name)) await keepEvidence(name, evidence, output);
    return status;
  } finally {
    if (listClusters().includes(name)) await runOwn(['down', '--name', name], signals);
    signals.stop();
  }
}

/** Runs this program with other arguments. Standard output is that of the command of the run alone. */
function runOwn(words: readonly string[], signals: Signals): Promise<number> {
  const [script = ''] = process.argv.slice(1);
  const args = [...process.execArgv, script, ...words];
  return awaitProgram(spawn(process.execPath, args, { stdio: ['inherit', 2, 2] }), 'fairlead', signals);
}

/** Returns the words of the options that were given. */
function wordsOf({ options, given }: Parsed, table: OptionTable): string[] {
  return Object.entries(table).flatMap(([name, option]) =>
    given.has(name) ? wordsOfOption(name, option, options[name]) : [],
  );
}

function wordsOfOption(name: string, { kind }: Option, value: unknown): string[] {
  if (kind === 'flag') return value === true ? [`--${name}`] : [];
  return [value].flat().map((one) => `--${name}=${String(one)}`);
}
