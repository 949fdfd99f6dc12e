import assert from 'node:assert/strict';
import { type ChildProcess, execFileSync, spawn } from 'node:child_process';
import { once } from 'node:events';
import { existsSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after, before, describe, test } from 'node:test';
import { parse, stringify } from 'yaml';
import { installationObjects } from '../src/cli/installation-objects.ts';
import { applyManifests, readManifests } from '../src/cluster/manifests.ts';
import { ingressAddresses } from '../src/kube/load-balancer.ts';
import { RESOURCES } from '../src/kube/types.ts';
import { eventually } from '../src/lib/testing/eventually.ts';
import { type ApiServers, missingForApiServers, startApiServers } from './testing/api-servers.ts';
import { LAUNCHER } from './testing/cluster.ts';

/** The controller of load-balancer addresses with its permissions, and two real kube-apiservers on one etcd. */

const FIRST = '10.77.0.1';
const SECOND = '10.77.0.2';
const DEVICE = 'fw0';
const ACCOUNT = 'fairlead-addresses';
const WAIT_MS = 60_000;
const POOL = '192.0.2.10-192.0.2.20';

const ip = (...words: string[]) => execFileSync('ip', words);
const skip = missingForApiServers();

describe('the address controller with two API servers', { skip }, () => {
  let folder: string;
  let servers: ApiServers;
  let controller: ChildProcess | null = null;
  let log = '';
  const lines = (text: string) => log.split('\n').filter((line) => line.includes(text)).length;

  const start = () => {
    log = '';
    const child = spawn(LAUNCHER, ['address-controller', '--config', join(folder, 'agent.yaml')], {
      stdio: ['ignore', 'pipe', 'pipe'],
    });
    for (const stream of [child.stdout, child.stderr])
      stream.on('data', (chunk: Buffer) => {
        log += chunk.toString();
      });
    controller = child;
  };
  const end = async () => {
    const child = controller;
    controller = null;
    if (!child || child.exitCode !== null || child.signalCode !== null) return;
    child.kill('SIGKILL');
    await once(child, 'exit');
  };

  /** Installs what `manifests` prints, and writes the controller's configuration with its account's token. */
  const install = async () => {
    const client = servers.client(SECOND);
    const objects = installationObjects({
      parts: 'proxy',
      namespace: 'kube-system',
      image: 'fairlead:1',
      mode: 'nftables',
      server: servers.url(FIRST),
      servers: [],
      clusterCidr: '',
      dnsAddress: '10.96.0.10',
      dnsReplicas: 0,
      clusterDomain: 'cluster.local',
      uplink: 'eth0',
      pool: [POOL],
      commands: false,
      privileged: true,
      metricsAddress: '',
      monitors: [],
    });
    const manifest = join(folder, 'fairlead.yaml');
    writeFileSync(manifest, objects.map((object) => stringify(object)).join('---\n'));
    const { objects: read } = await readManifests([manifest]);
    const { problems } = await applyManifests(client, read, AbortSignal.timeout(WAIT_MS));
    assert.deepEqual(problems, []);
    const path = `/api/v1/namespaces/kube-system/serviceaccounts/${ACCOUNT}/token`;
    const { status } = (await client.request('POST', path, {
      apiVersion: 'authentication.k8s.io/v1',
      kind: 'TokenRequest',
      spec: { expirationSeconds: 3600 },
    })) as { readonly status: { readonly token: string } };
    const kubeconfig = join(folder, 'kubeconfig');
    servers.writeKubeconfig(kubeconfig, servers.url(FIRST));
    const config = JSON.parse(readFileSync(kubeconfig, 'utf8')) as { users: { user: object }[] };
    for (const entry of config.users) entry.user = { token: status.token };
    writeFileSync(kubeconfig, JSON.stringify(config));
    const map = objects.find(({ kind }) => kind === 'ConfigMap') as { data: Record<string, string> };
    const configuration = parse(map.data['agent.yaml'] ?? '') as object;
    const own = { kubeconfig, stateDir: join(folder, 'state', 'agent') };
    writeFileSync(join(folder, 'agent.yaml'), stringify({ ...configuration, ...own }));
  };

  /** Creates a Service and waits for its address. */
  const addressOf = async (name: string): Promise<string> => {
    const client = servers.client(SECOND);
    await client.create(RESOURCES.services, {
      metadata: { name, namespace: 'default' },
      spec: { type: 'LoadBalancer', ports: [{ port: 80 }] },
    });
    const [address = ''] = await eventually(
      async () => ingressAddresses(await client.get(RESOURCES.services, name, 'default')),
      (addresses) => addresses.length > 0,
      WAIT_MS,
    );
    return address;
  };

  before(async () => {
    folder = mkdtempSync(join(tmpdir(), 'address-controller-'));
    ip('link', 'add', DEVICE, 'type', 'veth', 'peer', 'name', 'fw1');
    for (const device of [DEVICE, 'fw1']) ip('link', 'set', device, 'up');
    for (const address of [FIRST, SECOND]) ip('addr', 'add', `${address}/24`, 'dev', DEVICE);
    servers = await startApiServers(join(folder, 'servers'), [FIRST, SECOND]);
    await install();
  });
  after(async () => {
    await end();
    await servers?.close();
    if (existsSync(`/sys/class/net/${DEVICE}`)) ip('link', 'del', DEVICE);
    rmSync(folder, { recursive: true, force: true });
  });

  test('it assigns addresses, and learns both servers from one, with no more than its permissions', async () => {
    start();
    assert.match(await addressOf('a'), /^192\.0\.2\./);
    const learned = await eventually(
      () => readOptional(join(folder, 'state', 'agent', 'api-servers.json')),
      (text) => text.includes(SECOND),
      WAIT_MS,
    );
    assert.deepEqual(JSON.parse(learned), { servers: [servers.url(FIRST), servers.url(SECOND)] });
    assert.equal(lines('forbidden'), 0, log);
  });

  test('the configured server is killed: addresses are assigned through the other', async () => {
    await servers.kill(FIRST);
    assert.match(await addressOf('b'), /^192\.0\.2\./);
    assert.equal(lines(`API server ${servers.url(FIRST)} fails`), 1, log);
  });

  test('it starts while the configured server is down', async () => {
    await end();
    start();
    assert.match(await addressOf('c'), /^192\.0\.2\./);
  });
});

const readOptional = (file: string): string => (existsSync(file) ? readFileSync(file, 'utf8') : '');
