import assert from 'node:assert/strict';
import { generateKeyPairSync, type KeyObject } from 'node:crypto';
import { test } from 'node:test';
import { createAuthority } from '../lib/pki.ts';
import { readCertificate } from './certificates.ts';

const NOW = new Date();
const authority = createAuthority('an authority', NOW);

/** Returns a Secret with a key and its certificate. */
function secretOf({ privateKey, publicKey }: { privateKey: KeyObject; publicKey: KeyObject }, chain = '') {
  const request = {
    ...{ subject: Buffer.of(0x30, 0), commonName: '', organizations: [], dnsNames: ['a.example'] },
    ...{ alternativeNames: null, addresses: [], otherNames: [] },
    publicKey: publicKey.export({ type: 'spki', format: 'der' }),
  };
  const terms = {
    keyUsage: ['digital signature'],
    extendedKeyUsage: ['server auth'],
    from: NOW,
    seconds: 3600,
  } as const;
  const encode = (text: string) => Buffer.from(text).toString('base64');
  return {
    data: {
      'tls.crt': encode(authority.sign(request, terms) + chain),
      'tls.key': encode(privateKey.export({ type: 'pkcs8', format: 'pem' }).toString()),
    },
  };
}

test('certificates are read, with keys of every kind that OpenSSL accepts', () => {
  for (const pair of [
    generateKeyPairSync('rsa', { modulusLength: 2048 }),
    generateKeyPairSync('ec', { namedCurve: 'P-256' }),
    generateKeyPairSync('ed25519'),
  ])
    assert.equal(readCertificate(secretOf(pair)).problem, null);
});

test('keys that would make the proxy refuse the gateways of all tenants are refused', () => {
  const decode = (secret: ReturnType<typeof secretOf>) =>
    Buffer.from(secret.data['tls.crt'], 'base64').toString();
  const weak = [
    generateKeyPairSync('rsa', { modulusLength: 1024 }),
    generateKeyPairSync('ec', { namedCurve: 'prime192v1' }),
  ].map((pair) => secretOf(pair));
  for (const secret of weak)
    assert.match(readCertificate(secret).problem ?? '', /cannot be read: .*key too small/);
  const good = generateKeyPairSync('ec', { namedCurve: 'P-256' });
  for (const secret of weak)
    assert.match(readCertificate(secretOf(good, decode(secret))).problem ?? '', /key too small/);
});
