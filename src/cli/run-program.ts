import { type ChildProcess, spawn } from 'node:child_process';
import { constants } from 'node:os';
import { clusterPaths } from '../cluster/state.ts';
import { FairleadError, hasCode, messageOf } from '../lib/errors.ts';

/** As shells: the status of a command that a signal has ended. */
const SIGNAL_STATUS = 128;

/** The signals of a run. */
export interface Signals {
  /** The exit status of a signal that came before the command; null: none. */
  readonly ended: number | null;
  /** The command to which signals are passed on. */
  child: ChildProcess | null;
  stop(): void;
}

/** Keeps this process alive at SIGINT and SIGTERM. A terminal sends SIGINT to the command too; SIGTERM is passed on. */
export function followSignals(): Signals {
  let ended: number | null = null;
  const signals = {
    child: null as ChildProcess | null,
    get ended() {
      return ended;
    },
    stop() {
      for (const name of NAMES) process.off(name, onSignal);
    },
  };
  const NAMES = ['SIGINT', 'SIGTERM', 'SIGHUP'] as const;
  const onSignal = (name: NodeJS.Signals) => {
    ended = SIGNAL_STATUS + constants.signals[name];
    if (name !== 'SIGINT' || !process.stdin.isTTY) signals.child?.kill(name);
  };
  for (const name of NAMES) process.on(name, onSignal);
  return signals;
}

/** Runs the command of a run with the cluster's kubeconfig; resolves to its exit status. */
export function runProgram(
  [file = '', ...args]: readonly string[],
  name: string,
  signals: Signals,
): Promise<number> {
  const { bin, kubeconfig } = clusterPaths(name);
  const env = {
    ...process.env,
    KUBECONFIG: kubeconfig,
    FAIRLEAD_CLUSTER: name,
    // "fairlead" is this program.
    PATH: `${bin}:${process.env['PATH'] ?? '/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin'}`,
  };
  return awaitProgram(spawn(file, args, { stdio: 'inherit', env }), file, signals);
}

/** Passes signals on to a program; resolves to its exit status. Throws FairleadError if it cannot be started. */
export function awaitProgram(child: ChildProcess, file: string, signals: Signals): Promise<number> {
  signals.child = child;
  return new Promise((resolve, reject) => {
    child.on('error', (cause) =>
      reject(
        new FairleadError(`cannot run ${file}: ${messageOf(cause)}`, {
          op: 'fairlead run',
          code: hasCode(cause, 'ENOENT') ? 'ENOENT' : 'EIO',
          cause,
        }),
      ),
    );
    child.on('exit', (code, signal) =>
      resolve(code ?? SIGNAL_STATUS + (signal === null ? 0 : constants.signals[signal])),
    );
  });
}
