import assert from 'node:assert/strict';
import { test } from 'node:test';
import { readConfiguration } from './configuration.ts';

const own = (proxy: object) => ({ kind: 'AgentConfiguration', nodeName: 'node-1', proxy });
const uplink = (document: object) => readConfiguration(document).proxy?.ebpfUplink;

const READ: [what: string, document: object, expected: string | null][] = [
  ['no section ebpf', own({ mode: 'ebpf' }), null],
  ['an empty section', own({ mode: 'ebpf', ebpf: {} }), null],
  ['a device', own({ mode: 'ebpf', ebpf: { uplink: 'eth0.100' } }), 'eth0.100'],
  ['the device with the node’s address', own({ mode: 'ebpf', ebpf: { uplink: 'auto' } }), 'auto'],
  ['kube-proxy’s configuration, which has no such thing', { kind: 'KubeProxyConfiguration' }, null],
];

for (const [what, document, expected] of READ) {
  test(`the uplink of the eBPF mode: ${what}`, () => {
    assert.equal(uplink(document), expected);
  });
}

const REFUSED: [ebpf: object, message: RegExp][] = [
  [
    { uplink: 'eth 0' },
    /proxy\.ebpf\.uplink: "eth 0" cannot be a network device: give its name, such as eth0, or auto/,
  ],
  [{ uplink: 'a-name-with-16-ch' }, /proxy\.ebpf\.uplink: .* cannot be a network device/],
  [{ uplink: true }, /proxy\.ebpf\.uplink: must be text, not true/],
  [{ uplinks: 'eth0' }, /proxy\.ebpf\.uplinks: unknown field/],
];

for (const [ebpf, message] of REFUSED) {
  test(`refused: ${message.source}`, () => {
    assert.throws(() => readConfiguration(own({ ebpf })), message);
  });
}
