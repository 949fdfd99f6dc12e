import assert from 'node:assert/strict';
import { test } from 'node:test';
import { API_VERSION, readConfiguration } from './configuration.ts';

const read = (dns: object) =>
  readConfiguration({ apiVersion: API_VERSION, kind: 'AgentConfiguration', nodeName: 'node-1', dns }).dns;

test('name servers of domains are read, with addresses in every notation', () => {
  const stubDomains = {
    'corp.example': ['10.1.0.53', '10.2.0.53:5353'],
    'lab.example.': ['[fd00::53]:53', 'fd00::54'],
  };
  assert.deepEqual(read({ stubDomains })?.stubDomains, stubDomains);
});

test('without any, all names outside use the same name servers', () =>
  assert.deepEqual(read({})?.stubDomains, {}));

test('the kernel’s limits are lifted only if configured', () => {
  assert.equal(read({})?.refuseAtOnce, false);
  assert.equal(read({ refuseAtOnce: true })?.refuseAtOnce, true);
});

test('the Service of the name servers that answer in place of the agent is optional', () => {
  assert.equal(read({})?.fallbackService, null);
  assert.equal(read({ fallbackService: 'kube-system/dns' })?.fallbackService, 'kube-system/dns');
});

const refused: { name: string; dns: object; says: RegExp }[] = [
  {
    name: 'a name server without address',
    dns: { stubDomains: { 'corp.example': ['ns1'] } },
    says: /dns\.stubDomains\.corp\.example\[0\]: "ns1"/,
  },
  {
    name: 'not a list',
    dns: { stubDomains: { 'corp.example': '10.1.0.53' } },
    says: /dns\.stubDomains\.corp\.example: must be a list/,
  },
  {
    name: 'an invalid domain',
    dns: { stubDomains: { 'corp..example': [] } },
    says: /corp\.\.example: is not a domain name/,
  },
  {
    name: 'a Service without its namespace',
    dns: { fallbackService: 'dns' },
    says: /dns\.fallbackService: "dns" is not NAMESPACE\/NAME/,
  },
  { name: 'no object', dns: { stubDomains: ['corp.example'] }, says: /dns\.stubDomains: must be an object/ },
  {
    name: 'an upstream without address',
    dns: { upstreams: ['10.1.0.53:0'] },
    says: /dns\.upstreams\[0\]: "10\.1\.0\.53:0"/,
  },
  {
    name: 'an invalid flag',
    dns: { refuseAtOnce: 'yes' },
    says: /dns\.refuseAtOnce: /,
  },
  {
    name: 'a TTL that is too long',
    dns: { ttlSeconds: 3601 },
    says: /dns\.ttlSeconds: must be an integer from 0 to 3600/,
  },
];
for (const { name, dns, says } of refused) {
  test(`refused by name: ${name}`, () => assert.throws(() => read(dns), says));
}
