import assert from 'node:assert/strict';
import { existsSync, mkdtempSync, readdirSync, readFileSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { describe, test } from 'node:test';
import { eventually } from '../src/lib/testing/eventually.ts';
import { HELLO, reserveCluster, runFairlead, spawnFairlead } from './testing/cluster.ts';
import { machineChanges, machineState } from './testing/machine.ts';

/** `fairlead run -- COMMAND`: each row leaves nothing behind. */

async function inEmptyMachine(
  work: (place: { name: string; stateRoot: string; folder: string }) => Promise<void>,
) {
  const { name, stateRoot } = reserveCluster();
  const folder = mkdtempSync(join(tmpdir(), 'flt-run-'));
  const earlier = machineState(name, stateRoot);
  try {
    await work({ name, stateRoot, folder });
    assert.deepEqual(machineChanges(earlier, machineState(name, stateRoot)), []);
    assert.deepEqual(existsSync(stateRoot) ? readdirSync(stateRoot) : [], []);
  } finally {
    await runFairlead(stateRoot, ['down', '--name', name]);
    for (const path of [stateRoot, folder]) rmSync(path, { recursive: true, force: true });
  }
}

describe('fairlead run', () => {
  test('the command has a cluster and the standard streams, and its status is returned', async () => {
    await inEmptyMachine(async ({ name, stateRoot, folder }) => {
      const script = `test -r "$KUBECONFIG" && echo "cluster $FAIRLEAD_CLUSTER" && fairlead exec client -- fairlead request http://hello; exit 7`;
      const evidence = join(folder, 'evidence');
      const words = ['run', '--name', name, '-f', HELLO, '--evidence', evidence, '--', 'sh', '-c', script];
      const { status, out, error } = await runFairlead(stateRoot, words);
      assert.equal(status, 7, error);
      assert.match(out, new RegExp(`^cluster ${name}\\nhello-`));
      assert.match(error, /--- default\/client shell/);
      assert.match(error, /--- events\n[\s\S]* Started Pod default\/client/);
      const kept = readdirSync(evidence);
      for (const file of ['events.txt', 'pods.json', 'processes', 'default_client_shell.log'])
        assert.ok(kept.includes(file), `${file} in ${kept}`);
      assert.match(readFileSync(join(evidence, 'events.txt'), 'utf8'), /Pod default\/client/);
    });
  });

  test('a command that succeeds keeps no evidence', async () => {
    await inEmptyMachine(async ({ name, stateRoot, folder }) => {
      const evidence = join(folder, 'evidence');
      const words = ['run', '--name', name, '--evidence', evidence, '--', 'true'];
      const { status, error } = await runFairlead(stateRoot, words);
      assert.equal(status, 0, error);
      assert.equal(existsSync(evidence), false);
    });
  });

  test('a command that does not exist', async () => {
    await inEmptyMachine(async ({ name, stateRoot }) => {
      const { status, error } = await runFairlead(stateRoot, [
        'run',
        '--name',
        name,
        '--',
        'no-such-program',
      ]);
      assert.equal(status, 1);
      assert.match(error, /cannot run no-such-program/);
    });
  });

  test('a cluster that the user has is refused, and stays', async () => {
    await inEmptyMachine(async ({ name, stateRoot }) => {
      const up = await runFairlead(stateRoot, ['up', '--detach', '--name', name]);
      assert.equal(up.status, 0, up.error);
      const { status, error } = await runFairlead(stateRoot, ['run', '--name', name, '--', 'true']);
      assert.equal(status, 1);
      assert.match(error, /exists, and would be removed/);
      const kept = await runFairlead(stateRoot, ['status', '--name', name]);
      assert.equal(kept.status, 0, kept.out);
      await runFairlead(stateRoot, ['down', '--name', name]);
    });
  });

  for (const signal of ['SIGTERM', 'SIGINT'] as const) {
    test(`${signal} ends the command, and then the cluster`, async () => {
      await inEmptyMachine(async ({ name, stateRoot, folder }) => {
        const evidence = join(folder, 'evidence');
        const words = [
          'run',
          '--name',
          name,
          '--evidence',
          evidence,
          '--',
          'sh',
          '-c',
          'echo begins; exec sleep 600',
        ];
        const run = spawnFairlead(stateRoot, words);
        let text = '';
        run.stdout?.setEncoding('utf8').on('data', (chunk: string) => {
          text += chunk;
        });
        const ended = new Promise<number | null>((resolve) => run.once('close', resolve));
        await eventually(() => text.includes('begins'));
        run.kill(signal);
        assert.equal(await ended, signal === 'SIGTERM' ? 143 : 130);
      });
    });
  }

  test('the command takes a snapshot, applies manifests, and stops its cluster and starts it again', async () => {
    await inEmptyMachine(async ({ name, stateRoot, folder }) => {
      const file = join(folder, 'snapshot.tgz');
      const steps = [
        `fairlead snapshot ${file}`,
        `fairlead up --detach --no-kubeconfig -f ${HELLO}`,
        'fairlead stop',
        'fairlead up --detach --no-kubeconfig',
        'fairlead exec client -- fairlead request http://hello',
      ];
      const words = ['run', '--name', name, '--', 'sh', '-ec', steps.join('\n')];
      const { status, out, error } = await runFairlead(stateRoot, words);
      assert.equal(status, 0, error);
      assert.match(out, /\nhello-/);
      assert.ok(existsSync(file));
    });
  });

  test('a command that removes its cluster itself', async () => {
    await inEmptyMachine(async ({ name, stateRoot }) => {
      const words = ['run', '--name', name, '--', 'sh', '-c', 'fairlead down; exit 3'];
      const { status, error } = await runFairlead(stateRoot, words);
      assert.equal(status, 3, error);
      assert.doesNotMatch(error, /no such cluster/);
    });
  });

  test('--restore starts from a snapshot, and leaves the file', async () => {
    await inEmptyMachine(async ({ name, stateRoot, folder }) => {
      const file = join(folder, 'snapshot.tgz');
      const up = await runFairlead(stateRoot, ['up', '--detach', '--name', name, '-f', HELLO]);
      assert.equal(up.status, 0, up.error);
      const taken = await runFairlead(stateRoot, ['snapshot', '--name', name, file]);
      assert.equal(taken.status, 0, taken.error);
      await runFairlead(stateRoot, ['down', '--name', name]);
      const words = [
        'run',
        '--restore',
        file,
        '--',
        'fairlead',
        'exec',
        'client',
        '--',
        'fairlead',
        'request',
        'http://hello',
      ];
      const { status, out, error } = await runFairlead(stateRoot, words);
      assert.equal(status, 0, error);
      assert.match(out, /^hello-/);
      assert.ok(existsSync(file));
      const mixed = await runFairlead(stateRoot, ['run', '--restore', file, '--nodes', '2', '--', 'true']);
      assert.equal(mixed.status, 2);
      assert.match(mixed.error, /--nodes does not apply to --restore/);
    });
  });
});
