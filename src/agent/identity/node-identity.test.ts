import assert from 'node:assert/strict';
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after, test } from 'node:test';
import { kubeconfigText } from '../../kube/kubeconfig-text.ts';
import { manualClock } from '../../lib/clock.ts';
import { silentLogger } from '../../lib/log.ts';
import { createAuthority } from '../../lib/pki.ts';
import { joinCluster } from './node-identity.ts';
import { servingTerms } from './serving-certificate.ts';

const START = Date.parse('2030-01-01T00:00:00Z');
const folder = mkdtempSync(join(tmpdir(), 'flt-identity-'));
after(() => rmSync(folder, { recursive: true, force: true }));
const authority = createAuthority('ca', new Date(START));
const identity = (commonName: string) =>
  authority.issue({ commonName, organizations: ['system:nodes'], usage: 'client' });

function kubeconfig(name: string, cert: string, key: string): string {
  const file = join(folder, name);
  writeFileSync(file, kubeconfigText({ name, server: 'https://127.0.0.1:1', ca: authority.cert, cert, key }));
  return file;
}

const own = identity('system:node:n1');
const token = join(folder, 'token.conf');
writeFileSync(
  token,
  `{clusters: [{name: a, cluster: {server: "https://127.0.0.1:1"}}], users: [{name: a, user: {token: t}}], contexts: [{name: a, context: {cluster: a, user: a}}], current-context: a}`,
);

const ROWS: readonly {
  name: string;
  file: string;
  /** Years after the certificate was issued. */
  years?: number;
  bootstrap?: string;
  refused: RegExp | null;
}[] = [
  { name: 'a certificate of this node is used', file: kubeconfig('own', own.cert, own.key), refused: null },
  {
    name: 'as it is without the bootstrap kubeconfig',
    file: join(folder, 'own'),
    bootstrap: join(folder, 'absent'),
    refused: null,
  },
  { name: 'a token of somebody is left to the API server', file: token, refused: null },
  {
    name: 'an expired certificate',
    file: join(folder, 'own'),
    years: 11,
    refused: /expired 2040-01-01T00:00:00.000Z, and no bootstrapKubeconfig is configured/,
  },
  {
    name: 'a certificate of another node',
    file: ((other) => kubeconfig('other', other.cert, other.key))(identity('system:node:n2')),
    refused: /is of system:node:n2, not of system:node:n1/,
  },
  {
    name: 'a certificate with the key of another one',
    file: kubeconfig('mixed', own.cert, identity('system:node:n1').key),
    refused: /has no certificate with its key/,
  },
  {
    name: 'neither file is there',
    file: join(folder, 'absent'),
    bootstrap: join(folder, 'gone'),
    refused: /absent does not exist, and .*gone does not exist/,
  },
];

for (const { name, file, years = 0, bootstrap, refused } of ROWS) {
  test(`start of a node: ${name}`, async () => {
    const clock = manualClock(START + years * 365.25 * 86_400_000);
    const joining = joinCluster({
      ...{ nodeName: 'n1', kubeconfig: file, bootstrapKubeconfig: bootstrap ?? null, stateDir: folder },
      connect() {
        throw new Error('no request is needed');
      },
      ...{ userAgent: 'test', clock, random: () => 0, logger: silentLogger },
      signal: new AbortController().signal,
    });
    if (refused) await assert.rejects(joining, refused);
    else await joining;
  });
}

const NODES: readonly { name: string; addresses: [string, string][]; names: string[] | null }[] = [
  { name: 'no addresses yet', addresses: [], names: null },
  {
    name: 'names and addresses, in one order and form, each once',
    addresses: [
      ['InternalIP', 'fd00:0::1'],
      ['InternalIP', '10.0.0.1'],
      ['Hostname', 'n1'],
      ['InternalDNS', 'n1'],
      ['ExternalDNS', 'n1.example'],
      ['ExternalIP', '192.0.2.1'],
    ],
    names: ['10.0.0.1', '192.0.2.1', 'fd00::1', 'n1', 'n1.example'],
  },
];

for (const { name, addresses, names } of NODES) {
  test(`the serving certificate of a Node: ${name}`, () => {
    const status = { addresses: addresses.map(([type, address]) => ({ type, address })) };
    assert.deepEqual(servingTerms('n1', { metadata: { name: 'n1' }, status })?.names ?? null, names);
  });
}
