import assert from 'node:assert/strict';
import { execFile } from 'node:child_process';
import { once } from 'node:events';
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { createServer } from 'node:https';
import type { AddressInfo } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after, before, test } from 'node:test';
import { promisify } from 'node:util';
import { createAuthority } from '../lib/pki.ts';

const exec = promisify(execFile);
const folder = mkdtempSync(join(tmpdir(), 'authorities-'));
const authorityFile = join(folder, 'ca.crt');
const authority = createAuthority('test', new Date());
const { cert, key } = authority.issue({ commonName: 'server', names: ['127.0.0.1'], usage: 'server' });
const server = createServer({ cert, key }, (_, response) => response.end('hello'));
let url = '';

before(async () => {
  writeFileSync(authorityFile, authority.cert);
  await once(server.listen(0, '127.0.0.1'), 'listening');
  url = `https://127.0.0.1:${(server.address() as AddressInfo).port}/`;
});
after(() => {
  server.close();
  rmSync(folder, { recursive: true });
});

const ANSWERS = { trusted: 'hello', unknown: 'UNABLE_TO_VERIFY_LEAF_SIGNATURE' };
const CASES = [
  { name: 'as the launcher starts it', flags: ['--use-openssl-ca'], isLater: false, answer: 'trusted' },
  { name: 'as a process of a local cluster', flags: ['--use-openssl-ca'], isLater: true, answer: 'trusted' },
  { name: 'without the flag', flags: [], isLater: false, answer: 'trusted' },
  { name: 'without the flag, in a local cluster', flags: [], isLater: true, answer: 'trusted' },
  {
    name: 'as the launcher starts it, and the server is signed by an unknown authority',
    flags: ['--use-openssl-ca'],
    isLater: false,
    answer: 'unknown',
  },
] as const;

for (const { name, flags, isLater, answer } of CASES)
  test(`trusts public authorities and those of NODE_EXTRA_CA_CERTS: ${name}`, async () => {
    const module = join(import.meta.dirname, 'public-authorities.ts');
    const given = answer === 'trusted' ? { NODE_EXTRA_CA_CERTS: authorityFile } : {};
    const evaluate = [...flags, '--input-type=module', '--eval'];
    const start = `import { execFileSync } from 'node:child_process';
      import { withoutAuthorities } from ${JSON.stringify(module)};
      const words = [...${JSON.stringify(evaluate)}, process.env.TEXT];
      const env = withoutAuthorities({ ...process.env, SSL_CERT_FILE: '/none', SSL_CERT_DIR: '/none' });
      if (env.NODE_EXTRA_CA_CERTS && process.execArgv.includes('--use-openssl-ca')) throw new Error('read too early');
      execFileSync(process.execPath, words, { env, stdio: 'inherit' });`;
    const text = `import tls from 'node:tls';
      import { trustPublicAuthorities } from ${JSON.stringify(module)};
      trustPublicAuthorities();
      const bytes = (kind) => tls.getCACertificates(kind).map((one) => one.replace(/\\s/g, ''));
      const known = new Set(bytes('default'));
      const missing = bytes('bundled').filter((one) => !known.has(one));
      const answer = await fetch(${JSON.stringify(url)}).then((one) => one.text(), (error) => error.cause.code);
      console.log(missing.length === 0 ? 'public' : 'not public', answer);`;
    const { NODE_EXTRA_CA_CERTS: _, ...environment } = process.env;
    const { stdout } = await exec(process.execPath, [...evaluate, isLater ? start : text], {
      env: { ...environment, ...given, TEXT: text },
    });
    assert.equal(stdout, `public ${ANSWERS[answer]}\n`);
  });
