import { type ChildProcess, execFileSync, spawn } from 'node:child_process';
import { createPublicKey, randomBytes } from 'node:crypto';
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { Agent, request } from 'node:https';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { createSigningKey } from '../../src/lib/pki.ts';
import { freePorts } from '../../src/lib/testing/free-ports.ts';

/** One answer of an API server, decoded. */
export interface ApiAnswer {
  readonly status: number;
  readonly body: unknown;
}

/** Sends a request to an API server as an administrator. */
export type ApiClient = (
  method: string,
  path: string,
  body?: unknown,
  contentType?: string,
) => Promise<ApiAnswer>;

/** One answer as its bytes. */
export interface RawAnswer {
  readonly status: number;
  readonly contentType: string;
  /** The Warning headers, joined. */
  readonly warning: string;
  readonly body: Buffer;
}

/** Sends an unmodified request to an API server as an administrator. */
export type RawClient = (
  method: string,
  path: string,
  headers: Readonly<Record<string, string>>,
  body?: string,
) => Promise<RawAnswer>;

/** The status of a missing answer: kube-apiserver panicked on the request. */
export const CONNECTION_CLOSED = 0;

/** An API server on loopback; the real kube-apiserver has a separate etcd. */
export interface Oracle {
  readonly send: ApiClient;
  readonly sendRaw: RawClient;
  stop(): void | Promise<void>;
}

/** The ServiceAccount that a controller makes in each namespace: none runs here. */
export const DEFAULT_ACCOUNT = {
  apiVersion: 'v1',
  kind: 'ServiceAccount',
  metadata: { name: 'default', namespace: 'default' },
};

/** A pod whose admission needs the default ServiceAccount and a PriorityClass that kube-apiserver makes at its start. */
const CRITICAL_POD = {
  apiVersion: 'v1',
  kind: 'Pod',
  metadata: { name: 'readiness' },
  spec: {
    priorityClassName: 'system-node-critical',
    automountServiceAccountToken: false,
    containers: [{ name: 'c', image: 'i' }],
  },
};

/**
 * Starts etcd and kube-apiserver from `assets` (KUBEBUILDER_ASSETS), and waits until pods are admitted: its admission
 * plugins read from caches, which follow after the server answers. Throws Error with the end of their logs.
 */
export async function startOracle(assets: string): Promise<Oracle> {
  const folder = mkdtempSync(join(tmpdir(), 'oracle-'));
  const [client = 0, peer = 0, secure = 0] = await freePorts(3);
  const token = randomBytes(16).toString('hex');
  const key = createSigningKey();
  const keyFile = join(folder, 'sa.key');
  writeFileSync(keyFile, key, { mode: 0o600 });
  const publicFile = join(folder, 'sa.pub');
  writeFileSync(publicFile, String(createPublicKey(key).export({ type: 'spki', format: 'pem' })));
  const tokens = join(folder, 'tokens');
  writeFileSync(tokens, `${token},admin,,"system:masters"\n`, { mode: 0o600 });
  const processes: ChildProcess[] = [];
  let log = '';
  const run = (program: string, args: readonly string[]) => {
    const child = spawn(join(assets, program), args, { stdio: ['ignore', 'pipe', 'pipe'] });
    for (const stream of [child.stdout, child.stderr]) {
      stream?.on('data', (chunk: Buffer) => {
        log = (log + chunk.toString()).slice(-4000);
      });
    }
    processes.push(child);
  };
  const url = `http://127.0.0.1:${client}`;
  const peerUrl = `http://127.0.0.1:${peer}`;
  run('etcd', [
    '--unsafe-no-fsync',
    `--data-dir=${join(folder, 'etcd')}`,
    `--listen-client-urls=${url}`,
    `--advertise-client-urls=${url}`,
    `--listen-peer-urls=${peerUrl}`,
    `--initial-advertise-peer-urls=${peerUrl}`,
    `--initial-cluster=default=${peerUrl}`,
  ]);
  run('kube-apiserver', [
    `--etcd-servers=${url}`,
    `--secure-port=${secure}`,
    '--bind-address=127.0.0.1',
    '--advertise-address=192.0.2.1',
    '--endpoint-reconciler-type=none',
    `--cert-dir=${join(folder, 'certs')}`,
    '--service-cluster-ip-range=10.96.0.0/16,fd00:96::/112',
    '--service-account-issuer=https://kubernetes.default.svc.cluster.local',
    `--service-account-key-file=${publicFile}`,
    `--service-account-signing-key-file=${keyFile}`,
    '--authorization-mode=RBAC',
    `--token-auth-file=${tokens}`,
    '--allow-privileged=true',
    // The tester sends more requests in a minute than the default limits allow.
    '--max-requests-inflight=0',
    '--max-mutating-requests-inflight=0',
    '--enable-priority-and-fairness=false',
  ]);
  const agent = new Agent({ keepAlive: true, maxSockets: 8, rejectUnauthorized: false });
  const once = sender(agent, secure, token);
  // A kept-alive connection may be closed just when it is used: dry runs and reads can be repeated. If it
  // is closed again, the request made the handler panic.
  const send: ApiClient = (...request) =>
    once(...request)
      .catch(() => once(...request))
      .catch(() => ({ status: CONNECTION_CLOSED, body: null }));
  const stop = () => {
    agent.destroy();
    for (const child of processes) child.kill('SIGKILL');
    rmSync(folder, { recursive: true, force: true });
  };
  const deadline = Date.now() + 60_000;
  for (;;) {
    await send('POST', '/api/v1/namespaces/default/serviceaccounts', DEFAULT_ACCOUNT);
    const { status } = await send('POST', '/api/v1/namespaces/default/pods?dryRun=All', CRITICAL_POD);
    if (status === 201) return { send, sendRaw: rawSender(agent, secure, token), stop };
    if (Date.now() > deadline || processes.some((child) => child.exitCode !== null)) {
      stop();
      throw new Error(`kube-apiserver did not become ready:\n${log}`);
    }
    await new Promise((resolve) => setTimeout(resolve, 200));
  }
}

/** Returns the version of the binaries: "v1.36.0". */
export function oracleVersion(assets: string): string {
  return execFileSync(join(assets, 'kube-apiserver'), ['--version'], { encoding: 'utf8' }).trim();
}

/** Returns a client of an API server on loopback; without a token, it uses the agent's certificate. */
export function sender(agent: Agent, port: number, token?: string): ApiClient {
  const send = rawSender(agent, port, token);
  return async (method, path, body, contentType = 'application/json') => {
    const headers = { 'content-type': contentType, accept: 'application/json' };
    const answer = await send(method, path, headers, body === undefined ? undefined : JSON.stringify(body));
    return { status: answer.status, body: decoded(answer.body) };
  };
}

/** Returns the JSON of a body; its text if it is none, and null if it is empty. */
export function decoded(body: Buffer): unknown {
  const text = body.toString();
  try {
    return text === '' ? null : JSON.parse(text);
  } catch {
    return text;
  }
}

/** Works like `sender`, with custom headers and the bytes of the answer. */
export function rawSender(agent: Agent, port: number, token?: string): RawClient {
  return (method, path, headers, body) =>
    new Promise((resolve, reject) => {
      const outgoing = request(
        {
          agent,
          host: '127.0.0.1',
          port,
          method,
          path,
          headers: {
            ...(token === undefined ? {} : { authorization: `Bearer ${token}` }),
            ...headers,
            ...(body === undefined ? {} : { 'content-length': Buffer.byteLength(body) }),
          },
        },
        (response) => {
          const chunks: Buffer[] = [];
          response.on('data', (chunk: Buffer) => chunks.push(chunk));
          response.on('error', reject);
          response.on('end', () => {
            resolve({
              status: response.statusCode ?? 0,
              contentType: response.headers['content-type'] ?? '',
              warning: String(response.headers['warning'] ?? ''),
              body: Buffer.concat(chunks),
            });
          });
        },
      );
      outgoing.on('error', reject);
      outgoing.end(body);
    });
}
