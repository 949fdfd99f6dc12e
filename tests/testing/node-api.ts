import { type ChildProcess, spawn } from 'node:child_process';
import { once } from 'node:events';
import { mkdirSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { type Answer, startApi, type TestApi } from '../../src/apiserver/testing/api.ts';
import { readBody } from '../../src/kube/client.ts';
import { kubeconfigJson } from '../../src/kube/kubeconfig-text.ts';
import { httpTransport, type Transport } from '../../src/kube/transport.ts';
import {
  type CertificateAuthority,
  createAuthority,
  createSigningKey,
  publicKeyOf,
} from '../../src/lib/pki.ts';
import { eventually } from '../../src/lib/testing/eventually.ts';

/** The API server of a node, on its loopback. */
export interface NodeApi extends Pick<TestApi, 'authority' | 'request'> {
  close(): Promise<void>;
}

/**
 * Starts the API server of a node in this process's network: the embedded one, or with the environment variable
 * FAIRLEAD_CONTROL_PLANE the real one from this folder, without controllers.
 */
export async function startNodeApi(port: number): Promise<NodeApi> {
  const folder = process.env['FAIRLEAD_CONTROL_PLANE'];
  if (folder) return await startRealApi(folder, port);
  const api = startApi();
  await api.server.listen([{ host: '127.0.0.1', port }]);
  return { authority: api.authority, request: api.request, close: () => api.server.close() };
}

/** What the API server of a node has in addition. */
export interface RealApiOptions {
  /** Further arguments of kube-apiserver, with its authorization mode; `at` returns the path of a file of its folder. */
  readonly apiServer?: (at: (file: string) => string, authority: CertificateAuthority) => readonly string[];
  /** Arguments of kube-controller-manager; absent: it does not run. */
  readonly controllerManager?: readonly string[];
}

/** Starts kube-apiserver and etcd from a folder on loopback, without other programs unless `options` has them. */
export async function startRealApi(
  programs: string,
  port: number,
  options: RealApiOptions = {},
): Promise<NodeApi & { at(file: string): string }> {
  const folder = mkdtempSync(join(tmpdir(), 'flt-api-'));
  const authority = createAuthority('test', new Date());
  const at = writeKeys(folder, authority);
  const children = [
    run(programs, 'etcd', [
      `--data-dir=${join(folder, 'etcd')}`,
      '--unsafe-no-fsync',
      '--log-level=error',
      '--listen-peer-urls=http://127.0.0.1:2380',
    ]),
    run(programs, 'kube-apiserver', [
      ...apiServerArguments(at, port),
      ...(options.apiServer?.(at, authority) ?? ['--authorization-mode=RBAC']),
    ]),
  ];
  const admin = authority.issue({ commonName: 'admin', organizations: ['system:masters'], usage: 'client' });
  const transport = httpTransport({ server: `https://127.0.0.1:${port}`, ca: authority.cert, ...admin });
  const api = {
    authority,
    at,
    request: (method: string, path: string, body?: unknown, headers?: Record<string, string>) =>
      send(transport, method, path, body, headers),
    async close() {
      transport.close();
      for (const child of children) {
        const ended = once(child, 'exit');
        // On SIGTERM kube-apiserver waits for open watches.
        child.kill('SIGKILL');
        await ended;
      }
      rmSync(folder, { recursive: true });
    },
  };
  try {
    await eventually(
      () => api.request('GET', '/readyz').catch(() => null),
      (answer) => answer?.status === 200,
    );
    // Created a moment later.
    await eventually(
      () => api.request('GET', '/api/v1/namespaces/default'),
      ({ status }) => status === 200,
    );
    if (options.controllerManager) {
      writeFileSync(
        at('admin.conf'),
        kubeconfigJson({ name: 'test', server: `https://127.0.0.1:${port}`, ca: authority.cert, ...admin }),
        { mode: 0o600 },
      );
      children.push(
        run(programs, 'kube-controller-manager', [
          ...controllerManagerArguments(at),
          ...options.controllerManager,
        ]),
      );
    }
    return api;
  } catch (error) {
    await api.close();
    throw error;
  }
}

const run = (folder: string, program: string, args: readonly string[]): ChildProcess =>
  spawn(join(folder, program), [...args], { stdio: 'ignore', env: {} });

function writeKeys(folder: string, authority: CertificateAuthority): (file: string) => string {
  const at = (file: string) => join(folder, file);
  const own = authority.issue({
    commonName: 'apiserver',
    organizations: ['system:masters'],
    names: ['127.0.0.1', 'localhost'],
    usage: 'both',
  });
  const accounts = createSigningKey();
  mkdirSync(folder, { recursive: true });
  writeFileSync(at('ca.crt'), authority.cert);
  writeFileSync(at('ca.key'), authority.key, { mode: 0o600 });
  writeFileSync(at('server.crt'), own.cert);
  writeFileSync(at('server.key'), own.key, { mode: 0o600 });
  writeFileSync(at('accounts.key'), accounts, { mode: 0o600 });
  writeFileSync(at('accounts.pub'), publicKeyOf(accounts));
  return at;
}

const apiServerArguments = (at: (file: string) => string, port: number): readonly string[] => [
  '--etcd-servers=http://127.0.0.1:2379',
  '--bind-address=127.0.0.1',
  `--secure-port=${port}`,
  '--advertise-address=192.0.2.1',
  '--service-cluster-ip-range=10.96.0.0/16',
  '--allow-privileged=true',
  // No controller creates the accounts; the embedded server mounts no tokens in tests, either.
  '--disable-admission-plugins=ServiceAccount',
  `--client-ca-file=${at('ca.crt')}`,
  `--tls-cert-file=${at('server.crt')}`,
  `--tls-private-key-file=${at('server.key')}`,
  `--kubelet-client-certificate=${at('server.crt')}`,
  `--kubelet-client-key=${at('server.key')}`,
  `--kubelet-certificate-authority=${at('ca.crt')}`,
  '--kubelet-preferred-address-types=InternalIP',
  '--service-account-issuer=https://kubernetes.default.svc.cluster.local',
  `--service-account-key-file=${at('accounts.pub')}`,
  `--service-account-signing-key-file=${at('accounts.key')}`,
];

const controllerManagerArguments = (at: (file: string) => string): readonly string[] => [
  `--kubeconfig=${at('admin.conf')}`,
  '--bind-address=127.0.0.1',
  '--leader-elect=false',
  `--root-ca-file=${at('ca.crt')}`,
  `--service-account-private-key-file=${at('accounts.key')}`,
  `--cluster-signing-cert-file=${at('ca.crt')}`,
  `--cluster-signing-key-file=${at('ca.key')}`,
];

async function send(
  transport: Transport,
  method: string,
  path: string,
  body?: unknown,
  headers: Record<string, string> = {},
): Promise<Answer> {
  const answer = await transport({
    method: method as 'GET',
    path,
    headers: { accept: 'application/json', 'content-type': 'application/json', ...headers },
    ...(body === undefined ? {} : { body: typeof body === 'string' ? body : JSON.stringify(body) }),
  });
  const text = await readBody(answer.body);
  const isJson = answer.headers['content-type']?.startsWith('application/json');
  return {
    status: answer.status,
    headers: answer.headers,
    body: isJson && text !== '' ? JSON.parse(text) : text,
  };
}
