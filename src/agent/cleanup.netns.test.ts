import assert from 'node:assert/strict';
import { execFileSync, spawn } from 'node:child_process';
import { once } from 'node:events';
import { copyFileSync, mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { test } from 'node:test';
import { createLoopbackAccess } from '../dataplane/rules/loopback-access.ts';
import { readSysctl, writeSysctl } from '../kernel/sysctl.ts';
import { manualClock } from '../lib/clock.ts';
import { silentLogger } from '../lib/log.ts';
import { removeAll } from './cleanup.ts';
import { API_VERSION, readConfiguration } from './configuration.ts';

// Each file of packet tests runs in its own network namespace, which is the node here.
const TABLE = 'ip fairlead-egress';

/** Another process that owns a table until it is ended, like an agent that has not ended yet. */
async function owner(): Promise<{ end(): Promise<void> }> {
  const nft = spawn('nft', ['-i'], { stdio: ['pipe', 'ignore', 'inherit'] });
  nft.stdin.write(`add table ${TABLE} { flags owner; }\n`);
  for (let i = 0; i < 100 && !tables().includes(TABLE); i++)
    await new Promise((resolve) => setTimeout(resolve, 50));
  return {
    async end() {
      if (nft.exitCode !== null || nft.signalCode !== null) return;
      nft.kill();
      await once(nft, 'exit');
    },
  };
}

const tables = () => execFileSync('nft', ['list', 'tables'], { encoding: 'utf8' });

test('a cleanup beside a running agent tells what to do, and succeeds when the agent has ended', async () => {
  const stateDir = mkdtempSync(join(tmpdir(), 'flt-'));
  const configuration = readConfiguration({
    apiVersion: API_VERSION,
    kind: 'AgentConfiguration',
    nodeName: 'node-1',
    stateDir,
    network: {},
  });
  const agent = await owner();
  try {
    const clean = () => removeAll(configuration, silentLogger);
    const failed = (await clean()).filter(({ error }) => error !== null);
    assert.deepEqual(
      failed.map(({ what, hint }) => [what, hint]),
      [
        [
          'pod network',
          'stop the agent of this node, wait until its process has ended, and run cleanup again',
        ],
      ],
    );
    await agent.end();
    assert.deepEqual(
      (await clean()).filter(({ error }) => error !== null),
      [],
    );
    assert.equal(tables(), '');
  } finally {
    await agent.end();
    rmSync(stateDir, { recursive: true, force: true });
  }
});

const ROUTE_LOCALNET = 'net.ipv4.conf.all.route_localnet';

for (const { what, found, since, left } of [
  { what: 'of the agent alone is disabled', found: '0', since: null, left: '0' },
  { what: 'that a kube-proxy has set since stays', found: '0', since: '1', left: '1' },
  { what: 'that was there before the agent stays', found: '1', since: null, left: '1' },
] as const) {
  test(`a cleanup gives route_localnet back: a setting ${what}`, async () => {
    const loopback = createLoopbackAccess(['ipv4'], undefined);
    const table = 'ip fairlead';
    writeSysctl(ROUTE_LOCALNET, found);
    try {
      execFileSync('nft', ['add', 'table', table]);
      execFileSync('nft', ['add', 'chain', `${table} guard-loopback`]);
      loopback.allow(true);
      assert.notEqual(readSysctl(ROUTE_LOCALNET), '0');
      if (since !== null) writeSysctl(ROUTE_LOCALNET, since);
      const stateDir = mkdtempSync(join(tmpdir(), 'flt-'));
      const configuration = readConfiguration({
        ...{ apiVersion: API_VERSION, kind: 'AgentConfiguration', nodeName: 'node-1', stateDir },
        proxy: {},
      });
      const steps = await removeAll(configuration, silentLogger);
      rmSync(stateDir, { recursive: true, force: true });
      assert.deepEqual(
        steps.filter(({ error }) => error !== null),
        [],
      );
      assert.equal(readSysctl(ROUTE_LOCALNET), left);
      assert.equal(tables(), '');
    } finally {
      loopback.close();
      writeSysctl(ROUTE_LOCALNET, 0);
      execFileSync('nft', ['flush', 'ruleset']);
    }
  });
}

test('a cleanup beside a kube-proxy that programs no Services removes nothing, and names kube-proxy', async () => {
  const folder = mkdtempSync(join(tmpdir(), 'flt-'));
  const program = join(folder, 'kube-proxy');
  copyFileSync('/bin/sleep', program);
  const kubeProxy = spawn(program, ['600'], { stdio: 'ignore' });
  const table = 'ip fairlead';
  execFileSync('nft', ['add', 'table', table]);
  try {
    await once(kubeProxy, 'spawn');
    const clock = manualClock();
    const waits: string[] = [];
    let isOver = false;
    const steps = removeAll(null, silentLogger, { clock, onWait: (found) => waits.push(found) }).finally(
      () => {
        isOver = true;
      },
    );
    while (!isOver) {
      clock.advance(1000);
      await new Promise((resolve) => setImmediate(resolve));
    }
    const found = `process ${kubeProxy.pid}`;
    assert.deepEqual(waits, [found]);
    assert.deepEqual(
      (await steps).map(({ what, error }) => [what, error]),
      [
        [
          'nothing was removed',
          `kube-proxy is running (${found}), but has not programmed the Services in IPv4`,
        ],
      ],
    );
    assert.match(tables(), /table ip fairlead\n/);
  } finally {
    if (kubeProxy.kill('SIGKILL')) await once(kubeProxy, 'exit');
    execFileSync('nft', ['delete', 'table', ...table.split(' ')]);
    rmSync(folder, { recursive: true, force: true });
  }
});
