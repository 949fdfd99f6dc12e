import { type ChildProcess, spawn } from 'node:child_process';
import { join } from 'node:path';
import { createInterface } from 'node:readline';

/** A request to send `count` times, each on a new connection, or from a new port. */
export interface Question {
  readonly host: string;
  readonly port: number;
  readonly protocol: 'tcp' | 'udp';
  readonly family: 4 | 6;
  readonly count: number;
  /** Time without an answer that counts as silence, in milliseconds. */
  readonly patienceMs: number;
}

/** The outcome of one attempt. */
export type Met =
  | { readonly kind: 'answer'; readonly server: string; readonly client: string }
  | { readonly kind: 'refused' | 'reset' | 'accepted' | 'silence' | 'unreachable' | 'unresolved' }
  | { readonly kind: 'failed'; readonly error: string };

/**
 * A process in a pod, on a node or outside that sends requests like any client there, with its resolver.
 */
export interface Asker {
  ask(question: Question): Promise<Met[]>;
  stop(): void;
}

const LAUNCHER = join(import.meta.dirname, '..', '..', 'fairlead');

/** The ports that TCP clients connect from: below those of node ports and those that kernels choose. */
const FIRST_PORT = 20_000;
const PORTS = 10_000;
/** Clients of one network namespace begin this far apart. */
const PORTS_APART = 1000;

const PROGRAM = `
const { lookup } = require('node:dns');
const { connect } = require('node:net');
const { createSocket } = require('node:dgram');
const kindOf = ({ code, message }) =>
  code === 'ECONNREFUSED' ? { kind: 'refused' }
  : code === 'ECONNRESET' ? { kind: 'reset' }
  : code === 'ENETUNREACH' || code === 'EHOSTUNREACH' || code === 'EACCES' ? { kind: 'unreachable' }
  : { kind: 'failed', error: code + ' ' + message };
let taken = Number(process.argv[1]);
// No port twice within minutes, to whatever destination: IPVS takes replies for those of an earlier connection from
// the same port to the same endpoint (docs/ipvs.md).
const nextPort = () => ${FIRST_PORT} + (taken++ % ${PORTS});
const plain = (text) => text.replace(/^\\[(.*)\\]:[0-9]+$/, '$1').replace(/^([0-9.]+):[0-9]+$/, '$1').replace(/^::ffff:/, '');
const tcp = ({ port, patienceMs }, address) => new Promise((resolve) => {
  let received = '';
  let isConnected = false;
  const localPort = nextPort();
  const socket = connect({ port, host: address, localPort });
  const finish = (met) => { clearTimeout(timer); socket.destroy(); resolve(met); };
  const timer = setTimeout(() => finish({ kind: isConnected ? 'accepted' : 'silence' }), patienceMs);
  socket.on('error', (error) => finish(error.code === 'EADDRINUSE' ? tcp({ port, patienceMs }, address) : kindOf(error)));
  socket.on('data', (data) => { received += data; });
  socket.on('end', () => {
    const match = /from (\\S+) \\(you are (\\S+)\\)/.exec(received);
    finish(match ? { kind: 'answer', server: match[1], client: plain(match[2]) } : { kind: 'answer', server: '', client: '' });
  });
  socket.on('connect', () => { isConnected = true; socket.write('GET / HTTP/1.0\\r\\n\\r\\n'); });
});
const udp = ({ port, family, patienceMs }, address) => new Promise((resolve) => {
  const socket = createSocket('udp' + family);
  const finish = (met) => { clearTimeout(timer); clearInterval(again); socket.close(); resolve(met); };
  let again;
  const timer = setTimeout(() => finish({ kind: 'silence' }), patienceMs);
  socket.on('error', (error) => finish(kindOf(error)));
  socket.on('message', (data) => {
    const [server, client] = data.toString().trim().split(' ');
    finish({ kind: 'answer', server, client: plain(client ?? '') });
  });
  socket.connect(port, address, (error) => {
    if (error) return finish(kindOf(error));
    const send = () => socket.send('who');
    send();
    again = setInterval(send, 300);
  });
});
const once = (question) => new Promise((resolve) => {
  lookup(question.host, { family: question.family }, (error, address) => {
    if (error) return resolve({ kind: 'unresolved' });
    resolve((question.protocol === 'tcp' ? tcp : udp)(question, address));
  });
});
require('node:readline').createInterface({ input: process.stdin }).on('line', async (line) => {
  const { id, question } = JSON.parse(line);
  const first = await once(question);
  // Repeated to see the choice among endpoints. ICMP errors are few: a kernel limits how many it sends
  // (icmp_ratelimit).
  const isMore = first.kind === 'answer' || (first.kind === 'refused' && question.protocol === 'tcp');
  const more = !isMore ? [] : await Promise.all(Array.from({ length: question.count - 1 }, () => once(question)));
  console.log(JSON.stringify({ id, met: [first, ...more] }));
}).on('close', () => process.exit(0));
`;

/** Starts one in `place`, as named by `fairlead exec`; `index` counts those of the cluster. */
export function startAsker(
  cluster: { name: string; stateRoot: string },
  place: string,
  index: number,
): Asker {
  const isPod = place !== 'outside' && !place.startsWith('node/');
  const node = isPod ? '/opt/fairlead/node' : process.execPath;
  const first = String(index * PORTS_APART);
  const words = ['exec', '--name', cluster.name, place, '--', node, '-e', PROGRAM, first];
  const child: ChildProcess = spawn(LAUNCHER, words, {
    stdio: ['pipe', 'pipe', 'pipe'],
    env: { ...process.env, FAIRLEAD_STATE: cluster.stateRoot, UV_THREADPOOL_SIZE: '16' },
  });
  let error = '';
  child.stderr?.setEncoding('utf8').on('data', (text: string) => {
    error += text;
  });
  const waiting = new Map<number, { resolve: (met: Met[]) => void; reject: (error: Error) => void }>();
  child.on('close', () => {
    for (const { reject } of waiting.values()) reject(new Error(`the client in ${place} ended: ${error}`));
  });
  if (child.stdout) {
    createInterface({ input: child.stdout }).on('line', (line) => {
      const { id, met } = JSON.parse(line) as { id: number; met: Met[] };
      waiting.get(id)?.resolve(met);
      waiting.delete(id);
    });
  }
  let last = 0;
  return {
    ask(question) {
      const id = ++last;
      return new Promise((resolve, reject) => {
        waiting.set(id, { resolve, reject });
        child.stdin?.write(`${JSON.stringify({ id, question })}\n`);
      });
    },
    stop: () => child.stdin?.end(),
  };
}

/** One asker for each place that is asked from, started when it is first needed. */
export interface Askers {
  in(place: string): Asker;
  stop(): void;
}

export function createAskers(cluster: () => { name: string; stateRoot: string }): Askers {
  const started = new Map<string, Asker>();
  return {
    in(place) {
      const asker = started.get(place) ?? startAsker(cluster(), place, started.size);
      started.set(place, asker);
      return asker;
    },
    stop() {
      for (const asker of started.values()) asker.stop();
    },
  };
}
