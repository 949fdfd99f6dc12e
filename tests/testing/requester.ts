import { type ChildProcess, spawn } from 'node:child_process';
import { once } from 'node:events';
import { statSync } from 'node:fs';
import { join } from 'node:path';
import { createInterface } from 'node:readline';
import { parseArgs } from 'node:util';
import { hasCode } from '../../src/lib/errors.ts';
import { SEND_FOR_LINES } from './request-program.ts';

/** The counts of `fairlead request -o json`. */
export interface Counts {
  readonly count: number;
  /** Answer → count. */
  readonly answers: Readonly<Record<string, number>>;
  readonly failures: Readonly<Record<string, number>>;
}

export interface Load {
  /** Failures so far: texts with their counts. */
  readonly failures: Readonly<Record<string, number>>;
  /** Ends the load after some more requests, so that some begin after the call; resolves to its counts. */
  stop(): Promise<Counts>;
}

export interface Connection {
  /** Returns the number of answered requests. */
  answered(): number;
  /** Closes the connection; throws if it broke. */
  stop(): Promise<{ readonly requests: number; readonly answers: ReadonlySet<string> }>;
}

/** Sends requests from the places of a cluster, as `fairlead exec` names them: one process in each, started when needed. */
export interface Requester {
  /** `options`: --count, --concurrency, --rate, --timeout, -4 and -6 of `fairlead request`. */
  request(place: string, url: string, options: readonly string[]): Promise<Counts>;
  /** Works like `request` until it is stopped; sends at least --count requests. */
  load(place: string, url: string, options: readonly string[]): Load;
  /** Sends a request over one connection every 20 ms. */
  connect(place: string, host: string, port: number): Connection;
  /** Ends the processes. The next request starts new ones. */
  close(): Promise<void>;
}

const LAUNCHER = join(import.meta.dirname, '..', '..', 'fairlead');
/** The number of requests of a load after it is told to stop. */
const AFTER_STOP = 20;

interface Line {
  readonly id: number;
  readonly counts?: Counts;
  readonly answer?: string;
  readonly failure?: string;
  readonly isClosed?: true;
}

/** What a line of the process begins, and what its own lines are for. */
interface Listener {
  onLine(line: Line): void;
  onEnd(error: Error): void;
}

interface Sender {
  /** Sends a line; its answers go to the listener until that is forgotten. */
  begin(line: object, listener: Listener): number;
  stop(id: number): void;
  forget(id: number): void;
  readonly child: ChildProcess;
  /** The namespace that it was started in. */
  readonly namespace: string;
}

export function createRequester(name: string, stateRoot: string): Requester {
  const senders = new Map<string, Sender>();

  function senderIn(place: string): Sender {
    const namespace = namespaceOf(name, place);
    const known = senders.get(place);
    if (known && known.child.exitCode === null && known.child.signalCode === null) {
      if (known.namespace === namespace) return known;
      // A node or a cluster that has been started again has new namespaces.
      known.child.stdin?.end();
    }
    const sender = startSender(name, stateRoot, place, namespace);
    senders.set(place, sender);
    return sender;
  }

  function count(place: string, target: object, onFailure: (text: string) => void) {
    const sender = senderIn(place);
    let id = 0;
    const counts = new Promise<Counts>((resolve, reject) => {
      id = sender.begin(
        { send: target },
        {
          onLine({ counts, failure }) {
            if (failure !== undefined) onFailure(failure);
            if (counts === undefined) return;
            sender.forget(id);
            resolve(counts);
          },
          onEnd: reject,
        },
      );
    });
    return { counts, stop: () => sender.stop(id) };
  }

  return {
    request: (place, url, options) =>
      count(place, { ...targetOf(url, options), isEndless: false }, () => {}).counts,
    load(place, url, options) {
      const failures: Record<string, number> = {};
      const target = { ...targetOf(url, options), isEndless: true, afterStop: AFTER_STOP };
      const running = count(place, target, (text) => {
        failures[text] = (failures[text] ?? 0) + 1;
      });
      running.counts.catch(() => {});
      return {
        failures,
        stop() {
          running.stop();
          return running.counts;
        },
      };
    },
    connect(place, host, port) {
      const sender = senderIn(place);
      const answers: string[] = [];
      let broken: Error | null = null;
      let id = 0;
      const ended = new Promise<void>((resolve) => {
        const fail = (text: string) => {
          broken = new Error(`connection from ${place} to ${host}:${port}: ${text}`);
          resolve();
        };
        id = sender.begin(
          { connect: { host, port } },
          {
            onLine({ answer, failure }) {
              if (answer !== undefined) return void answers.push(answer);
              sender.forget(id);
              if (failure !== undefined) fail(failure);
              resolve();
            },
            onEnd: ({ message }) => fail(message),
          },
        );
      });
      return {
        answered() {
          if (broken) throw broken;
          return answers.length;
        },
        async stop() {
          sender.stop(id);
          await ended;
          if (broken) throw broken;
          return { requests: answers.length, answers: new Set(answers) };
        },
      };
    },
    async close() {
      const children = [...senders.values()].map(({ child }) => child);
      senders.clear();
      await Promise.all(
        children.map(async (child) => {
          if (child.exitCode !== null || child.signalCode !== null) return;
          child.ref();
          const ended = once(child, 'exit');
          child.stdin?.end();
          await ended;
        }),
      );
    },
  };
}

function startSender(name: string, stateRoot: string, place: string, namespace: string): Sender {
  // In pods, the path in the image; nodes and outside see the machine's files.
  const node = place.startsWith('node/') || place === 'outside' ? process.execPath : '/opt/fairlead/node';
  const words = ['exec', '--name', name, place, '--', node, '-e', SEND_FOR_LINES];
  const child = spawn(LAUNCHER, words, {
    stdio: ['pipe', 'pipe', 'pipe'],
    env: { ...process.env, FAIRLEAD_STATE: stateRoot },
  });
  const listeners = new Map<number, Listener>();
  // An idle one does not keep the test's process running.
  const streams = [child, child.stdin, child.stdout, child.stderr] as unknown as {
    ref(): void;
    unref(): void;
  }[];
  const setReferenced = () => {
    for (const one of streams) listeners.size > 0 ? one.ref() : one.unref();
  };
  let error = '';
  child.stderr.setEncoding('utf8').on('data', (text: string) => {
    error += text;
  });
  child.stdin.on('error', () => {});
  const endAll = (reason: string) => {
    for (const { onEnd } of [...listeners.values()]) onEnd(new Error(`requests from ${place}: ${reason}`));
    listeners.clear();
  };
  child.on('error', ({ message }) => endAll(message));
  child.on('close', (status, signal) => endAll(`the process ended with ${signal ?? status}: ${error}`));
  createInterface({ input: child.stdout }).on('line', (text) => {
    const line = JSON.parse(text) as Line;
    listeners.get(line.id)?.onLine(line);
  });
  let last = 0;
  return {
    child,
    namespace,
    begin(line, listener) {
      const id = ++last;
      listeners.set(id, listener);
      setReferenced();
      child.stdin.write(`${JSON.stringify({ id, ...line })}\n`);
      return id;
    },
    stop(id) {
      child.stdin.write(`${JSON.stringify({ id, stop: true })}\n`);
    },
    forget(id) {
      listeners.delete(id);
      setReferenced();
    },
  };
}

/** Returns an identity of the network namespace of a node or of outside; empty for pods, whose processes end with them. */
function namespaceOf(name: string, place: string): string {
  const [, node = ''] = /^node\/(.*)$/.exec(place) ?? [];
  if (node === '' && place !== 'outside') return '';
  try {
    return String(statSync(`/run/netns/fl-${name}-${node || 'outside'}`).ino);
  } catch (error) {
    if (hasCode(error, 'ENOENT', 'EACCES')) return '';
    throw error;
  }
}

function targetOf(url: string, words: readonly string[]): object {
  const { values } = parseArgs({
    args: [...words],
    options: {
      count: { type: 'string', default: '1' },
      concurrency: { type: 'string', default: '8' },
      rate: { type: 'string', default: '0' },
      timeout: { type: 'string', default: '15000' },
      ipv4: { type: 'boolean', short: '4' },
      ipv6: { type: 'boolean', short: '6' },
    },
  });
  const { protocol, hostname, port, pathname, search } = new URL(url);
  return {
    protocol: protocol === 'udp:' ? 'udp' : 'http',
    host: hostname.replace(/^\[|\]$/g, ''),
    port: Number(port || 80),
    path: pathname === '/' || pathname === '' ? '/hostname' : pathname + search,
    family: values.ipv4 ? 4 : values.ipv6 ? 6 : 0,
    ...{ count: Number(values.count), concurrency: Number(values.concurrency) },
    ...{ rate: Number(values.rate), timeout: Number(values.timeout) },
  };
}
