import assert from 'node:assert/strict';
import { test } from 'node:test';
import type { NetworkPolicy, Pod } from '../kube/types.ts';
import { policyHints } from './policy-hints.ts';
import { pod } from './testing/objects.ts';

const web = (name: string, extra: Partial<NonNullable<Pod['spec']>> = {}): Pod =>
  pod(name, {
    labels: { app: 'web' },
    spec: { containers: [{ name: 'main', ports: [{ name: 'http', containerPort: 80 }] }], ...extra },
  });
const policy = (spec: NetworkPolicy['spec']): NetworkPolicy => ({
  metadata: { name: 'p', namespace: 'default' },
  ...(spec ? { spec } : {}),
});
const WEB = { podSelector: { matchLabels: { app: 'web' } } };

const rows: readonly [what: string, spec: NetworkPolicy['spec'], pods: Pod[], expected: RegExp[]][] = [
  ['a policy that selects a pod', WEB, [web('a')], []],
  ['a policy that selects no pod', WEB, [], [/selects no pod/]],
  ['a policy whose pods are in another namespace', WEB, [inNamespace(web('a'), 'other')], [/selects no pod/]],
  ['a policy whose pods have ended', WEB, [pod('a', { phase: 'Succeeded' })], [/selects no pod/]],
  [
    'a policy for pods of the node’s network',
    WEB,
    [web('a', { hostNetwork: true })],
    [/only pods with hostNetwork \(1\)/],
  ],
  [
    'an ingress port with a name of the pods',
    { ...WEB, ingress: [{ ports: [{ port: 'http' }] }] },
    [web('a')],
    [],
  ],
  [
    'an ingress port that no selected pod has',
    { ...WEB, ingress: [{ ports: [{ port: 80 }, { port: 'https' }] }] },
    [web('a')],
    [/spec\.ingress\[0\]\.ports\[1\]: none of the selected pods has a TCP port named https/],
  ],
  [
    'an ingress port of another protocol',
    { ...WEB, ingress: [{ ports: [{ port: 'http', protocol: 'UDP' }] }] },
    [web('a')],
    [/has a UDP port named http/],
  ],
  [
    'an egress port that a pod has',
    { ...WEB, egress: [{ ports: [{ port: 'http' }] }] },
    [pod('b'), inNamespace(web('a'), 'other'), web('c', { containers: [{ name: 'main' }] })],
    [],
  ],
  [
    'an egress port that no pod has',
    { ...WEB, egress: [{}, { ports: [{ port: 'https' }] }] },
    [web('a')],
    [/spec\.egress\[1\]\.ports\[0\]: no pod has a TCP port named https/],
  ],
];
for (const [what, spec, pods, expected] of rows) {
  test(`${what}: ${expected.length === 0 ? 'no hint' : 'a hint'}`, () => {
    const messages = policyHints(policy(spec), pods).map(({ message }) => message);
    assert.equal(messages.length, expected.length, messages.join());
    for (const [i, pattern] of expected.entries()) assert.match(messages[i] ?? '', pattern);
  });
}

function inNamespace(one: Pod, namespace: string): Pod {
  return { ...one, metadata: { ...one.metadata, namespace } };
}
