import assert from 'node:assert/strict';
import { execFileSync } from 'node:child_process';
import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after, test } from 'node:test';
import { createCertificateRequest, parseCertificateRequest } from './certificate-request.ts';
import { createSigningKey } from './pki.ts';

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

const CREATED: readonly { name: string; organizations: string[]; names: string[]; shown: RegExp[] }[] = [
  {
    name: "a node's client certificate",
    organizations: ['system:nodes'],
    names: [],
    shown: [/Subject: O ?= ?system:nodes, CN ?= ?system:node:n1/, /Attributes:\s+\(none\)/],
  },
  {
    name: 'a server of several names',
    organizations: ['system:nodes'],
    names: ['n1', 'n1.example', '10.0.0.1', 'fd00::1'],
    shown: [/DNS:n1, DNS:n1\.example, IP Address:10\.0\.0\.1, IP Address:FD00:0:0:0:0:0:0:1/],
  },
  {
    name: 'an organization that is longer than the short form of a length',
    organizations: ['o'.repeat(300)],
    names: [],
    shown: [/O ?= ?o{300}/],
  },
];

for (const { name, organizations, names, shown } of CREATED) {
  test(`openssl reads and verifies a created request: ${name}`, () => {
    const terms = { commonName: 'system:node:n1', organizations, names };
    const pem = createCertificateRequest(terms, createSigningKey());
    const text = execFileSync('openssl', ['req', '-noout', '-text', '-verify'], {
      input: pem,
      encoding: 'utf8',
      stdio: ['pipe', 'pipe', 'ignore'],
    });
    for (const pattern of shown) assert.match(text, pattern);
    const parsed = parseCertificateRequest(pem);
    assert.deepEqual([parsed.commonName, parsed.organizations], [terms.commonName, organizations]);
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
