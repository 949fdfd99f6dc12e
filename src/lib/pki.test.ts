import assert from 'node:assert/strict';
import { execFileSync } from 'node:child_process';
import { X509Certificate } from 'node:crypto';
import { test } from 'node:test';
import { parseCertificateRequest } from './certificate-request.ts';
import { createAuthority } from './pki.ts';

test('an authority signs the key, the subject and the names of a request', () => {
  const key = ['ec', '-pkeyopt', 'ec_paramgen_curve:P-256'];
  const pem = execFileSync(
    'openssl',
    [
      'req',
      '-new',
      '-nodes',
      '-newkey',
      ...key,
      '-keyout',
      '/dev/null',
      '-subj',
      '/O=dev/CN=jane',
      '-addext',
      'subjectAltName=DNS:jane.example',
    ],
    { encoding: 'utf8', stdio: ['ignore', 'pipe', 'ignore'] },
  );
  const from = new Date('2030-01-01T00:00:00Z');
  const authority = createAuthority('ca', from);
  const signed = new X509Certificate(
    authority.sign(parseCertificateRequest(pem), {
      keyUsage: ['digital signature', 'key encipherment'],
      extendedKeyUsage: ['client auth'],
      from,
      seconds: 3600,
    }),
  );
  assert.ok(signed.verify(new X509Certificate(authority.cert).publicKey));
  assert.equal(signed.subject, 'O=dev\nCN=jane');
  assert.equal(signed.subjectAltName, 'DNS:jane.example');
  assert.deepEqual(signed.keyUsage, ['1.3.6.1.5.5.7.3.2']);
  assert.equal(new Date(signed.validTo).toISOString(), '2030-01-01T01:00:00.000Z');
});
