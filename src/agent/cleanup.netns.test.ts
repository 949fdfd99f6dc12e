import assert from 'node:assert/strict';
import { execFileSync, spawn } from 'node:child_process';
import { once } from 'node:events';
import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { test } from 'node:test';
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
