import assert from 'node:assert/strict';
import { execFileSync } from 'node:child_process';
import { randomBytes } from 'node:crypto';
import { rmSync } from 'node:fs';
import { after, before, test } from 'node:test';
import { createNetns, removeNetns } from '../src/kernel/netns.ts';
import { HELLO, LAUNCHER, reserveCluster } from './testing/cluster.ts';

/** Tests `up --host-access=services` in a namespace that represents the machine. */

const machine = `flt-${randomBytes(3).toString('hex')}-machine`;
const { name, stateRoot } = reserveCluster();
const here = (...words: string[]) =>
  execFileSync('nsenter', [`--net=/run/netns/${machine}`, ...words], {
    encoding: 'utf8',
    env: { ...process.env, FAIRLEAD_STATE: stateRoot },
  });
const links = () => here('ip', '-brief', 'link') + here('ip', 'route') + here('ip', '-6', 'route');

let untouched: string;
before(() => {
  createNetns(machine);
  here('ip', 'link', 'set', 'lo', 'up');
  untouched = links();
  here(
    LAUNCHER,
    ...['up', '--detach', '--name', name, '--ip-family', 'dual', '--host-access=services'],
    ...['-f', HELLO],
  );
});
after(() => {
  try {
    here(LAUNCHER, 'down', '--name', name);
  } finally {
    removeNetns(machine);
    rmSync(stateRoot, { recursive: true, force: true });
  }
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
  assert.equal(links(), untouched);
});

const bracketed = (address: string) => (address.includes(':') ? `[${address}]` : address);
