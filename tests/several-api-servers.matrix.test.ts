import assert from 'node:assert/strict';
import { type ChildProcess, execFileSync, spawn } from 'node:child_process';
import { once } from 'node:events';
import { existsSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { createServer, get, type Server } from 'node:http';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after, before, describe, test } from 'node:test';
import { API_VERSION } from '../src/agent/configuration.ts';
import type { Client } from '../src/kube/client.ts';
import { type EndpointSlice, type Event, type Node, RESOURCES } from '../src/kube/types.ts';
import { eventually } from '../src/lib/testing/eventually.ts';
import {
  API_SERVICE_ADDRESS,
  type ApiServers,
  missingForApiServers,
  SERVICE_NETWORK,
  startApiServers,
} from './testing/api-servers.ts';
import { LAUNCHER } from './testing/cluster.ts';

/** An agent with two real kube-apiservers on one etcd, in this file's network namespace, which is the node. */

const FIRST = '10.77.0.1';
const SECOND = '10.77.0.2';
/** The address of the endpoints, each of which answers with its port. */
const ENDPOINT = '10.77.0.9';
const PORTS = [8081, 8082, 8083];
const DEVICE = 'fw0';
const NODE = 'node-1';
const WAIT_MS = 60_000;

const ip = (...words: string[]) => execFileSync('ip', words);
const skip = missingForApiServers();

describe('an agent with two API servers', { skip }, () => {
  let folder: string;
  let servers: ApiServers;
  const endpoints: Server[] = [];
  let agent: ChildProcess | null = null;
  let log = '';

  /** `server`: the only address in the agent's configuration. */
  const startAgent = (server: string, parts: object = {}) => {
    const kubeconfig = join(folder, 'kubeconfig');
    servers.writeKubeconfig(kubeconfig, server);
    const config = join(folder, 'agent.json');
    const configuration = {
      apiVersion: API_VERSION,
      kind: 'AgentConfiguration',
      nodeName: NODE,
      kubeconfig,
      stateDir: join(folder, 'state'),
      proxy: { mode: 'nftables' },
      ...parts,
    };
    writeFileSync(config, JSON.stringify(configuration));
    log = '';
    const child = spawn(LAUNCHER, ['agent', '--config', config], { stdio: ['ignore', 'pipe', 'pipe'] });
    for (const stream of [child.stdout, child.stderr])
      stream.on('data', (chunk: Buffer) => {
        log += chunk.toString();
      });
    agent = child;
  };
  const endAgent = async () => {
    const child = agent;
    agent = null;
    if (!child || child.exitCode !== null || child.signalCode !== null) return;
    child.kill('SIGKILL');
    await once(child, 'exit');
  };
  const lines = (text: string) => log.split('\n').filter((line) => line.includes(text)).length;

  /** Creates or changes a Service with this address, whose endpoint listens on a port. */
  const setService = async (client: Client, address: string, port: number) => {
    const name = `s${address.split('.').at(-1)}`;
    const metadata = { name, namespace: 'default', labels: { 'kubernetes.io/service-name': name } };
    const slice: EndpointSlice = {
      metadata,
      addressType: 'IPv4',
      ports: [{ name: '', port, protocol: 'TCP' }],
      endpoints: [{ addresses: [ENDPOINT], conditions: { ready: true } }],
    };
    const known = await client.list(RESOURCES.endpointSlices, { namespace: 'default' });
    const old = known.items.find((one) => one.metadata?.name === name);
    if (old) {
      await client.update(RESOURCES.endpointSlices, { ...old, ports: slice.ports ?? [] });
      return;
    }
    await client.create(RESOURCES.services, {
      metadata,
      spec: { clusterIP: address, ports: [{ port: 80, protocol: 'TCP', targetPort: port }] },
    });
    await client.create(RESOURCES.endpointSlices, slice);
  };
  /** Waits until connections to a Service reach the endpoint with this port. */
  const reaches = (address: string, port: number) =>
    eventually(
      () => answerOf(address),
      (answer) => answer === String(port),
      WAIT_MS,
    );

  before(async () => {
    folder = mkdtempSync(join(tmpdir(), 'api-servers-'));
    ip('link', 'add', DEVICE, 'type', 'veth', 'peer', 'name', 'fw1');
    for (const device of [DEVICE, 'fw1']) ip('link', 'set', device, 'up');
    for (const address of [FIRST, SECOND, ENDPOINT]) ip('addr', 'add', `${address}/24`, 'dev', DEVICE);
    ip('route', 'add', SERVICE_NETWORK, 'dev', DEVICE);
    for (const port of PORTS) {
      const server = createServer((_, response) => void response.end(String(port)));
      await new Promise<void>((resolve) => server.listen(port, ENDPOINT, resolve));
      endpoints.push(server);
    }
    servers = await startApiServers(join(folder, 'servers'), [FIRST, SECOND]);
    const node: Node = {
      metadata: { name: NODE, labels: { 'kubernetes.io/os': 'linux' } },
      spec: { podCIDR: '10.244.0.0/24', podCIDRs: ['10.244.0.0/24'] },
      status: { addresses: [{ type: 'InternalIP', address: FIRST }] },
    };
    const client = servers.client(SECOND);
    const made = await client.create(RESOURCES.nodes, node);
    await client.updateStatus(RESOURCES.nodes, { ...made, ...(node.status ? { status: node.status } : {}) });
  });
  after(async () => {
    await endAgent();
    await servers?.close();
    for (const server of endpoints) {
      server.closeAllConnections();
      await new Promise((resolve) => server.close(resolve));
    }
    removeRules();
    const devices = execFileSync('ip', ['-br', 'link'], { encoding: 'utf8' });
    for (const device of [DEVICE, 'fl0']) if (devices.includes(device)) ip('link', 'del', device);
    rmSync(folder, { recursive: true, force: true });
  });

  test('it learns the addresses of both from one', async () => {
    startAgent(servers.url(FIRST));
    await setService(servers.client(SECOND), '10.96.0.50', 8081);
    await reaches('10.96.0.50', 8081);
    const file = join(folder, 'state', 'api-servers.json');
    const learned = await eventually(
      () => (existsSync(file) ? readFileSync(file, 'utf8') : ''),
      (text) => text.includes(SECOND),
      WAIT_MS,
    );
    assert.deepEqual(JSON.parse(learned), { servers: [servers.url(FIRST), servers.url(SECOND)] });
  });

  test('the configured one is killed: changes reach the kernel through the other, and the log says so once', async () => {
    await servers.kill(FIRST);
    const client = servers.client(SECOND);
    await setService(client, '10.96.0.50', 8082);
    await reaches('10.96.0.50', 8082);
    await setService(client, '10.96.0.51', 8081);
    await reaches('10.96.0.51', 8081);
    assert.equal(lines(`API server ${servers.url(FIRST)} fails`), 1, log);
    assert.equal(lines('lost the connection'), 0, log);
  });

  test('it starts while the configured one is down, without rules in the kernel', async () => {
    await endAgent();
    await eventually(() => removeRules());
    startAgent(servers.url(FIRST));
    await setService(servers.client(SECOND), '10.96.0.50', 8083);
    await reaches('10.96.0.50', 8083);
  });

  test('it starts with the Service address of the API server alone, which needs the rules that it is to write', async () => {
    await endAgent();
    await eventually(() => removeRules());
    startAgent(`https://${API_SERVICE_ADDRESS}:443`);
    await setService(servers.client(SECOND), '10.96.0.51', 8082);
    await reaches('10.96.0.51', 8082);
  });

  /** Waits for events of the Node with this reason. */
  const eventsOf = async (reason: string) => {
    const items = await eventually(
      async () =>
        (await servers.client(SECOND).list<Event>(RESOURCES.events, { namespace: 'default' })).items,
      (found) => found.some((one) => one.reason === reason),
      WAIT_MS,
    );
    return items
      .filter((one) => one.reason === reason)
      .map(({ type, count, involvedObject }) => [type, count, involvedObject.name]);
  };

  test('its Node loses the label that the DaemonSet selects: one event', async () => {
    const label = { metadata: { labels: { 'kubernetes.io/os': null } } };
    await servers.client(SECOND).patch(RESOURCES.nodes, NODE, 'merge', label);
    assert.deepEqual(await eventsOf('NodeLabelLost'), [['Warning', 1, NODE]]);
  });

  test("another plugin's configuration comes before that of the agent, and goes: an event each", async () => {
    await endAgent();
    const confDir = join(folder, 'net.d');
    const cni = { binDir: join(folder, 'bin'), confDir };
    startAgent(servers.url(SECOND), {
      network: { overlay: 'routes', uplink: DEVICE, cni },
      policy: { enforce: false },
    });
    await eventually(() => existsSync(join(confDir, '10-fairlead.conflist')));
    const other = join(confDir, '05-other.conflist');
    writeFileSync(other, '{}');
    assert.deepEqual(await eventsOf('OtherCNIConfiguration'), [['Warning', 1, NODE]]);
    rmSync(other);
    assert.deepEqual(await eventsOf('CNIConfigurationUsed'), [['Normal', 1, NODE]]);
  });

  test('none answers, and one returns: two lines of the log, and changes reach the kernel', async () => {
    await endAgent();
    startAgent(servers.url(FIRST));
    await setService(servers.client(SECOND), '10.96.0.50', 8081);
    await reaches('10.96.0.50', 8081);
    await servers.kill(SECOND);
    await eventually(
      () => lines('lost the connection to the API server'),
      (count) => count > 0,
      WAIT_MS,
    );
    assert.equal(await answerOf('10.96.0.50'), '8081');
    await servers.start(SECOND);
    await setService(servers.client(SECOND), '10.96.0.50', 8082);
    await reaches('10.96.0.50', 8082);
    await eventually(
      () => lines('the API server answers again'),
      (count) => count > 0,
      WAIT_MS,
    );
    assert.equal(lines('lost the connection to the API server'), 1, log);
    assert.equal(lines('the API server answers again'), 1, log);
  });

  test('the machine of the one in use fails, so that no packet is answered: changes reach the kernel through the other', async () => {
    await endAgent();
    await servers.start(FIRST);
    startAgent(servers.url(FIRST));
    const client = servers.client(SECOND);
    await setService(client, '10.96.0.50', 8083);
    await reaches('10.96.0.50', 8083);
    assert.equal(lines('fails'), 0, log);
    const drop = `table ip dropped { chain input { type filter hook input priority 0; ip daddr ${FIRST} tcp dport 6443 drop; ip saddr ${FIRST} tcp sport 6443 drop; }; }`;
    execFileSync('nft', ['-f', '-'], { input: drop });
    await setService(client, '10.96.0.50', 8081);
    await reaches('10.96.0.50', 8081);
    // By the kernel, within seconds, and not by the timeout of a request.
    assert.equal(
      lines(`API server ${servers.url(FIRST)} fails (the connection broke during a response`),
      1,
      log,
    );
    assert.equal(lines('does not answer'), 0, log);
  });
});

/** Removes all rules, as a reboot does; the tables of an agent that has not quite ended cannot be removed yet. */
function removeRules(): boolean {
  try {
    execFileSync('nft', ['flush', 'ruleset'], { stdio: 'ignore' });
    return execFileSync('nft', ['list', 'ruleset'], { encoding: 'utf8' }).trim() === '';
  } catch {
    return false;
  }
}

/** Returns the answer of a new connection to port 80, or its failure. */
function answerOf(address: string): Promise<string> {
  return new Promise((resolve) => {
    const request = get({ host: address, port: 80, agent: false, timeout: 2000 }, (response) => {
      let body = '';
      response.on('data', (chunk: Buffer) => {
        body += chunk.toString();
      });
      response.on('end', () => resolve(body));
    });
    request.on('timeout', () => request.destroy());
    request.on('error', (error) => resolve(error.message));
  });
}
