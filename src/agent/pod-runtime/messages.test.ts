import assert from 'node:assert/strict';
import { describe, test } from 'node:test';
import { readQuestion } from './messages.ts';

const UID = '4ff0a8d2-9a3f-4f6f-9d0f-1f8f2d7c7b11';
const ATTACH = { uid: UID, namespace: 'default', name: 'web', hostPorts: [], pid: 71 };
const PORT = { hostIP: '', protocol: 'TCP', hostPort: 80, containerPort: 8080 };

describe('questions of the pod runtime that the agent answers', () => {
  const rows: [string, unknown][] = [
    ['attach', ATTACH],
    ['attach', { ...ATTACH, hostPorts: [PORT, { ...PORT, hostIP: 'fd00::1', protocol: 'UDP' }] }],
    ['detach', { uid: UID }],
    ['collect', { keep: [] }],
    ['collect', { keep: [UID, 'static-pod'] }],
    ['traffic', { addresses: ['10.244.0.2', 'fd00::2'] }],
    ['refresh', null],
  ];
  for (const [name, body] of rows)
    test(`${name} ${JSON.stringify(body)}`, () => assert.deepEqual(readQuestion(name, body), { name, body }));

  test('fields that it does not know are dropped', () => {
    assert.deepEqual(readQuestion('detach', { uid: UID, among: 'cni/' }).body, { uid: UID });
  });
});

describe('questions that the agent refuses', () => {
  const rows: [string, string, unknown][] = [
    ['an unknown one', 'reboot', null],
    ['a name of the prototype', '__proto__', null],
    ['no body', 'attach', null],
    ['a text', 'attach', 'web'],
    ['no uid', 'detach', {}],
    ['the uid of an attachment by a container runtime', 'detach', { uid: 'cni/abc/eth0' }],
    ['a path', 'detach', { uid: '../../etc' }],
    ['an empty uid', 'detach', { uid: '' }],
    ['a long uid', 'detach', { uid: 'x'.repeat(254) }],
    ['a name with a line break', 'attach', { ...ATTACH, name: 'a\nb' }],
    ['a namespace with a slash', 'attach', { ...ATTACH, namespace: 'a/b' }],
    ['process 0', 'attach', { ...ATTACH, pid: 0 }],
    ['a process number as text', 'attach', { ...ATTACH, pid: '1' }],
    ['a process number beyond the kernel', 'attach', { ...ATTACH, pid: 2 ** 31 }],
    ['host ports that are not a list', 'attach', { ...ATTACH, hostPorts: { length: 0 } }],
    ['too many host ports', 'attach', { ...ATTACH, hostPorts: Array(1025).fill(PORT) }],
    ['host port 0', 'attach', { ...ATTACH, hostPorts: [{ ...PORT, hostPort: 0 }] }],
    ['an unknown protocol', 'attach', { ...ATTACH, hostPorts: [{ ...PORT, protocol: 'ICMP' }] }],
    ['a host port without an address', 'attach', { ...ATTACH, hostPorts: [{ ...PORT, hostIP: 'eth0' }] }],
    ['an empty host port', 'attach', { ...ATTACH, hostPorts: [null] }],
    ['too many pods', 'collect', { keep: Array(4097).fill(UID) }],
    ['pods that are not texts', 'collect', { keep: [1] }],
    ['names instead of addresses', 'traffic', { addresses: ['hello'] }],
    ['too many addresses', 'traffic', { addresses: Array(17).fill('10.0.0.1') }],
  ];
  for (const [what, name, body] of rows)
    test(`${name}: ${what}`, () => assert.throws(() => readQuestion(name, body), { code: 'bad-request' }));
});
