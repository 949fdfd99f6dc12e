import assert from 'node:assert/strict';
import { execFileSync } from 'node:child_process';
import { after, before, describe, test } from 'node:test';
import { isDeepStrictEqual } from 'node:util';
import { availableModes } from '../src/agent/dataplanes.ts';
import { SCENARIOS } from '../src/conformance/scenarios.ts';
import { eventually } from '../src/lib/testing/eventually.ts';
import type { Cluster } from './testing/cluster.ts';
import { HELLO, startCluster } from './testing/cluster.ts';
import { CLUSTER_POLICY_DEFINITIONS } from './testing/cluster-policy-definitions.ts';
import { SLOW_MACHINE_LOAD, walkUnderLoad } from './testing/mode-walk.ts';
import { TAKES_FULL_PRODUCT } from './testing/pairwise.ts';
import { createPolicyTraffic, MANIFEST, POLICIES, ROWS } from './testing/policy-traffic.ts';
import { createAskers } from './testing/question-asker.ts';

const OTHERS = availableModes().filter((mode) => mode !== 'ipvs');

/**
 * Without the flows of policies: one test here has those of each kind in this mode, and tests/promise the others, which the same
 * tables decide in each mode. Between modes, nodes meet each other's packets in the plain flows, whatever a Service's policy.
 */
const CHECKED = TAKES_FULL_PRODUCT ? [] : SCENARIOS.map(({ name }) => `${name}:`);
const MIXED = TAKES_FULL_PRODUCT ? ['plain:', 'local:'] : ['plain:'];

interface Report {
  readonly modes: Readonly<Record<string, string>>;
  readonly failed: number;
  readonly drifts: readonly unknown[];
  readonly flows: readonly { readonly flow: string; readonly ok: boolean }[];
}

/**
 * Returns the virtual servers in the output of `ipvsadm -Sn`, each with its options and its real servers. Real servers
 * that drain after a mode switch are left out. The numbers of marks depend on when draining ends: MARK replaces them.
 */
function servingOf(text: string): string[] {
  const servers = new Map<string, { readonly options: string; readonly real: string[] }>();
  for (const line of text.split('\n')) {
    const [, what, server = '', options = ''] = /^-([Aa]) (-[tuf] \S+(?: -6)?) (.*)$/.exec(line) ?? [];
    if (what === 'A') servers.set(server, { options, real: [] });
    else if (what === 'a' && !options.endsWith('-w 0')) servers.get(server)?.real.push(options);
  }
  return [...servers]
    .filter(([, { real }]) => real.length > 0)
    .map(([server, { options, real }]) =>
      [server.replace(/^-f \S+/, '-f MARK'), options, ...real.sort()].join(' '),
    )
    .sort();
}

describe('a cluster in IPVS mode', () => {
  let cluster: Cluster;
  before(async () => {
    cluster = await startCluster(['--nodes', '2', '--ip-family', 'dual', '--mode', 'ipvs', '-f', HELLO]);
  });
  after(() => cluster?.down());

  const inNode = (node: string, ...command: readonly string[]) =>
    execFileSync('ip', ['netns', 'exec', `fl-${cluster.name}-${node}`, ...command], { encoding: 'utf8' });

  async function check(...only: readonly string[]): Promise<Report> {
    const words = only.flatMap((text) => ['--only', text]);
    const { out, error } = await cluster.fairlead('check', '-o', 'json', ...words);
    assert.notEqual(out, '', error);
    const report = JSON.parse(out) as Report;
    assert.deepEqual(
      report.flows.filter(({ ok }) => !ok),
      [],
    );
    assert.deepEqual(report.drifts, []);
    assert.equal(report.failed, 0);
    return report;
  }

  test('every flow from pods, nodes and outside, in IPv4 and IPv6', async () => {
    await cluster.apply(CLUSTER_POLICY_DEFINITIONS);
    const { modes, flows } = await check(...CHECKED);
    assert.deepEqual(modes, { 'node-1': 'ipvs', 'node-2': 'ipvs' });
    assert.ok(flows.length >= 1400, `${flows.length} flows`);
  });

  test('flows between this mode and a node in another mode', async () => {
    assert.equal((await cluster.fairlead('mode', '--node', 'node-1', 'nftables')).status, 0);
    const { modes, flows } = await check(...MIXED);
    assert.deepEqual(modes, { 'node-1': 'nftables', 'node-2': 'ipvs' });
    assert.ok(flows.length >= 150, `${flows.length} flows`);
    assert.equal((await cluster.fairlead('mode', '--node', 'node-1', 'ipvs')).status, 0);
  });

  test('the scheduler that a Service sets is used; an unknown one is reported by an event on the Service', async () => {
    const service = await cluster.ask('get', 'service', 'hello', '-o', 'jsonpath={.spec.clusterIP}');
    const annotate = (value: string) =>
      cluster.ask('annotate', '--overwrite', 'service', 'hello', `fairlead.dev/ipvs-scheduler${value}`);
    const scheduler = () =>
      new RegExp(`-A -t ${service}:80 -s (\\w+)`).exec(inNode('node-1', 'ipvsadm', '-Sn'))?.[1];
    await annotate('=wlc');
    await eventually(scheduler, (name) => name === 'wlc');
    await annotate('=fastest');
    await eventually(scheduler, (name) => name === 'rr');
    await eventually(
      () => cluster.ask('get', 'events', '--field-selector', 'involvedObject.name=hello'),
      (events) => /"fastest" is unknown: use one of rr, wrr/.test(events),
    );
    await annotate('-');
  });

  test('network policies allow and deny, both families', async (t) => {
    const askers = createAskers(() => cluster);
    t.after(() => askers.stop());
    const traffic = createPolicyTraffic(() => cluster, askers, { isSlow: true });
    await cluster.apply(MANIFEST);
    await cluster.ask('wait', '--for=condition=Ready', 'pod', '--all', '--timeout=300s');
    await cluster.apply(POLICIES);
    await eventually(
      () => traffic.wrongRows(ROWS),
      (wrong) => wrong.length === 0,
      300_000,
    );
    await cluster.ask('delete', 'networkpolicy', '--all');
    await cluster.ask('delete', 'service,pod', '-l', 'policy-traffic');
  });

  test('the agent killed: traffic continues, and the next agent adopts the state', async () => {
    const service = await cluster.ask('get', 'service', 'hello', '-o', 'jsonpath={.spec.clusterIP}');
    const servers = () => servingOf(inNode('node-1', 'ipvsadm', '-Sn'));
    const before = servers();
    assert.ok(
      before.some((line) => line.includes(`${service}:80`)),
      before.join('\n'),
    );
    const load = cluster.load('client', 'http://hello', ...SLOW_MACHINE_LOAD);
    const connection = cluster.connect('node/node-1', service, 80);
    await eventually(
      () => inNode('node-1', 'ipvsadm', '-Lnc'),
      (text) => text.includes(`${service}:80`),
    );
    const agent = cluster.state().nodes[0]?.agent;
    assert.ok(agent);
    await cluster.stopSupervisor();
    process.kill(agent.pid, 'SIGKILL');
    await new Promise((resolve) => setTimeout(resolve, 1000));
    assert.deepEqual(servers(), before);
    assert.equal((await cluster.fairlead('up', '--detach')).status, 0);
    assert.notEqual(cluster.state().nodes[0]?.agent?.pid, agent.pid);
    assert.deepEqual(servers(), before);
    const { requests, answers } = await connection.stop();
    assert.ok(requests > 3);
    assert.equal(answers.size, 1);
    assert.deepEqual((await load.stop()).failures, {});
  });

  test('switching to other modes and back under load fails no request and breaks no connection', (t) => {
    assert.equal(OTHERS.length, 4);
    // The mode whose rules are most like those of this one; a node and the cluster switch to nftables mode in other tests here.
    // src/dataplane/ipvs-switching.vm.test.ts has every mode, with its rules and packets alone.
    const others = TAKES_FULL_PRODUCT ? OTHERS : ['iptables'];
    const path = others.flatMap((mode) => ['ipvs', mode]);
    return walkUnderLoad(t, cluster, [...path, 'ipvs'], SLOW_MACHINE_LOAD);
  });

  test('cleanup removes everything that the mode wrote, but no virtual servers of other programs', async () => {
    const theirs = '-A -t 198.51.100.1:80 -s wlc';
    inNode('node-1', 'ipvsadm', ...theirs.split(' '));
    const serving = () => servingOf(inNode('node-1', 'ipvsadm', '-Sn'));
    const before = serving();
    const agent = cluster.state().nodes[0]?.agent;
    assert.ok(agent);
    await cluster.stopSupervisor();
    process.kill(agent.pid, 'SIGKILL');
    const configuration = `${cluster.stateRoot}/${cluster.name}/nodes/node-1/agent.json`;
    const { status, out, error } = await cluster.fairlead(
      ...['exec', 'node/node-1', '--', 'fairlead', 'cleanup', '--config', configuration],
    );
    assert.equal(status, 0, `${out}${error}`);
    assert.equal(inNode('node-1', 'ipvsadm', '-Sn').trim(), theirs);
    assert.doesNotMatch(inNode('node-1', 'ip', 'link'), /fairlead-ipvs/);
    assert.doesNotMatch(inNode('node-1', 'nft', 'list', 'tables'), /fairlead/);
    assert.equal((await cluster.fairlead('up', '--detach')).status, 0);
    await eventually(
      () => ({ before, now: serving() }),
      ({ now }) => isDeepStrictEqual(now, before),
      60_000,
    );
    await eventually(
      () => cluster.request('client', 'http://hello', '--count', '10', '--timeout', '20000'),
      ({ failures }) => Object.keys(failures).length === 0,
      60_000,
    );
    inNode('node-1', 'ipvsadm', '-D', '-t', '198.51.100.1:80');
  });

  test('a switch to another mode removes everything that this mode wrote, but nothing of other programs', async () => {
    inNode('node-1', 'ipvsadm', '-A', '-t', '198.51.100.1:80', '-s', 'wlc');
    assert.equal((await cluster.fairlead('mode', 'nftables')).status, 0);
    // Recent connections may still be closing; IPVS keeps one without an answer for two minutes.
    const state = (node: string) => inNode(node, 'ipvsadm', '-Lnc') + inNode(node, 'ipvsadm', '-Sn');
    for (const [node, expected] of [
      ['node-1', '-A -t 198.51.100.1:80 -s wlc'],
      ['node-2', ''],
    ] as const) {
      await eventually(
        () => [inNode(node, 'ipvsadm', '-Sn').trim(), state(node)],
        ([servers]) => servers === expected,
        180_000,
      );
      assert.doesNotMatch(inNode(node, 'ip', 'link'), /fairlead-ipvs/);
      assert.doesNotMatch(inNode(node, 'nft', 'list', 'tables'), /fairlead-ipvs/);
    }
  });
});
