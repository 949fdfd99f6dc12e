import { type ChildProcess, execFileSync, spawn } from 'node:child_process';
import { once } from 'node:events';
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { type ClientHttp2Session, connect } from 'node:http2';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { createInterface } from 'node:readline';
import { setTimeout as sleep } from 'node:timers/promises';
import { parse } from 'yaml';
import { NODE_FLAGS } from '../src/cluster/processes.ts';
import { processorTime, residentMemory } from './process-usage.ts';

const SETTINGS = { initialWindowSize: 16 * 1024 * 1024 };

/** An API server in separate processes, to be measured. */
export interface ApiServer {
  readonly name: string;
  readonly pids: readonly number[];
  open(): ClientHttp2Session;
  readonly headers: Record<string, string>;
  stop(): Promise<void>;
}

/** Returns the resident memory of processes, in MB. */
export const residentMegabytes = (pids: readonly number[]): number =>
  pids.reduce((sum, pid) => sum + residentMemory(pid).now, 0) / 2 ** 20;

/** Returns the user and system time of processes, in seconds. */
export const processorSeconds = (pids: readonly number[]): number =>
  pids.reduce((sum, pid) => sum + processorTime(pid), 0);

/** Starts Fairlead's API server alone. */
export async function startFairlead(): Promise<ApiServer> {
  const words = [...(NODE_FLAGS['control-plane'] ?? []), join(import.meta.dirname, 'watch-server.ts')];
  const child = spawn(process.execPath, words, {
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

/** Starts kube-apiserver with etcd, from a folder with both. Resolves when their initial work is done. */
export async function startKubeApiserver(assets: string): Promise<ApiServer> {
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
      // Not ready yet.
    }
    await sleep(300);
  }
  // The work of the first seconds (controllers, first lists) does not belong to the watches.
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
  // On SIGTERM kube-apiserver waits a minute for open watches.
  child.kill('SIGKILL');
  await exit;
}

/** Sends a request on an HTTP/2 connection and reads the complete answer. */
export async function request(
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
