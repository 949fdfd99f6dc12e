import assert from 'node:assert/strict';
import { execFileSync } from 'node:child_process';
import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after, test } from 'node:test';
import { parseCertificateRequest } from './certificate-request.ts';

const folder = mkdtempSync(join(tmpdir(), 'certificate-request-'));
after(() => rmSync(folder, { recursive: true, force: true }));

/** Makes a request with the openssl command, as a user would. */
function request(subject: string, key: readonly string[], names?: string): string {
  const args = [
    'req',
    '-new',
    '-nodes',
    '-newkey',
    ...key,
    '-keyout',
    join(folder, 'key.pem'),
    '-subj',
    subject,
  ];
  return execFileSync('openssl', [...args, ...(names ? ['-addext', `subjectAltName=${names}`] : [])], {
    encoding: 'utf8',
    stdio: ['ignore', 'pipe', 'ignore'],
  });
}

const ROWS: readonly [name: string, key: readonly string[]][] = [
  ['an EC key', ['ec', '-pkeyopt', 'ec_paramgen_curve:P-256']],
  ['an RSA key', ['rsa:2048']],
  ['an Ed25519 key', ['ed25519']],
];

for (const [name, key] of ROWS) {
  test(`a request with ${name} is read`, () => {
    const parsed = parseCertificateRequest(
      request('/O=system:nodes/CN=system:node:n1', key, 'DNS:n1,IP:10.0.0.1,URI:https://x'),
    );
    assert.deepEqual(
      [parsed.commonName, parsed.organizations, parsed.dnsNames, parsed.addresses, parsed.otherNames],
      ['system:node:n1', ['system:nodes'], ['n1'], ['10.0.0.1'], ['https://x']],
    );
  });
}

test('a request modified after signing is refused', () => {
  const pem = request('/CN=me', ROWS[0]?.[1] ?? []);
  const der = Buffer.from(pem.replace(/-----[^-]+-----|\s/g, ''), 'base64');
  const at = der.indexOf('me');
  der.write('ME', at);
  const changed = `-----BEGIN CERTIFICATE REQUEST-----\n${der.toString('base64')}\n-----END CERTIFICATE REQUEST-----\n`;
  assert.throws(() => parseCertificateRequest(changed), /signature/);
});

for (const text of [
  '',
  'nonsense',
  '-----BEGIN CERTIFICATE REQUEST-----\nAAAA\n-----END CERTIFICATE REQUEST-----',
]) {
  test(`${JSON.stringify(text.slice(0, 20))} is not a request`, () => {
    assert.throws(() => parseCertificateRequest(text));
  });
}
