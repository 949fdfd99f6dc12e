import { type ChildProcess, spawn, spawnSync } from 'node:child_process';
import { chownSync, mkdtempSync, readdirSync, readFileSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { hasCode } from '../../src/lib/errors.ts';
import { LAUNCHER, type Result } from './cluster.ts';

/** A user without rights, by a number, with a home of its own. */
export interface OrdinaryUser {
  readonly home: string;
  /** Runs ./fairlead as this user. */
  fairlead(...words: readonly string[]): Promise<Result>;
  /** Runs any program as this user, with more variables. */
  run(file: string, words: readonly string[], env?: Record<string, string>): Promise<Result>;
  start(file: string, words: readonly string[], env?: Record<string, string>): ChildProcess;
  /** Returns the command lines of the user's processes. */
  processes(): string[];
  remove(): void;
}

export function ordinaryUser(uid: number): OrdinaryUser {
  const home = mkdtempSync(join(tmpdir(), 'flt-home-'));
  chownSync(home, uid, uid);
  const start: OrdinaryUser['start'] = (file, words, env = {}) =>
    spawn(
      'setpriv',
      [`--reuid=${uid}`, `--regid=${uid}`, '--clear-groups', '--inh-caps=-all', '--', file, ...words],
      {
        cwd: home,
        stdio: ['ignore', 'pipe', 'pipe'],
        env: { PATH: process.env['PATH'], HOME: home, ...env },
      },
    );
  const run: OrdinaryUser['run'] = (file, words, env) =>
    new Promise((resolve, reject) => {
      const child = start(file, words, env);
      let [out, error] = ['', ''];
      child.stdout?.setEncoding('utf8').on('data', (text: string) => (out += text));
      child.stderr?.setEncoding('utf8').on('data', (text: string) => (error += text));
      child.on('error', reject);
      child.on('close', (status) => resolve({ status: status ?? 1, out, error }));
    });
  return {
    home,
    run,
    start,
    fairlead: (...words) => run(LAUNCHER, words),
    processes: () => processesOf(uid),
    remove: () => rmSync(home, { recursive: true, force: true }),
  };
}

/** Why an ordinary user cannot run the launcher here; null: nothing prevents it. */
export function cannotRun(uid: number): string | null {
  // Makes the bundle, which the user could not write.
  spawnSync(LAUNCHER, ['version']);
  const bundle = join(LAUNCHER, '..', 'dist', 'fairlead.mjs');
  const unprivileged = [`--reuid=${uid}`, `--regid=${uid}`, '--clear-groups', '--'];
  if (spawnSync('setpriv', [...unprivileged, 'test', '-r', bundle]).status !== 0)
    return 'the bundle lies in a folder that only root may read';
  const made = spawnSync('setpriv', [...unprivileged, 'unshare', '--user', 'true'], { encoding: 'utf8' });
  return made.status === 0 ? null : `this machine makes no user namespaces for users: ${made.stderr}`;
}

/** Returns the command lines of a user's processes, without those that have ended. */
function processesOf(uid: number): string[] {
  return readdirSync('/proc')
    .filter((entry) => /^[0-9]+$/.test(entry))
    .flatMap((pid) => {
      try {
        const status = readFileSync(`/proc/${pid}/status`, 'utf8');
        const owner = Number(/^Uid:\s*(\d+)/m.exec(status)?.[1]);
        if (owner !== uid || /^State:\s*[ZX]/m.test(status)) return [];
        return [readFileSync(`/proc/${pid}/cmdline`, 'utf8').replaceAll('\0', ' ').trim()];
      } catch (error) {
        if (hasCode(error, 'ENOENT', 'ESRCH')) return [];
        throw error;
      }
    });
}
