import type { ChildProcess } from 'node:child_process';
import { createInterface } from 'node:readline';

/**
 * A program for Node.js with the argument URL: sends a request each 50 ms, on a new connection, and prints "begun" after
 * the first answer, and the counts (Sent) after standard input has ended. A request fails after 15 s, which a slow machine
 * may need.
 */
export const SEND_REQUESTS = `
const { get } = require('node:http');
const [url] = process.argv.slice(1);
let sent = 0, ended = 0, slowest = 0, slowestPhase = '', begun = false, stopping = false;
const failures = {};
const ask = () => {
  const since = Date.now();
  let phase = 'name', longest = 0, longestPhase = '', entered = since;
  const enter = (next) => {
    const now = Date.now();
    if (now - entered > longest) { longest = now - entered; longestPhase = phase; }
    phase = next;
    entered = now;
  };
  sent++;
  const end = (failure) => {
    clearTimeout(timer);
    ended++;
    enter('');
    const took = Date.now() - since;
    if (took > slowest) { slowest = took; slowestPhase = longestPhase; }
    if (failure !== null) failures[failure] = (failures[failure] ?? 0) + 1;
    else if (!begun) console.log('begun');
    begun = begun || failure === null;
    if (stopping && ended === sent) finish();
  };
  const request = get(url, { agent: false }, (response) => {
    response.resume();
    response.on('end', () => end(response.statusCode === 200 ? null : String(response.statusCode)));
  });
  request.on('socket', (socket) => {
    socket.on('lookup', () => enter('connection'));
    socket.on('connect', () => enter('response'));
  });
  request.on('error', (error) => end(error.code ?? error.message));
  const timer = setTimeout(() => request.destroy(new Error('no ' + phase + ' within 15 s')), 15000);
};
const finish = () => { console.log(JSON.stringify({ sent, failures, slowest, slowestPhase })); process.exit(0); };
const interval = setInterval(ask, 50);
process.stdin.resume().on('end', () => {
  clearInterval(interval);
  stopping = true;
  if (ended === sent) finish();
});
`;

/** The result: failures: text → count; `slowest` in milliseconds, and the phase that took longest then. */
export interface Sent {
  readonly sent: number;
  readonly failures: Readonly<Record<string, number>>;
  readonly slowest: number;
  readonly slowestPhase: string;
}

/** A program that has begun, and whose result is printed when its standard input ends. */
export interface Sender<T> {
  /** What it sends. */
  readonly what: string;
  stop(): Promise<T>;
}

/** Waits for the first answer. Throws with the program's errors if it ends before. */
export function senderBegun<T>(child: ChildProcess, what: string): Promise<Sender<T>> {
  let error = '';
  child.stderr?.setEncoding('utf8').on('data', (text: string) => {
    error += text;
  });
  let last = '';
  const ended = new Promise<string>((resolve, reject) =>
    child.on('close', (status) =>
      status === 0 ? resolve(last) : reject(new Error(`${what}: status ${status}: ${error}`)),
    ),
  );
  const begun = new Promise<void>((resolve) => {
    if (!child.stdout) return;
    createInterface({ input: child.stdout }).on('line', (line) => {
      last = line;
      resolve();
    });
  });
  const sender = {
    what,
    async stop() {
      child.stdin?.end();
      return JSON.parse(await ended) as T;
    },
  };
  return Promise.race([begun, ended]).then(() => sender);
}
