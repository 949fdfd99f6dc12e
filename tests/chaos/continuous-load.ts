import { spawn } from 'node:child_process';
import { type Cluster, LAUNCHER } from '../testing/cluster.ts';

/** A client's observations of a Service during a disturbance. */
export interface Experience {
  readonly sent: number;
  readonly failed: number;
  /** Causes of failures, with their counts. */
  readonly causes: Readonly<Record<string, number>>;
  /** The longest time without an answer, in milliseconds. */
  readonly longestGapMs: number;
}

/** Sends requests, each on a new connection, by four workers at a time, until standard input ends. */
const CLIENT = `
const { get } = require('node:http');
const [host] = process.argv.slice(1);
const causes = {};
let sent = 0, failed = 0, longest = 0, last = performance.now(), isOver = false;
const ask = () => new Promise((resolve) => {
  const request = get({ host, path: '/hostname', agent: false, timeout: 5000 }, (response) => {
    response.resume().on('end', () => resolve(null)).on('error', resolve);
  });
  request.on('timeout', () => request.destroy(new Error('no answer within 5 s')));
  request.on('error', resolve);
});
const work = async () => {
  while (!isOver) {
    sent++;
    const error = await ask();
    const now = performance.now();
    if (error) {
      failed++;
      const cause = (error.code ?? error.message) + (error.syscall ? ' at ' + error.syscall : '');
      causes[cause] = (causes[cause] ?? 0) + 1;
    } else {
      longest = Math.max(longest, now - last);
      last = now;
    }
    await new Promise((resolve) => setTimeout(resolve, 4));
  }
};
process.stdin.resume().on('end', () => { isOver = true; });
console.log('started');
Promise.all([work(), work(), work(), work()]).then(() => {
  console.log(JSON.stringify({ sent, failed, causes, longestGapMs: Math.round(longest) }));
});
`;

/**
 * Sends requests from the pod "client" to a Service's cluster IP while `act` runs, and for a second after
 * it. Uses addresses instead of names, because each node's agent answers DNS, which is tested separately.
 */
export async function underLoad(
  cluster: Cluster,
  service: string,
  act: () => Promise<unknown>,
): Promise<Experience> {
  const address = await cluster.ask('get', 'service', service, '-o', 'jsonpath={.spec.clusterIP}');
  const words = ['exec', '--name', cluster.name, 'client', '--', '/opt/fairlead/node', '-e', CLIENT, address];
  const child = spawn(LAUNCHER, words, {
    stdio: ['pipe', 'pipe', 'inherit'],
    env: { ...process.env, FAIRLEAD_STATE: cluster.stateRoot },
  });
  let out = '';
  const started = new Promise<void>((resolve) => {
    child.stdout.setEncoding('utf8').on('data', (text: string) => {
      out += text;
      resolve();
    });
  });
  const ended = new Promise<void>((resolve) => child.on('close', () => resolve()));
  await Promise.race([started, ended]);
  try {
    await act();
    await new Promise((resolve) => setTimeout(resolve, 1000));
  } finally {
    child.stdin.end();
    await ended;
  }
  return JSON.parse(out.split('\n')[1] ?? '') as Experience;
}
