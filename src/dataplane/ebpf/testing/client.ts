import { type ChildProcess, fork } from 'node:child_process';
import { randomBytes } from 'node:crypto';
import { mkdirSync, rmdirSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { inNetns } from '../../../kernel/netns.ts';
import { defaultControlGroup } from '../programs.ts';

export interface Question {
  /**
   * `tcp-echo`: one connection that exchanges a byte twenty times a second, `times` times;
   * `udp-repeat`: a connected socket that sends twenty times a second, until it has `times` answers;
   * `tcp-storm`: many connections.
   */
  readonly how: 'tcp' | 'udp' | 'udp-connected' | 'udp-repeat' | 'tcp-storm' | 'tcp-echo';
  readonly address: string;
  readonly port: number;
  /** More places that the same unconnected socket sends to. */
  readonly also?: readonly (readonly [string, number])[];
  readonly timeoutMs: number;
  /** UDP: the name of a socket that the client keeps for further questions to the same address. */
  readonly kept?: string;
  /** Keeps the connection open without reading. */
  readonly hold?: boolean;
  /** The number of connections of `tcp-storm`, in total and per second, or of answers. */
  readonly times?: number;
  readonly perSecond?: number;
}

export interface Asked {
  /** The server's answer, "refused", "silence", or an errno name. */
  readonly answer: string;
  /** Address and port of the socket's peer, as getpeername shows them. */
  readonly peer?: string | undefined;
  readonly tookMs: number;
  /** With several connections: each answer and its count, and the sorted durations in milliseconds. */
  readonly answers?: Readonly<Record<string, number>>;
  readonly times?: readonly number[];
}

/** A process in a control group and a network namespace that opens connections on request. */
export interface Client {
  ask(
    how: Question['how'],
    address: string,
    port: number,
    more?: Partial<Pick<Question, 'also' | 'timeoutMs' | 'kept' | 'hold' | 'times' | 'perSecond'>>,
  ): Promise<Asked>;
  readonly pid: number;
  close(): Promise<void>;
}

/** Makes a new control group below the v2 root. */
export function makeTestGroup(): string {
  const group = join(defaultControlGroup(), `flt-${randomBytes(3).toString('hex')}`);
  mkdirSync(group);
  return group;
}

/** Removes a control group when its processes have ended. */
export async function removeTestGroup(group: string): Promise<void> {
  for (let tries = 0; ; tries++) {
    try {
      return rmdirSync(group);
    } catch (error) {
      if ((error as NodeJS.ErrnoException).code === 'ENOENT') return;
      // Killed processes leave their group shortly afterwards.
      if (tries === 100) throw error;
      await new Promise((resolve) => setTimeout(resolve, 10));
    }
  }
}

const SILENCE_MS = 500;

/** Starts a client. `group` null: outside any control group with programs. */
export async function startClient(namespace: string, group: string | null): Promise<Client> {
  const script = fileURLToPath(import.meta.resolve('./client-process.ts'));
  const child: ChildProcess = inNetns(namespace, () =>
    fork(script, { stdio: ['ignore', 'inherit', 'inherit', 'ipc'] }),
  );
  const { pid } = child;
  if (pid === undefined) throw new Error('the client did not start');
  const waiting = new Map<number, (asked: Asked) => void>();
  let next = 0;
  await new Promise<void>((resolve, reject) => {
    child.once('message', () => resolve());
    child.once('error', reject);
    child.once('exit', (code) => reject(new Error(`the client ended with ${code}`)));
  });
  if (group !== null) writeFileSync(join(group, 'cgroup.procs'), `${pid}`);
  child.on('message', (message) => {
    const { id, asked } = message as { id: number; asked: Asked };
    waiting.get(id)?.(asked);
    waiting.delete(id);
  });
  return {
    pid,
    ask(how, address, port, more = {}) {
      const id = next++;
      const question: Question = { how, address, port, timeoutMs: SILENCE_MS, ...more };
      return new Promise((resolve) => {
        waiting.set(id, resolve);
        child.send({ id, question });
      });
    },
    close: () =>
      new Promise((resolve) => {
        if (child.exitCode !== null || child.signalCode !== null) return resolve();
        child.once('exit', () => resolve());
        child.kill('SIGKILL');
      }),
  };
}
