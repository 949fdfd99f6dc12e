import { type ChildProcess, spawn } from 'node:child_process';
import { randomBytes } from 'node:crypto';
import { once } from 'node:events';
import { closeSync, mkdtempSync, openSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { libc, systemError } from '../../src/kernel/libc.ts';
import { openNetns } from '../../src/kernel/netns.ts';
import { createTopology, nodeNetns, removeTopology } from '../../src/network/topology.ts';
import { removeRuntimeState } from '../../src/runtime/runtime-state.ts';
import { type NodeApi, startRealApi } from './node-api.ts';
import { WITH_READ_ONLY_SYSCTLS } from './read-only-sysctls.ts';

const CLONE_NEWNET = 0x40000000;
const ADDRESS = '172.30.9.11';
const TOKEN_ID = 'abcdef';
const TOKEN_SECRET = '0123456789abcdef';
const GROUP = 'system:bootstrappers:kubeadm:default-node-token';
/** The group of API servers that kubeadm makes since 1.29. */
const KUBELET_CLIENTS = 'kubeadm:cluster-admins';
const RBAC = '/apis/rbac.authorization.k8s.io/v1';
const MAIN = join(import.meta.dirname, '..', '..', 'src', 'cli', 'fairlead.ts');

/** A refusal in the audit log of the API server. */
export interface Refused {
  readonly user: string;
  readonly verb: string;
  readonly uri: string;
}

/** A machine that has not joined yet, and the API server of a real cluster; this process is in the machine's network. */
export interface JoiningNode {
  readonly api: NodeApi;
  readonly stateDir: string;
  /** The kubeconfig with the bootstrap token. */
  readonly bootstrapKubeconfig: string;
  /** Starts an agent that runs pods, with these fields of its configuration in addition. */
  startAgent(
    fields: { kubeconfig?: string; pods?: object; network?: object; hasReadOnlySysctls?: boolean },
    ...options: readonly string[]
  ): void;
  /** Ends the agent as a service manager does. */
  stopAgent(): Promise<void>;
  /** The lines of the agents' logs. */
  log(): { readonly level: number; readonly msg: string }[];
  /** Returns the requests that the API server forbade (403). */
  refused(): Refused[];
  /** Binds a ClusterRole to a group. */
  bind(name: string, role: string, group: string): Promise<void>;
  close(): Promise<void>;
}

/**
 * Starts the API server with the Node authorizer, NodeRestriction and bootstrap tokens, and the controller manager, which
 * signs certificates of `signingSeconds`; creates a token as kubeadm does.
 */
export async function startJoiningNode(programs: string, signingSeconds: number): Promise<JoiningNode> {
  const cluster = `flt${randomBytes(3).toString('hex')}`;
  const stateDir = mkdtempSync(join(tmpdir(), 'flt-join-'));
  const cgroupParent = `/${cluster}`;
  createTopology({
    cluster,
    wireCidrs: ['172.30.9.0/24'],
    controlPlaneAddresses: ['172.30.9.1'],
    outsideAddresses: ['172.30.9.2'],
    nodes: [{ name: 'node-1', addresses: [ADDRESS] }],
  });
  const home = openSync('/proc/self/ns/net', 'r');
  enter(nodeNetns(cluster, 'node-1'));
  const api = await startRealApi(programs, 6443, {
    apiServer(at, authority) {
      writeFileSync(at('audit.yaml'), AUDIT_POLICY);
      const kubelet = authority.issue({
        commonName: 'kube-apiserver-kubelet-client',
        organizations: [KUBELET_CLIENTS],
        usage: 'client',
      });
      writeFileSync(at('kubelet.crt'), kubelet.cert);
      writeFileSync(at('kubelet.key'), kubelet.key, { mode: 0o600 });
      return [
        '--authorization-mode=Node,RBAC',
        '--enable-admission-plugins=NodeRestriction',
        '--enable-bootstrap-token-auth=true',
        `--kubelet-client-certificate=${at('kubelet.crt')}`,
        `--kubelet-client-key=${at('kubelet.key')}`,
        `--audit-policy-file=${at('audit.yaml')}`,
        `--audit-log-path=${at('audit.log')}`,
      ];
    },
    controllerManager: [
      `--cluster-signing-duration=${signingSeconds}s`,
      '--allocate-node-cidrs=true',
      '--cluster-cidr=10.244.0.0/16',
      '--node-cidr-mask-size=24',
    ],
  });
  await createToken(api);
  await bind(api, 'kubeadm:cluster-admins', 'cluster-admin', KUBELET_CLIENTS);
  const bootstrapKubeconfig = join(stateDir, 'bootstrap.conf');
  writeFileSync(bootstrapKubeconfig, bootstrapText(api.at('ca.crt')));
  const logFile = join(stateDir, 'agent.log');
  let agent: ChildProcess | null = null;
  const stopAgent = async () => {
    const child = agent;
    agent = null;
    if (!child || child.exitCode !== null || child.signalCode !== null) return;
    const ended = once(child, 'exit');
    child.kill('SIGTERM');
    await ended;
  };
  return {
    api,
    stateDir,
    bootstrapKubeconfig,
    startAgent({ pods, hasReadOnlySysctls = false, ...fields }, ...options) {
      const config = join(stateDir, 'agent.json');
      writeFileSync(
        config,
        JSON.stringify({ ...configuration(stateDir), ...fields, pods: { cgroupParent, ...pods } }),
      );
      const log = openSync(logFile, 'a');
      const [program = '', ...words] = [
        ...(hasReadOnlySysctls ? WITH_READ_ONLY_SYSCTLS : []),
        ...[process.execPath, '--disable-warning=ExperimentalWarning', MAIN, 'agent', '--config', config],
        ...options,
      ];
      agent = spawn(program, words, { stdio: ['ignore', log, log] });
      closeSync(log);
    },
    stopAgent,
    log: () => jsonLines(logFile),
    refused: () => readRefused(api.at('audit.log')),
    bind: (name, role, group) => bind(api, name, role, group),
    async close() {
      await stopAgent();
      await removeRuntimeState(stateDir, cgroupParent);
      await api.close();
      if (libc().setns(home, CLONE_NEWNET) !== 0) throw systemError('leave network namespace');
      closeSync(home);
      removeTopology(cluster);
      rmSync(stateDir, { recursive: true, force: true });
    },
  };
}

const AUDIT_POLICY = JSON.stringify({
  apiVersion: 'audit.k8s.io/v1',
  kind: 'Policy',
  rules: [{ level: 'Metadata', omitStages: ['RequestReceived'] }],
});

const configuration = (stateDir: string) => ({
  apiVersion: 'fairlead.dev/v1alpha1',
  kind: 'AgentConfiguration',
  nodeName: 'node-1',
  nodeAddress: ADDRESS,
  stateDir: join(stateDir, 'state'),
  network: { overlay: 'none' },
  policy: { enforce: false },
});

async function createToken(api: NodeApi): Promise<void> {
  await create(api, '/api/v1/namespaces/kube-system/secrets', {
    apiVersion: 'v1',
    kind: 'Secret',
    metadata: { name: `bootstrap-token-${TOKEN_ID}` },
    type: 'bootstrap.kubernetes.io/token',
    stringData: {
      'token-id': TOKEN_ID,
      'token-secret': TOKEN_SECRET,
      'usage-bootstrap-authentication': 'true',
      'auth-extra-groups': GROUP,
    },
  });
  const csr = 'system:certificates.k8s.io:certificatesigningrequests';
  await bind(api, 'kubeadm:kubelet-bootstrap', 'system:node-bootstrapper', GROUP);
  await bind(api, 'kubeadm:node-autoapprove-bootstrap', `${csr}:nodeclient`, GROUP);
  await bind(api, 'kubeadm:node-autoapprove-certificate-rotation', `${csr}:selfnodeclient`, 'system:nodes');
}

async function bind(api: NodeApi, name: string, role: string, group: string): Promise<void> {
  const apiGroup = 'rbac.authorization.k8s.io';
  await create(api, `${RBAC}/clusterrolebindings`, {
    apiVersion: `${apiGroup}/v1`,
    kind: 'ClusterRoleBinding',
    metadata: { name },
    roleRef: { apiGroup, kind: 'ClusterRole', name: role },
    subjects: [{ apiGroup, kind: 'Group', name: group }],
  });
}

async function create(api: NodeApi, path: string, object: object): Promise<void> {
  const { status, body } = await api.request('POST', path, object);
  if (status !== 201) throw new Error(`${path}: ${JSON.stringify(body)}`);
}

const bootstrapText = (authority: string) => `
apiVersion: v1
kind: Config
clusters: [{name: a, cluster: {server: "https://127.0.0.1:6443", certificate-authority: ${authority}}}]
users: [{name: a, user: {token: ${TOKEN_ID}.${TOKEN_SECRET}}}]
contexts: [{name: a, context: {cluster: a, user: a}}]
current-context: a
`;

interface AuditEvent {
  readonly verb: string;
  readonly requestURI: string;
  readonly user: { readonly username: string };
  readonly responseStatus?: { readonly code: number };
}

function readRefused(file: string): Refused[] {
  return jsonLines<AuditEvent>(file)
    .filter(({ responseStatus }) => responseStatus?.code === 403)
    .map(({ user, verb, requestURI }) => ({ user: user.username, verb, uri: requestURI }));
}

function jsonLines<T = { level: number; msg: string }>(file: string): T[] {
  return readFileSync(file, 'utf8')
    .split('\n')
    .filter((line) => line.startsWith('{') && line.endsWith('}'))
    .map((line) => JSON.parse(line) as T);
}

function enter(netns: string): void {
  const fd = openNetns(netns);
  if (libc().setns(fd, CLONE_NEWNET) !== 0) throw systemError('enter network namespace', netns);
  closeSync(fd);
}
