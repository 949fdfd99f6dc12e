import assert from 'node:assert/strict';
import { type ChildProcess, execFileSync, spawn, spawnSync } from 'node:child_process';
import { randomBytes } from 'node:crypto';
import { rmSync } from 'node:fs';
import { after, before, test } from 'node:test';
import { createNetns, removeNetns } from '../src/kernel/netns.ts';
import { eventually } from '../src/lib/testing/eventually.ts';
import { HELLO, LAUNCHER, reserveCluster } from './testing/cluster.ts';

/**
 * Tests `up --host-access=services --egress` in a namespace that represents the machine. Another namespace represents the
 * world, to which the machine has its default routes.
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

let untouched: string;
let server: ChildProcess | undefined;
before(() => {
  createNetns(machine);
  here('ip', 'link', 'set', 'lo', 'up');
  connectWorld();
  untouched = machineNetwork();
  here(
    LAUNCHER,
    ...['up', '--detach', '--name', name, '--ip-family', 'dual', '--host-access=services', '--egress'],
    ...['-f', HELLO],
  );
});
after(() => {
  try {
    here(LAUNCHER, 'down', '--name', name);
  } finally {
    server?.kill('SIGKILL');
    removeNetns(machine);
    removeNetns(world);
    rmSync(stateRoot, { recursive: true, force: true });
  }
});

/** Connects the machine with the world, which has no routes to the cluster. */
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
  server = spawn('nsenter', [`--net=/run/netns/${world}`, LAUNCHER, 'echo', '--port=8000'], {
    stdio: 'ignore',
  });
}

/** Sends a request from a pod to the world; returns the client's address that the world sees, or null. */
function askWorld(address: string): string | null {
  const url = `http://${bracketed(address)}:8000/clientip`;
  const words = [
    'exec',
    '--name',
    name,
    'client',
    '--',
    'fairlead',
    'request',
    url,
    '--json',
    '--timeout',
    '5000',
  ];
  const { stdout } = spawnSync('nsenter', [`--net=/run/netns/${machine}`, LAUNCHER, ...words], {
    encoding: 'utf8',
    env: { ...process.env, FAIRLEAD_STATE: stateRoot },
  });
  const [answer = ''] = Object.keys((JSON.parse(stdout || '{}') as { answers?: object }).answers ?? {});
  return /^\[?([0-9a-f.:]+?)\]?:[0-9]+$/.exec(answer.trim())?.[1] ?? null;
}

const statusText = () =>
  spawnSync('nsenter', [`--net=/run/netns/${machine}`, LAUNCHER, 'status', '--name', name], {
    encoding: 'utf8',
    env: { ...process.env, FAIRLEAD_STATE: stateRoot },
  }).stdout;

test('pods reach the world with the machine’s address, of both families', async () => {
  for (const [i, address] of WORLD.entries()) {
    await eventually(
      () => askWorld(address),
      (seen) => seen === UPLINK[i],
      60_000,
    );
  }
  assert.match(statusText(), /^ipv4 +up0 +Open\nipv6 +up0 +Open$/m);
});

test('the world does not reach the nodes through the machine', () => {
  there('ip', 'route', 'add', '172.30.0.0/16', 'via', UPLINK[0]);
  const { status } = spawnSync(
    'nsenter',
    [`--net=/run/netns/${world}`, LAUNCHER, 'request', 'http://172.30.0.11:30080', '--timeout', '2000'],
    { encoding: 'utf8' },
  );
  assert.notEqual(status, 0);
});

test('rules, routes and forwarding that other programs remove are restored', async () => {
  // From kernel 6.9 on, the rules belong to their process, and are not removed.
  spawnSync('nsenter', [`--net=/run/netns/${machine}`, 'nft', 'flush', 'ruleset']);
  here('sysctl', '-qw', 'net.ipv4.conf.up0.forwarding=0');
  inside(`fl-${name}-node-1`, ['ip', 'route', 'del', 'default']);
  await eventually(
    () => askWorld(WORLD[0]),
    (seen) => seen === UPLINK[0],
    60_000,
  );
});

test('without a default route of the machine, status names the reason, and a new one is followed', async () => {
  here('ip', '-6', 'route', 'del', 'default');
  await eventually(
    statusText,
    (text) =>
      /egress: pods do not reach the world by ipv6: this machine has no ipv6 default route/.test(text),
    60_000,
  );
  here('ip', '-6', 'route', 'add', 'default', 'via', WORLD[1]);
  await eventually(
    () => askWorld(WORLD[1]),
    (seen) => seen === UPLINK[1],
    60_000,
  );
});

test('the machine’s programs reach node ports, load-balancer addresses, cluster IPs and names, and down removes the device', () => {
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
      here(LAUNCHER, 'request', url, '--count', '60', '--timeout', '10000', '--json'),
    );
    assert.deepEqual(counts.failures, {}, url);
    assert.equal(Object.keys(counts.answers).length, 3, url);
  }
  here(LAUNCHER, 'down', '--name', name);
  assert.equal(machineNetwork(), untouched);
});

const bracketed = (address: string) => (address.includes(':') ? `[${address}]` : address);
