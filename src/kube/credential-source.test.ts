import assert from 'node:assert/strict';
import { chmodSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { test } from 'node:test';
import { kubeconfigSource, readKubeconfig } from './kubeconfig.ts';

const KUBECONFIG = (user: string) => `apiVersion: v1
kind: Config
current-context: c
clusters: [{name: c, cluster: {server: "https://10.0.0.1:6443", certificate-authority: ca.crt}}]
contexts: [{name: c, context: {cluster: c, user: u}}]
users: [{name: u, user: ${user}}]
`;

async function inFolder(work: (folder: string) => Promise<void>): Promise<void> {
  const folder = mkdtempSync(join(tmpdir(), 'credentials-'));
  try {
    writeFileSync(join(folder, 'ca.crt'), 'CA-1');
    await work(folder);
  } finally {
    rmSync(folder, { recursive: true });
  }
}

test('rotated certificates and authorities are used; a malformed file changes nothing and is reported once', () =>
  inFolder(async (folder) => {
    const problems: string[] = [];
    let now = 0;
    writeFileSync(join(folder, 'client.pem'), 'CERT-1');
    writeFileSync(
      join(folder, 'config'),
      KUBECONFIG('{client-certificate: client.pem, client-key: client.pem}'),
    );
    const source = kubeconfigSource(join(folder, 'config'), {
      server: null,
      now: () => now,
      onProblem: (message) => problems.push(message),
    });
    assert.equal((await source.current()).cert, 'CERT-1');
    writeFileSync(join(folder, 'client.pem'), 'CERT-2');
    writeFileSync(join(folder, 'ca.crt'), 'CA-2');
    assert.equal((await source.current()).cert, 'CERT-1', 'files are not read for each request');
    now += 31_000;
    const { cert, key, ca } = await source.current();
    assert.deepEqual({ cert, key, ca }, { cert: 'CERT-2', key: 'CERT-2', ca: 'CA-2' });
    rmSync(join(folder, 'client.pem'));
    for (const _ of [1, 2]) {
      now += 31_000;
      assert.equal((await source.current()).cert, 'CERT-2');
    }
    assert.equal(problems.length, 1);
    assert.match(problems[0] ?? '', /failed to reload credentials, .*: .*client-certificate/);
    writeFileSync(join(folder, 'client.pem'), 'CERT-3');
    source.refused();
    now += 2000;
    assert.equal((await source.current()).cert, 'CERT-3', 'a refusal has the files read at once');
  }));

test('the proxies of the environment apply to a kubeconfig that is followed, not to one that is read once', () =>
  inFolder(async (folder) => {
    const file = join(folder, 'config');
    writeFileSync(join(folder, 'ca.crt'), 'CA');
    writeFileSync(file, KUBECONFIG('{token: a}'));
    const earlier = process.env['HTTPS_PROXY'];
    process.env['HTTPS_PROXY'] = 'http://proxy:3128';
    try {
      const source = kubeconfigSource(file, { server: null, now: () => 0, onProblem: () => {} });
      const { proxyVariables } = await source.current();
      assert.equal(proxyVariables?.https, 'http://proxy:3128');
      assert.equal(readKubeconfig(file).proxyVariables, undefined, 'of a local cluster');
    } finally {
      if (earlier === undefined) delete process.env['HTTPS_PROXY'];
      else process.env['HTTPS_PROXY'] = earlier;
    }
  }));

test("a token file's path counts from the kubeconfig; a configured server beats it", () =>
  inFolder(async (folder) => {
    writeFileSync(join(folder, 'config'), KUBECONFIG('{tokenFile: token}'));
    const source = kubeconfigSource(join(folder, 'config'), {
      server: 'https://192.0.2.1:6443',
      now: () => 0,
      onProblem: assert.fail,
    });
    const { tokenFile, server } = await source.current();
    assert.deepEqual(
      { tokenFile, server },
      { tokenFile: join(folder, 'token'), server: 'https://192.0.2.1:6443' },
    );
  }));

test('an exec plugin runs for a token, and again when the token expires or the server refuses it', () =>
  inFolder(async (folder) => {
    const plugin = join(folder, 'plugin');
    const print = (token: string, expires: string) => {
      const answer = {
        apiVersion: 'client.authentication.k8s.io/v1',
        kind: 'ExecCredential',
        status: { token: `${token}-$1-$COLOUR`, expirationTimestamp: expires },
      };
      const text = JSON.stringify(answer).replaceAll('"', '\\"');
      writeFileSync(plugin, `#!/bin/sh\necho "${text}"\n`);
      chmodSync(plugin, 0o755);
    };
    writeFileSync(
      join(folder, 'config'),
      KUBECONFIG(
        '{exec: {apiVersion: client.authentication.k8s.io/v1, command: ./plugin, args: [a], env: [{name: COLOUR, value: red}]}}',
      ),
    );
    let now = Date.parse('2026-01-01T00:00:00Z');
    print('first', '2026-01-01T01:00:00Z');
    const source = kubeconfigSource(join(folder, 'config'), {
      server: null,
      now: () => now,
      onProblem: assert.fail,
    });
    assert.equal((await source.current()).token, 'first-a-red');
    print('second', '2026-01-01T09:00:00Z');
    assert.equal((await source.current()).token, 'first-a-red');
    now += 2 * 3_600_000;
    assert.equal((await source.current()).token, 'second-a-red');
    print('third', '2026-01-01T09:00:00Z');
    source.refused();
    now += 2000;
    assert.equal((await source.current()).token, 'third-a-red');
    writeFileSync(plugin, '#!/bin/sh\necho sorry >&2\nexit 3\n');
    source.refused();
    now += 2000;
    await assert.rejects(source.current(), /exec plugin ".\/plugin": .*sorry/);
  }));
