/**
 * Processor time that an API server takes to tell many watchers of many changes, beside kube-apiserver with etcd
 * where KUBEBUILDER_ASSETS names a folder with both.
 *
 *   node bench/watch-fan-out.ts [WATCHERS] [EVENTS]
 */
import { type ChildProcess, execFileSync, spawn } from 'node:child_process';
import { once } from 'node:events';
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { type ClientHttp2Session, connect } from 'node:http2';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { createInterface } from 'node:readline';
import { setTimeout as sleep } from 'node:timers/promises';
import { parse } from 'yaml';
import { printTable } from './print-table.ts';

const WATCHERS = Number(process.argv[2] ?? 100);
const EVENTS = Number(process.argv[3] ?? 500);
const CREATORS = 4;
const WINDOW_BYTES = 512 * 1024 * 1024;
/** Clock ticks of /proc/PID/stat a second (sysconf _SC_CLK_TCK; 100 on Linux). */
const TICKS = 100;
const SETTINGS = { initialWindowSize: 16 * 1024 * 1024 };
const CONFIG_MAPS = '/api/v1/namespaces/default/configmaps';

interface Subject {
  readonly name: string;
  readonly pids: readonly number[];
  open(): ClientHttp2Session;
  readonly headers: Record<string, string>;
  stop(): Promise<void>;
}

function processorSeconds(pids: readonly number[]): number {
  let ticks = 0;
  for (const pid of pids) {
    // Fields after the command's closing parenthesis: the 12th and 13th are user and system time (proc(5)).
    const fields = readFileSync(`/proc/${pid}/stat`, 'utf8').split(') ')[1]?.split(' ') ?? [];
    ticks += Number(fields[11]) + Number(fields[12]);
  }
  return ticks / TICKS;
}

async function fairlead(): Promise<Subject> {
  const child = spawn(process.execPath, [join(import.meta.dirname, 'watch-server.ts')], {
    stdio: ['ignore', 'pipe', 'inherit'],
  });
  const [path] = (await once(createInterface(child.stdout), 'line')) as [string];
  const config = parse(readFileSync(path, 'utf8'));
  const pem = (text: string) => Buffer.from(text, 'base64').toString();
  const { server, 'certificate-authority-data': ca } = config.clusters[0].cluster;
  const { 'client-certificate-data': cert, 'client-key-data': key } = config.users[0].user;
  return {
    name: 'fairlead',
    pids: [child.pid ?? 0],
    open: () => connect(server, { ca: pem(ca), cert: pem(cert), key: pem(key), settings: SETTINGS }),
    headers: {},
    stop: () => stopped(child),
  };
}

async function kubeApiserver(assets: string): Promise<Subject> {
  const folder = mkdtempSync(join(tmpdir(), 'fairlead-bench-'));
  const file = (name: string) => join(folder, name);
  execFileSync('openssl', ['genrsa', '-out', file('sa.key'), '2048'], { stdio: 'ignore' });
  execFileSync('openssl', ['rsa', '-in', file('sa.key'), '-pubout', '-out', file('sa.pub')], {
    stdio: 'ignore',
  });
  writeFileSync(file('tokens'), 't,admin,1,"system:masters"\n');
  const etcd = spawn(
    join(assets, 'etcd'),
    [
      '--data-dir',
      file('etcd'),
      '--unsafe-no-fsync',
      '--listen-client-urls=http://127.0.0.1:23791',
      '--advertise-client-urls=http://127.0.0.1:23791',
      '--listen-peer-urls=http://127.0.0.1:23801',
      '--initial-advertise-peer-urls=http://127.0.0.1:23801',
      '--initial-cluster=default=http://127.0.0.1:23801',
    ],
    { stdio: 'ignore' },
  );
  const server = spawn(
    join(assets, 'kube-apiserver'),
    [
      '--etcd-servers=http://127.0.0.1:23791',
      '--secure-port=16444',
      '--bind-address=127.0.0.1',
      '--advertise-address=192.0.2.1',
      `--cert-dir=${file('certs')}`,
      '--service-cluster-ip-range=10.96.0.0/16',
      '--service-account-issuer=https://kubernetes.default.svc',
      `--service-account-key-file=${file('sa.pub')}`,
      `--service-account-signing-key-file=${file('sa.key')}`,
      '--authorization-mode=RBAC',
      `--token-auth-file=${file('tokens')}`,
    ],
    { stdio: 'ignore' },
  );
  const headers = { authorization: 'Bearer t' };
  const open = () => connect('https://127.0.0.1:16444', { rejectUnauthorized: false, settings: SETTINGS });
  for (;;) {
    try {
      const session = open();
      session.on('error', () => {});
      await once(session, 'connect');
      const { status } = await request(session, { ...headers, ':path': '/readyz' });
      session.close();
      if (status === 200) break;
    } catch {
      // Not up yet.
    }
    await sleep(300);
  }
  // The work of the first seconds (controllers, first lists) is not the watches'.
  await sleep(10_000);
  return {
    name: 'kube-apiserver + etcd',
    pids: [server.pid ?? 0, etcd.pid ?? 0],
    open,
    headers,
    async stop() {
      await stopped(server);
      await stopped(etcd);
      rmSync(folder, { recursive: true });
    },
  };
}

async function stopped(child: ChildProcess): Promise<void> {
  const exit = once(child, 'exit');
  // kube-apiserver waits a minute for open watches when it is asked politely.
  child.kill('SIGKILL');
  await exit;
}

async function request(
  session: ClientHttp2Session,
  headers: Record<string, string>,
  body?: string,
): Promise<{ status: number; body: string }> {
  const stream = session.request({ ...headers });
  let status = 0;
  let text = '';
  stream.on('response', (answer) => {
    status = answer[':status'] ?? 0;
  });
  stream.on('data', (chunk: Buffer) => {
    text += chunk.toString();
  });
  stream.end(body);
  await once(stream, 'close');
  return { status, body: text };
}

interface Result {
  readonly name: string;
  readonly seconds: number;
  readonly wall: number;
  readonly bytes: number;
}

async function measure(subject: Subject, accept: string): Promise<Result> {
  const watching = subject.open();
  // kube-apiserver ends the watches of clients that read slowly: nothing shall wait for a window.
  await once(watching, 'connect');
  watching.setLocalWindowSize(WINDOW_BYTES);
  const writing = subject.open();
  const list = await request(watching, { ...subject.headers, ':path': `${CONFIG_MAPS}?limit=1` });
  const from = JSON.parse(list.body).metadata.resourceVersion;
  let bytes = 0;
  const seen: Promise<void>[] = [];
  for (let i = 0; i < WATCHERS; i++) {
    const stream = watching.request({
      ...subject.headers,
      accept,
      ':path': `${CONFIG_MAPS}?watch=true&resourceVersion=${from}&labelSelector=bench%3Dfan-out`,
    });
    let count = 0;
    seen.push(
      new Promise((resolve, reject) => {
        stream.on('close', () => reject(new Error(`a watch ended after ${count} events`)));
        let tail = Buffer.alloc(0);
        stream.on('data', (data: Buffer) => {
          bytes += data.length;
          // Every event names its type once, in either form; the word may come in two pieces.
          const chunk = Buffer.concat([tail, data]);
          tail = chunk.subarray(-4);
          for (let at = chunk.indexOf('ADDED'); at >= 0; at = chunk.indexOf('ADDED', at + 1)) count++;
          if (count >= EVENTS) resolve();
        });
      }),
    );
    await once(stream, 'response');
  }
  console.error(`${subject.name}: ${WATCHERS} watches of ${accept} run`);
  const before = processorSeconds(subject.pids);
  const began = performance.now();
  let next = 0;
  const create = async () => {
    while (next < EVENTS) {
      const name = `fan-out-${accept.length}-${next++}`;
      const { status } = await request(
        writing,
        { ...subject.headers, ':method': 'POST', ':path': CONFIG_MAPS, 'content-type': 'application/json' },
        JSON.stringify({
          apiVersion: 'v1',
          kind: 'ConfigMap',
          metadata: { name, labels: { bench: 'fan-out' } },
          data: { text: 'x'.repeat(1000) },
        }),
      );
      if (status !== 201) throw new Error(`creation answered ${status}`);
    }
  };
  await Promise.all(Array.from({ length: CREATORS }, create));
  await Promise.all(seen);
  const wall = (performance.now() - began) / 1000;
  // Accounting of a process's time is in ticks; what is left of the work is over by then.
  await sleep(300);
  const seconds = processorSeconds(subject.pids) - before;
  watching.destroy();
  writing.destroy();
  return { name: subject.name, seconds, wall, bytes };
}

const assets = process.env['KUBEBUILDER_ASSETS'];
const rows: string[][] = [['server', 'format', 'processor s', 'wall s', 'MB sent', 'ratio']];
const starts = [...(assets ? [() => kubeApiserver(assets)] : []), fairlead];
const reference = new Map<string, number>();
for (const start of starts) {
  const subject = await start();
  try {
    for (const accept of ['application/json', 'application/vnd.kubernetes.protobuf']) {
      const { name, seconds, wall, bytes } = await measure(subject, accept);
      const base = reference.get(accept) ?? seconds;
      reference.set(accept, base);
      rows.push([
        name,
        accept.replace(/^application\/(vnd\.kubernetes\.)?/, ''),
        seconds.toFixed(2),
        wall.toFixed(2),
        (bytes / 1e6).toFixed(1),
        (seconds / base).toFixed(2),
      ]);
    }
  } finally {
    await subject.stop();
  }
}
console.log(`${WATCHERS} watchers, ${EVENTS} changes each`);
printTable(rows);
