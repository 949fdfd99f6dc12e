import assert from 'node:assert/strict';
import { type ChildProcess, execFile, execFileSync, spawn, spawnSync } from 'node:child_process';
import { randomBytes } from 'node:crypto';
import { rmSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { after, before, describe, test } from 'node:test';
import { promisify } from 'node:util';
import { CLASS_IN, emptyAnswer, type Query, RCODE, TYPE } from '../src/dns/message.ts';
import { type FakeUpstream, startUpstream } from '../src/dns/testing/upstream.ts';
import { createNetns, removeNetns } from '../src/kernel/netns.ts';
import { eventually } from '../src/lib/testing/eventually.ts';
import { HELLO, LAUNCHER, reserveCluster } from './testing/cluster.ts';

/**
 * Tests `up --egress`, alone and with --host-access=services, in a namespace that represents the machine. Another namespace
 * represents external networks, to which the machine has its default routes.
 */

const machine = `flt-${randomBytes(3).toString('hex')}-machine`;
const world = `flt-${randomBytes(3).toString('hex')}-world`;
const WORLD = ['192.0.2.2', '2001:db8::2'] as const;
/** The machine's addresses on its uplink. */
const UPLINK = ['192.0.2.1', '2001:db8::1'] as const;
const { name, stateRoot } = reserveCluster();
const inside = (netns: string, words: readonly string[]) =>
  execFileSync('nsenter', [`--net=/run/netns/${netns}`, ...words], {
    encoding: 'utf8',
    env: { ...process.env, FAIRLEAD_STATE: stateRoot },
  });
const here = (...words: string[]) => inside(machine, words);
const there = (...words: string[]) => inside(world, words);
const machineNetwork = () =>
  [
    here('ip', '-brief', 'link'),
    here('ip', 'route'),
    here('ip', '-6', 'route'),
    here('nft', 'list', 'ruleset'),
    here('sh', '-c', 'cat /proc/sys/net/ipv4/conf/*/forwarding /proc/sys/net/ipv6/conf/all/forwarding'),
  ].join('\n');

const WORLD_PORT = 8000;
const MACHINE_PORT = 8001;
/** The machine's name servers: on loopback, as systemd-resolved, and on another of its addresses. */
const LOOPBACK_SERVER = '127.0.0.53';
/** Answered over TCP only. */
const LONG_NAME = 'long.world.example';
const resolvConf = join(stateRoot, 'resolv.conf');
const run = promisify(execFile);

let untouched: string;
const servers: ChildProcess[] = [];
const nameServers: FakeUpstream[] = [];
before(async () => {
  createNetns(machine);
  here('ip', 'link', 'set', 'lo', 'up');
  connectWorld();
  for (const address of [LOOPBACK_SERVER, UPLINK[0]])
    nameServers.push(await startUpstream(answerOf, { netns: machine, address }));
  untouched = machineNetwork();
});
after(async () => {
  try {
    here(LAUNCHER, 'down', '--name', name);
  } finally {
    for (const server of servers) server.kill('SIGKILL');
    for (const server of nameServers) await server.close();
    removeNetns(machine);
    removeNetns(world);
    rmSync(stateRoot, { recursive: true, force: true });
  }
});

/** Runs `up` with another resolv.conf; otherwise it shares this process's mounts. */
async function up(nameServer: string, ...options: string[]): Promise<void> {
  writeFileSync(resolvConf, `nameserver ${nameServer}\n`);
  const script = [
    'file=$(readlink -f /etc/resolv.conf)',
    'mount --make-private "$(findmnt -n -o TARGET -T "$file" | tail -1)"',
    `mount --bind ${resolvConf} "$file"`,
    'exec "$@"',
  ].join(' && ');
  const words = ['up', '--detach', '--name', name, ...options];
  await run(
    'nsenter',
    [
      `--net=/run/netns/${machine}`,
      ...['unshare', '--mount', '--propagation', 'unchanged', 'sh', '-c', script, 'sh'],
      ...[LAUNCHER, ...words],
    ],
    { env: { ...process.env, FAIRLEAD_STATE: stateRoot } },
  );
}

/** External names. */
function answerOf({ question: { name: asked, type } }: Query, transport: string) {
  if (asked !== 'world.example' && asked !== LONG_NAME) return emptyAnswer(RCODE.NXDOMAIN);
  if (asked === LONG_NAME && transport === 'udp') return 'truncated';
  if (type !== TYPE.A) return emptyAnswer(RCODE.NOERROR);
  const data = Uint8Array.from(WORLD[0].split('.').map(Number));
  return { ...emptyAnswer(RCODE.NOERROR), answers: [{ name: asked, type, class: CLASS_IN, ttl: 1, data }] };
}

/** Connects the machine with a network that has no routes to the cluster. */
function connectWorld(): void {
  createNetns(world);
  here('ip', 'link', 'add', 'up0', 'type', 'veth', 'peer', 'name', 'eth0', 'netns', world);
  for (const [run, device, ends, gateways] of [
    [here, 'up0', UPLINK, WORLD],
    [there, 'eth0', WORLD, null],
  ] as const) {
    run('ip', 'link', 'set', 'lo', 'up');
    run('sysctl', '-qw', `net.ipv6.conf.${device}.accept_dad=0`, `net.ipv4.conf.${device}.forwarding=0`);
    run('ip', 'link', 'set', device, 'up');
    for (const [i, prefix] of [24, 64].entries()) {
      run('ip', 'address', 'add', `${ends[i]}/${prefix}`, 'dev', device);
      if (gateways) run('ip', 'route', 'add', 'default', 'via', gateways[i] ?? '');
    }
  }
  here('sysctl', '-qw', 'net.ipv6.conf.all.forwarding=1');
  for (const [netns, port] of [
    [world, WORLD_PORT],
    [machine, MACHINE_PORT],
  ] as const)
    servers.push(
      spawn('nsenter', [`--net=/run/netns/${netns}`, LAUNCHER, 'echo', `--port=${port}`], {
        stdio: 'ignore',
      }),
    );
}

/** Sends a request from a pod to an address or name; returns the client's address that the server sees, or null. */
async function askFromPod(host: string, port = WORLD_PORT): Promise<string | null> {
  const url = `http://${bracketed(host)}:${port}/clientip`;
  const words = ['exec', '--name', name, 'client', '--', 'fairlead', 'request', url];
  const { stdout } = await run(
    'nsenter',
    [`--net=/run/netns/${machine}`, LAUNCHER, ...words, '-o', 'json', '--timeout', '5000'],
    { env: { ...process.env, FAIRLEAD_STATE: stateRoot } },
  ).catch((error: { stdout?: string }) => ({ stdout: error.stdout ?? '' }));
  const [answer = ''] = Object.keys((JSON.parse(stdout || '{}') as { answers?: object }).answers ?? {});
  return /^\[?([0-9a-f.:]+?)\]?:[0-9]+$/.exec(answer.trim())?.[1] ?? null;
}

/** Waits until a pod reaches an external network at an address or name, with the machine's address. */
const reachesWorld = async (host: string) =>
  await eventually(
    () => askFromPod(host),
    (seen) => seen === UPLINK[host.includes(':') ? 1 : 0],
    60_000,
  );

const statusText = () =>
  spawnSync('nsenter', [`--net=/run/netns/${machine}`, LAUNCHER, 'status', '--name', name], {
    encoding: 'utf8',
    env: { ...process.env, FAIRLEAD_STATE: stateRoot },
  }).stdout;

describe('egress without host access', () => {
  before(() => up(LOOPBACK_SERVER, '--nodes', '1', '--ip-family', 'dual', '--egress', '-f', HELLO));

  test('pods reach external networks with the machine’s address, of both families', async () => {
    for (const address of WORLD) await reachesWorld(address);
    assert.match(statusText(), /^ipv4 +up0 +Open\nipv6 +up0 +Open$/m);
  });

  test('pods resolve external names by a name server on the machine’s loopback, over UDP and TCP', async () => {
    for (const host of ['world.example', LONG_NAME]) await reachesWorld(host);
    assert.ok(nameServers[0]?.asked.includes(`${LONG_NAME} A/tcp`));
  });

  test('pods do not reach programs of the machine, and external networks do not reach the nodes', async () => {
    assert.equal(await askFromPod(UPLINK[0], MACHINE_PORT), null);
    there('ip', 'route', 'add', '172.30.0.0/16', 'via', UPLINK[0]);
    const { status } = spawnSync(
      'nsenter',
      [`--net=/run/netns/${world}`, LAUNCHER, 'request', 'http://172.30.0.11:30080', '--timeout', '2000'],
      { encoding: 'utf8' },
    );
    assert.notEqual(status, 0);
    there('ip', 'route', 'del', '172.30.0.0/16');
  });

  test('rules, routes and forwarding that other programs remove are restored', async () => {
    // From kernel 6.9 on, the rules belong to their process, and are not removed.
    spawnSync('nsenter', [`--net=/run/netns/${machine}`, 'nft', 'flush', 'ruleset']);
    here('sysctl', '-qw', 'net.ipv4.conf.up0.forwarding=0');
    inside(`fl-${name}-node-1`, ['ip', 'route', 'del', 'default']);
    await reachesWorld(WORLD[0]);
  });

  test('without a default route of the machine, status names the reason, and a new one is followed', async () => {
    here('ip', '-6', 'route', 'del', 'default');
    await eventually(
      statusText,
      (text) =>
        /egress: pods do not reach external networks over IPv6: this machine has no IPv6 default route/.test(
          text,
        ),
      60_000,
    );
    here('ip', '-6', 'route', 'add', 'default', 'via', WORLD[1]);
    await reachesWorld(WORLD[1]);
  });

  test('stop closes the way, up opens it again, and down leaves the machine as it was', async () => {
    here(LAUNCHER, 'stop', '--name', name);
    assert.equal(machineNetwork(), untouched);
    // This time the name server is at another address of the machine.
    await up(UPLINK[0]);
    for (const host of [...WORLD, 'world.example', LONG_NAME]) await reachesWorld(host);
    assert.ok(nameServers[1]?.asked.includes(`${LONG_NAME} A/tcp`));
    assert.equal(await askFromPod(UPLINK[0], MACHINE_PORT), null);
    here(LAUNCHER, 'down', '--name', name);
    assert.equal(machineNetwork(), untouched);
  });
});

test('with host access, pods and the machine’s programs reach each other, and down removes the device', async () => {
  await up(LOOPBACK_SERVER, '--ip-family', 'dual', '--host-access=services', '--egress', '-f', HELLO);
  for (const address of WORLD) await reachesWorld(address);
  assert.notEqual(await askFromPod(UPLINK[0], MACHINE_PORT), null);
  const kubeconfig = here(LAUNCHER, 'kubeconfig', '--name', name).trim();
  const kubectl = (...words: string[]) => here('kubectl', '--kubeconfig', kubeconfig, ...words);
  kubectl(
    'patch',
    'service',
    'hello',
    '-p',
    '{"spec":{"type":"LoadBalancer","ipFamilyPolicy":"PreferDualStack"}}',
  );
  kubectl('wait', 'service/hello', '--for=jsonpath={.status.loadBalancer.ingress}', '--timeout=120s');
  const balanced = kubectl('get', 'service', 'hello', '-o', 'jsonpath={.status.loadBalancer.ingress[*].ip}');
  const clusterIps = kubectl('get', 'service', 'hello', '-o', 'jsonpath={.spec.clusterIPs[*]}');
  const nodes = kubectl(
    'get',
    'node',
    'node-1',
    '-o',
    'jsonpath={.status.addresses[?(@.type=="InternalIP")].address}',
  );
  const urls = [
    ...balanced.split(' ').map((address) => `http://${bracketed(address)}`),
    ...nodes.split(' ').map((address) => `http://${bracketed(address)}:30080`),
    ...clusterIps.split(' ').map((address) => `http://${bracketed(address)}`),
  ];
  assert.equal(urls.length, 6);
  assert.equal(
    here('dig', '+short', '@10.96.0.10', 'hello.default.svc.cluster.local').trim(),
    clusterIps.split(' ')[0],
  );
  for (const url of urls) {
    const counts = JSON.parse(
      here(LAUNCHER, 'request', url, '--count', '60', '--timeout', '10000', '-o', 'json'),
    );
    assert.deepEqual(counts.failures, {}, url);
    assert.equal(Object.keys(counts.answers).length, 3, url);
  }
  here(LAUNCHER, 'down', '--name', name);
  assert.equal(machineNetwork(), untouched);
});

const bracketed = (address: string) => (address.includes(':') ? `[${address}]` : address);
