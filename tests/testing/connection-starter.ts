import { spawnInNetns } from '../../src/kernel/netns.ts';

/**
 * One connection that was opened, used for one request and closed. Times are those of the machine's clock,
 * in milliseconds.
 */
export interface Attempt {
  readonly host: string;
  readonly begun: number;
  readonly ended: number;
  readonly error: string | null;
}

/** Opens a new connection to every host repeatedly, regardless of the earlier ones. */
const KEEP_STARTING = `
const { get } = require('node:http');
const [everyMs, patienceMs, ...hosts] = process.argv.slice(1);
let pending = 0, ending = false;
const begin = (host) => {
  const begun = Date.now();
  pending++;
  let over = false;
  const end = (error) => {
    if (over) return;
    over = true;
    pending--;
    console.log(JSON.stringify({ host, begun, ended: Date.now(), error }));
    if (ending && pending === 0) process.exit(0);
  };
  get({ host, port: 80, path: '/hostname', agent: false, signal: AbortSignal.timeout(Number(patienceMs)) }, (response) => {
    response.resume().on('end', () => end(null)).on('error', (error) => end(error.message));
  }).on('error', (error) => end(error.message)).on('close', () => end('closed before the answer'));
};
const timer = setInterval(() => hosts.forEach(begin), Number(everyMs));
process.stdin.resume().on('end', () => { ending = true; clearInterval(timer); if (pending === 0) process.exit(0); });
`;

export interface ConnectionStarter {
  /** The attempts that have ended so far. */
  readonly attempts: readonly Attempt[];
  stop(): Promise<readonly Attempt[]>;
}

/**
 * Starts connections to port 80 of `hosts` from a network namespace; an attempt times out after ten
 * seconds.
 */
export function startConnections(netns: string, hosts: readonly string[], everyMs = 10): ConnectionStarter {
  const words = ['-e', KEEP_STARTING, String(everyMs), '10000', ...hosts];
  const child = spawnInNetns(netns, process.execPath, words, { stdio: ['pipe', 'pipe', 'inherit'] });
  const attempts: Attempt[] = [];
  let rest = '';
  child.stdout?.setEncoding('utf8').on('data', (text: string) => {
    const lines = (rest + text).split('\n');
    rest = lines.pop() ?? '';
    for (const line of lines) attempts.push(JSON.parse(line) as Attempt);
  });
  const ended = new Promise<void>((resolve) => child.once('close', () => resolve()));
  return {
    attempts,
    async stop() {
      child.stdin?.end();
      await ended;
      return attempts;
    },
  };
}
