/**
 * How fast `kubectl exec` moves bytes out of and into a command, over WebSockets and over SPDY, through the stream code of
 * the pod runtime: kubectl and the server are processes of this machine, and connect over loopback. With --pod, through all
 * of a cluster that runs: its API server, the node's server, and a command in a container of the pod.
 *
 * node bench/exec.ts [--megabytes 256] [--rounds 5] [--pod NAME [--kubeconfig FILE]]
 *
 * The carriers take turns, and the median of the rounds counts.
 */
import { spawn } from 'node:child_process';
import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { parseArgs } from 'node:util';
import { startPodServer } from '../src/runtime/streams/testing/pod-server.ts';
import { printTable } from './print-table.ts';

const { values: options } = parseArgs({
  options: {
    megabytes: { type: 'string', default: '256' },
    rounds: { type: 'string', default: '5' },
    pod: { type: 'string' },
    kubeconfig: { type: 'string', default: process.env['KUBECONFIG'] ?? '' },
  },
});
const BYTES = Math.min(4096, Number(options.megabytes)) * 1_000_000;
const ROUNDS = Math.min(50, Number(options.rounds));

const CARRIERS = [
  ['WebSocket', 'true'],
  ['SPDY', 'false'],
] as const;
const POD = options.pod ?? 'p';
const DIRECTIONS = [
  ['out of the command', ['exec', POD, '--', 'head', '-c', String(BYTES), '/dev/zero'], false],
  ['into the command', ['exec', '-i', POD, '--', 'wc', '-c'], true],
] as const;

const folder = mkdtempSync(join(tmpdir(), 'fairlead-exec-'));
const server = options.pod === undefined ? await startPodServer() : null;
const SERVER = server ? ['--server', `http://127.0.0.1:${server.port}`] : [];

/** Runs kubectl once. Returns the megabytes of each second. */
async function run(words: readonly string[], isInput: boolean, webSockets: string): Promise<number> {
  const started = performance.now();
  const input = `head -c ${BYTES} /dev/zero | `;
  const kubectl = ['kubectl', ...SERVER, ...words].join(' ');
  const child = spawn('sh', ['-c', `${isInput ? input : ''}${kubectl}${isInput ? '' : ' | wc -c'}`], {
    stdio: ['ignore', 'pipe', 'inherit'],
    env: {
      ...process.env,
      HOME: folder,
      KUBECONFIG: server ? '/dev/null' : options.kubeconfig,
      KUBECTL_REMOTE_COMMAND_WEBSOCKETS: webSockets,
    },
  });
  let counted = '';
  child.stdout.setEncoding('utf8').on('data', (text: string) => {
    counted += text;
  });
  await new Promise((resolve) => child.on('close', resolve));
  if (Number(counted) !== BYTES) throw new Error(`${counted.trim()} of ${BYTES} bytes arrived`);
  return BYTES / 1e6 / ((performance.now() - started) / 1000);
}

const median = (numbers: readonly number[]) =>
  numbers.toSorted((a, b) => a - b)[Math.floor(numbers.length / 2)] ?? 0;

try {
  const found = new Map<string, number[]>();
  for (let round = 0; round < ROUNDS; round++)
    for (const [carrier, webSockets] of CARRIERS)
      for (const [direction, words, isInput] of DIRECTIONS) {
        const key = `${carrier}, ${direction}`;
        const rates = found.get(key) ?? [];
        rates.push(await run(words, isInput, webSockets));
        found.set(key, rates);
      }
  printTable([
    ['carrier, direction', 'MB/s'],
    ...[...found].map(([key, rates]) => [key, median(rates).toFixed(0)]),
  ]);
} finally {
  await server?.close();
  rmSync(folder, { recursive: true, force: true });
}
