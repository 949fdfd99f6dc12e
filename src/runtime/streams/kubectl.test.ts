import assert from 'node:assert/strict';
import { type ChildProcessWithoutNullStreams, spawn, spawnSync } from 'node:child_process';
import { createHash, randomBytes } from 'node:crypto';
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { type AddressInfo, connect, createServer } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after, before, describe, test } from 'node:test';
import { eventually } from '../../lib/testing/eventually.ts';
import { type PodServer, startPodServer } from './testing/pod-server.ts';

const skip = spawnSync('kubectl', ['version', '--client']).status === 0 ? false : 'kubectl is not installed';

for (const carrier of ['websocket', 'spdy/3.1'] as const) {
  describe(`kubectl over ${carrier}`, { skip }, () => {
    let server: PodServer;
    let folder: string;
    before(async () => {
      server = await startPodServer();
      folder = mkdtempSync(join(tmpdir(), 'streams-'));
    });
    after(async () => {
      await server.close();
      rmSync(folder, { recursive: true });
    });

    function kubectl(...args: string[]): ChildProcessWithoutNullStreams {
      const webSockets = String(carrier === 'websocket');
      return spawn('kubectl', ['--server', `http://127.0.0.1:${server.port}`, ...args], {
        env: {
          ...process.env,
          HOME: folder,
          KUBECONFIG: '/dev/null',
          KUBECTL_REMOTE_COMMAND_WEBSOCKETS: webSockets,
          KUBECTL_PORT_FORWARD_WEBSOCKETS: webSockets,
        },
      });
    }

    async function run(args: string[], input: string | Buffer = '') {
      const child = kubectl(...args);
      const stdout: Buffer[] = [];
      const stderr: Buffer[] = [];
      child.stdout.on('data', (chunk: Buffer) => stdout.push(chunk));
      child.stderr.on('data', (chunk: Buffer) => stderr.push(chunk));
      child.stdin.on('error', () => {});
      child.stdin.end(input);
      const code = await new Promise<number | null>((resolve) => child.on('close', resolve));
      return { code, stdout: Buffer.concat(stdout), stderr: Buffer.concat(stderr).toString() };
    }

    test('output, error output and exit code are returned', async () => {
      const { code, stdout, stderr } = await run([
        'exec',
        'p',
        '--',
        'sh',
        '-c',
        'echo out; echo err >&2; exit 3',
      ]);
      assert.equal(stdout.toString(), 'out\n');
      assert.match(stderr, /^err\n/);
      assert.match(stderr, /command terminated with exit code 3/);
      assert.equal(code, 3);
      assert.equal(server.upgrades.at(-1), `exec ${carrier}`);
    });

    test('input and its end reach the command', async () => {
      const { code, stdout, stderr } = await run(['exec', '-i', 'p', '--', 'wc', '-c'], 'hello');
      assert.deepEqual([code, stdout.toString().trim(), stderr], [0, '5', '']);
    });

    test('megabytes pass in both directions unchanged', async () => {
      const bytes = randomBytes(3_000_000);
      const { stdout } = await run(['exec', '-i', 'p', '--', 'cat'], bytes);
      assert.equal(stdout.length, bytes.length);
      assert.equal(digest(stdout), digest(bytes));
    });

    test('a command that does not read its input still ends', async () => {
      const { code, stdout } = await run(['exec', '-i', 'p', '--', 'echo', 'done'], randomBytes(2_000_000));
      assert.deepEqual([code, stdout.toString()], [0, 'done\n']);
    });

    test('a command that cannot be run is an error', async () => {
      const { code, stderr } = await run(['exec', 'p', '--', '/no/such/command']);
      assert.equal(code, 1);
      assert.match(stderr, /ENOENT/);
    });

    test('the command dies with its client', async () => {
      const child = kubectl('exec', 'p', '--', 'sh', '-c', 'echo $$; exec sleep 1000');
      const pid = await new Promise<number>((resolve) =>
        child.stdout.once('data', (text) => resolve(Number(text))),
      );
      child.kill('SIGKILL');
      await eventually(() => !exists(pid));
    });

    test('files are copied in and out', async () => {
      const bytes = randomBytes(1_500_000);
      writeFileSync(join(folder, 'from'), bytes);
      const into = await run(['cp', join(folder, 'from'), `p:${join(folder, 'in-pod')}`]);
      assert.equal(into.code, 0, into.stderr);
      const out = await run(['cp', `p:${join(folder, 'in-pod')}`, join(folder, 'back')]);
      assert.equal(out.code, 0, out.stderr);
      assert.equal(digest(readFileSync(join(folder, 'back'))), digest(bytes));
    });

    test('ports are forwarded, with concurrent connections and half-closes', async () => {
      const echo = createServer({ allowHalfOpen: true }, (socket) => {
        const hash = createHash('sha256');
        socket.on('data', (chunk) => hash.update(chunk));
        // The answer can only come once the client's end has arrived.
        socket.on('end', () => socket.end(hash.digest('hex')));
      });
      await new Promise<void>((resolve) => echo.listen(0, '127.0.0.1', resolve));
      const child = kubectl('port-forward', 'pod/p', `:${(echo.address() as AddressInfo).port}`);
      try {
        const local = await forwardedPort(child);
        const answers = await Promise.all(
          Array.from({ length: 8 }, async (_, index) => {
            const bytes = randomBytes(100_000 * (index + 1));
            return (await exchange(local, bytes)) === digest(bytes);
          }),
        );
        assert.deepEqual(
          answers,
          answers.map(() => true),
        );
        assert.equal(server.upgrades.at(-1), `portforward ${carrier}`);
      } finally {
        child.kill();
        echo.close();
      }
    });

    test('a closed port is reported to the user', async () => {
      const closed = createServer();
      await new Promise<void>((resolve) => closed.listen(0, '127.0.0.1', resolve));
      const { port } = closed.address() as AddressInfo;
      await new Promise((resolve) => closed.close(resolve));
      const child = kubectl('port-forward', 'pod/p', `:${port}`);
      try {
        let stderr = '';
        child.stderr.on('data', (text) => {
          stderr += text;
        });
        const local = await forwardedPort(child);
        assert.equal(await exchange(local, Buffer.from('hello')), '');
        await eventually(() =>
          new RegExp(`error forwarding port ${port} to pod: .*ECONNREFUSED`).test(stderr),
        );
      } finally {
        child.kill();
      }
    });
  });
}

function digest(bytes: Buffer): string {
  return createHash('sha256').update(bytes).digest('hex');
}

function forwardedPort(child: ChildProcessWithoutNullStreams): Promise<number> {
  return new Promise((resolve, reject) => {
    child.stdout.on('data', (text) => {
      const port = /127\.0\.0\.1:(\d+)/.exec(String(text))?.[1];
      if (port) resolve(Number(port));
    });
    child.on('exit', () => reject(new Error('kubectl port-forward ended')));
  });
}

/** Sends bytes and our end to a port, and returns all that comes back. */
function exchange(port: number, bytes: Buffer): Promise<string> {
  return new Promise((resolve) => {
    const socket = connect({ port, host: '127.0.0.1', allowHalfOpen: true });
    let answer = '';
    socket.on('data', (chunk) => {
      answer += chunk;
    });
    socket.on('error', () => {});
    socket.on('close', () => resolve(answer));
    socket.on('end', () => socket.end());
    socket.end(bytes);
  });
}

function exists(pid: number): boolean {
  try {
    process.kill(pid, 0);
    return true;
  } catch {
    return false;
  }
}
