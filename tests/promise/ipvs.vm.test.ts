import assert from 'node:assert/strict';
import { execFileSync } from 'node:child_process';
import { test } from 'node:test';
import { eventually } from '../../src/lib/testing/eventually.ts';
import { assertGood, check } from '../testing/flow-report.ts';
import type { PromiseScene } from '../testing/promise-scene.ts';
import { testPromise } from '../testing/promise-suite.ts';

/** Not every kernel supports IPVS: this one runs in a virtual machine. */
testPromise('ipvs', 'nftables', {
  isSlow: true,
  state: {
    foreign: [
      {
        add: ['ipvsadm', '-A', '-t', '198.51.100.1:80', '-s', 'wlc'],
        list: ['ipvsadm', '-Sn'],
        shown: /^-A -t 198\.51\.100\.1:80 -s wlc/m,
        remove: ['ipvsadm', '-D', '-t', '198.51.100.1:80'],
      },
    ],
    programmed: (onNode) => servingOf(onNode('ipvsadm', '-Sn')),
  },
  also: testIpvsAlone,
  afterSwitch: assertNothingLeft,
});

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

function testIpvsAlone(scene: PromiseScene): void {
  test('flows between this mode and a node in another mode', async () => {
    const { cluster } = scene;
    assert.equal((await cluster.fairlead('mode', '--node', 'node-1', 'nftables')).status, 0);
    const report = await check(cluster, ['plain:', 'local:']);
    assert.deepEqual(report.modes, { 'node-1': 'nftables', 'node-2': 'ipvs' });
    assert.ok(report.flows.length >= 300, `${report.flows.length} flows`);
    assertGood(report);
    assert.equal((await cluster.fairlead('mode', '--node', 'node-1', 'ipvs')).status, 0);
  });

  test('the scheduler that a Service sets is used; an unknown one is reported by an event on the Service', async () => {
    const { cluster, onNode, patienceMs } = scene;
    const [service] = await scene.clusterIPs('hello');
    const annotate = (value: string) =>
      cluster.ask('annotate', '--overwrite', 'service', 'hello', `fairlead.dev/ipvs-scheduler${value}`);
    const scheduler = () => new RegExp(`-A -t ${service}:80 -s (\\w+)`).exec(onNode('ipvsadm', '-Sn'))?.[1];
    await annotate('=wlc');
    await eventually(scheduler, (name) => name === 'wlc', patienceMs);
    await annotate('=fastest');
    await eventually(scheduler, (name) => name === 'rr', patienceMs);
    await eventually(
      () => cluster.ask('get', 'events', '--field-selector', 'involvedObject.name=hello'),
      (events) => /"fastest" is unknown: use one of rr, wrr/.test(events),
      patienceMs,
    );
    await annotate('-');
    // Of another program, for the switch.
    onNode('ipvsadm', '-A', '-t', '198.51.100.1:80', '-s', 'wlc');
  });
}

/** A switch to another mode removes everything that this mode wrote, but nothing of other programs. */
async function assertNothingLeft({ cluster, patienceMs }: PromiseScene): Promise<void> {
  const inNode = (node: string, ...command: readonly string[]) =>
    execFileSync('ip', ['netns', 'exec', `fl-${cluster.name}-${node}`, ...command], { encoding: 'utf8' });
  // Recent connections may still be closing.
  const state = (node: string) => inNode(node, 'ipvsadm', '-Lnc') + inNode(node, 'ipvsadm', '-Sn');
  for (const [node, expected] of [
    ['node-1', '-A -t 198.51.100.1:80 -s wlc'],
    ['node-2', ''],
  ] as const) {
    await eventually(
      () => [inNode(node, 'ipvsadm', '-Sn').trim(), state(node)],
      ([servers]) => servers === expected,
      patienceMs,
    );
    assert.doesNotMatch(inNode(node, 'ip', 'link'), /fairlead-ipvs/);
    assert.doesNotMatch(inNode(node, 'nft', 'list', 'tables'), /fairlead-ipvs/);
  }
}
