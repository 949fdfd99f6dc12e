import { type ChildProcess, spawn } from 'node:child_process';
import { once } from 'node:events';
import { existsSync, mkdirSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { type Client, createClient } from '../../src/kube/client.ts';
import { kubeconfigJson } from '../../src/kube/kubeconfig-text.ts';
import { httpTransport } from '../../src/kube/transport.ts';
import { createAuthority, createSigningKey, publicKeyOf } from '../../src/lib/pki.ts';
import { eventually } from '../../src/lib/testing/eventually.ts';

/** Several kube-apiservers on one etcd, each on an address of this network namespace. */
export interface ApiServers {
  /** Returns "https://10.77.0.1:6443". */
  url(address: string): string;
  /** Starts a server that was killed, and waits until it is ready. */
  start(address: string): Promise<void>;
  /** Ends a server as a power failure does. */
  kill(address: string): Promise<void>;
  /** Returns an administrator's client of one server. */
  client(address: string): Client;
  /** Writes an administrator's kubeconfig. */
  writeKubeconfig(file: string, url: string): void;
  close(): Promise<void>;
}

const PORT = 6443;
const ETCD = 'http://127.0.0.1:2379';
const ETCD_PEER = 'http://127.0.0.1:2380';
export const SERVICE_NETWORK = '10.96.0.0/16';
/** The address of the Service kubernetes. */
export const API_SERVICE_ADDRESS = '10.96.0.1';
const START_MS = 90_000;

/** Returns why there can be no API servers here; false: nothing is missing. */
export function missingForApiServers(): string | false {
  const folder = process.env['KUBEBUILDER_ASSETS'] ?? '';
  const missing = ['etcd', 'kube-apiserver'].filter(
    (name) => folder === '' || !existsSync(join(folder, name)),
  );
  return missing.length === 0 ? false : `KUBEBUILDER_ASSETS names no folder with ${missing.join(', ')}`;
}

/** Starts etcd, and a kube-apiserver on each address. `folder` receives their files. */
export async function startApiServers(folder: string, addresses: readonly string[]): Promise<ApiServers> {
  const programs = process.env['KUBEBUILDER_ASSETS'] ?? '';
  const authority = createAuthority('kubernetes', new Date());
  const admin = authority.issue({ commonName: 'admin', organizations: ['system:masters'], usage: 'client' });
  const signingKey = createSigningKey();
  mkdirSync(folder, { recursive: true, mode: 0o700 });
  const write = (name: string, text: string) => {
    writeFileSync(join(folder, name), text, { mode: 0o600 });
    return join(folder, name);
  };
  const keys = {
    ca: write('ca.crt', authority.cert),
    signing: write('service-account.key', signingKey),
    verification: write('service-account.pub', publicKeyOf(signingKey)),
  };
  const running = new Map<string, ChildProcess>();
  const run = (name: string, program: string, args: readonly string[]) => {
    running.set(name, spawn(join(programs, program), args, { stdio: 'ignore' }));
  };
  const end = async (name: string) => {
    const child = running.get(name);
    running.delete(name);
    if (!child || child.exitCode !== null || child.signalCode !== null) return;
    child.kill('SIGKILL');
    await once(child, 'exit');
  };
  const url = (address: string) => `https://${address}:${PORT}`;
  const transport = (address: string) =>
    httpTransport({ server: url(address), ca: authority.cert, ...admin });

  const start = async (address: string) => {
    // As kubeadm's: the names of the Service, and the server's own address alone.
    const { cert, key } = authority.issue({
      commonName: 'kube-apiserver',
      names: ['kubernetes', 'kubernetes.default', 'kubernetes.default.svc', API_SERVICE_ADDRESS, address],
      usage: 'server',
    });
    run(address, 'kube-apiserver', [
      `--etcd-servers=${ETCD}`,
      `--bind-address=${address}`,
      `--advertise-address=${address}`,
      `--secure-port=${PORT}`,
      `--tls-cert-file=${write(`${address}.crt`, cert)}`,
      `--tls-private-key-file=${write(`${address}.key`, key)}`,
      `--client-ca-file=${keys.ca}`,
      `--service-cluster-ip-range=${SERVICE_NETWORK}`,
      '--authorization-mode=RBAC',
      '--allow-privileged=true',
      '--service-account-issuer=https://kubernetes.default.svc',
      `--service-account-key-file=${keys.verification}`,
      `--service-account-signing-key-file=${keys.signing}`,
    ]);
    const asked = transport(address);
    await eventually(
      () => asked({ method: 'GET', path: '/readyz', headers: {} }).then(({ status }) => status, String),
      (status) => status === 200,
      START_MS,
    );
    asked.close();
  };

  const clients: { close(): void }[] = [];
  const servers: ApiServers = {
    url,
    start,
    kill: end,
    client(address) {
      const opened = transport(address);
      clients.push(opened);
      return createClient(opened, 'test');
    },
    writeKubeconfig: (file, server) =>
      writeFileSync(file, kubeconfigJson({ name: 'kubernetes', server, ca: authority.cert, ...admin })),
    async close() {
      for (const one of clients) one.close();
      for (const name of [...running.keys()].reverse()) await end(name);
    },
  };
  run('etcd', 'etcd', [
    `--data-dir=${join(folder, 'etcd')}`,
    `--listen-client-urls=${ETCD}`,
    `--advertise-client-urls=${ETCD}`,
    `--listen-peer-urls=${ETCD_PEER}`,
    `--initial-advertise-peer-urls=${ETCD_PEER}`,
    `--initial-cluster=default=${ETCD_PEER}`,
    '--log-level=error',
    '--unsafe-no-fsync',
  ]);
  try {
    for (const address of addresses) await start(address);
  } catch (error) {
    await servers.close();
    throw error;
  }
  return servers;
}
