import assert from 'node:assert/strict';
import { execFileSync } from 'node:child_process';
import { test } from 'node:test';
import { automaticApproval, type CertificateSigningRequest, signingAction } from './certificate-signing.ts';

const NOW = new Date('2030-01-01T00:00:00Z');

function csr(subject: string, names?: string): string {
  const key = ['ec', '-pkeyopt', 'ec_paramgen_curve:P-256'];
  const args = ['req', '-new', '-nodes', '-newkey', ...key, '-keyout', '/dev/null', '-subj', subject];
  const pem = execFileSync('openssl', [...args, ...(names ? ['-addext', `subjectAltName=${names}`] : [])], {
    stdio: ['ignore', 'pipe', 'ignore'],
  });
  return pem.toString('base64');
}

const CLIENT = ['client auth', 'digital signature'];
const SERVER = ['server auth', 'digital signature'];
const NODE = '/O=system:nodes/CN=system:node:n1';

const ROWS: readonly [name: string, signer: string, usages: string[], request: string, answer: RegExp][] = [
  ['a client of the API server', 'kube-apiserver-client', ['client auth'], csr('/CN=jane'), /^signed/],
  [
    'a client without client auth',
    'kube-apiserver-client',
    ['digital signature'],
    csr('/CN=jane'),
    /"client auth" is required/,
  ],
  [
    'a client that requests server auth',
    'kube-apiserver-client',
    ['client auth', 'server auth'],
    csr('/CN=jane'),
    /"server auth" is not allowed/,
  ],
  ['a kubelet', 'kube-apiserver-client-kubelet', CLIENT, csr(NODE), /^signed/],
  [
    'a kubelet of another group',
    'kube-apiserver-client-kubelet',
    CLIENT,
    csr('/O=dev/CN=system:node:n1'),
    /organization/,
  ],
  [
    'a kubelet with another name',
    'kube-apiserver-client-kubelet',
    CLIENT,
    csr('/O=system:nodes/CN=n1'),
    /common name/,
  ],
  ['a kubelet with names', 'kube-apiserver-client-kubelet', CLIENT, csr(NODE, 'DNS:n1'), /not allowed/],
  ["a kubelet's server", 'kubelet-serving', SERVER, csr(NODE, 'DNS:n1,IP:10.0.0.1'), /^signed/],
  ["a kubelet's server without names", 'kubelet-serving', SERVER, csr(NODE), /is required/],
  ['a signer of another controller', '../example.com/own', CLIENT, csr('/CN=jane'), /^nothing/],
];

for (const [name, signer, usages, request, answer] of ROWS) {
  test(`${name}: ${answer.source}`, () => {
    const object: CertificateSigningRequest = {
      metadata: { name: 'x' },
      spec: { request, signerName: `kubernetes.io/${signer}`, usages },
      status: { conditions: [{ type: 'Approved', status: 'True' }] },
    };
    const action = signingAction(object, (parsed) => `signed ${parsed.commonName}`, NOW);
    const text = !action
      ? 'nothing'
      : 'failed' in action
        ? action.failed
        : Buffer.from(action.certificate, 'base64').toString();
    assert.match(text, answer);
  });
}

test('a request that is not approved, or denied, is not signed', () => {
  const spec = {
    request: csr('/CN=jane'),
    signerName: 'kubernetes.io/kube-apiserver-client',
    usages: ['client auth'],
  };
  for (const types of [[], ['Denied'], ['Approved', 'Denied'], ['Approved', 'Failed']]) {
    const conditions = types.map((type) => ({ type, status: 'True' }));
    assert.equal(
      signingAction({ spec, status: { conditions } }, () => 'signed', NOW),
      null,
    );
  }
});

test("a node's own request needs another right than the first one", () => {
  const spec = {
    request: csr(NODE),
    signerName: 'kubernetes.io/kube-apiserver-client-kubelet',
    usages: CLIENT,
  };
  assert.equal(
    automaticApproval({ spec: { ...spec, username: 'system:node:n1' } })?.subresource,
    'selfnodeclient',
  );
  assert.equal(automaticApproval({ spec: { ...spec, username: 'bootstrap' } })?.subresource, 'nodeclient');
  assert.equal(automaticApproval({ spec: { ...spec, usages: ['server auth'] } }), null);
});
