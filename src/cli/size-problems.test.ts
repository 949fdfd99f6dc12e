import assert from 'node:assert/strict';
import { describe, test } from 'node:test';
import type { LinkSize } from '../agent/link-sizes.ts';
import { sizeProblems } from './size-problems.ts';

const uplink = (mtu: number): LinkSize => ({ role: 'uplink', device: 'eth0', mtu });
const tunnel = (mtu: number): LinkSize => ({ role: 'tunnel', device: 'fl.vxlan', mtu });
const pod = (mtu: number): LinkSize => ({ role: 'pod', device: 'flp1', mtu });
const wire = (mtu: number): LinkSize => ({ role: 'wire', device: 'n2', mtu });

describe('MTUs of the nodes of a cluster', () => {
  const rows: readonly (readonly [name: string, n1: LinkSize[], n2: LinkSize[], says: RegExp | null])[] = [
    ['are equal', [uplink(1500), pod(1500)], [uplink(1500), pod(1500)], null],
    ['with room for a tunnel', [uplink(1500), tunnel(1450), pod(1450)], [uplink(1500), pod(1450)], null],
    ['a smaller uplink', [uplink(1500)], [uplink(1400)], /^n2: its uplink eth0 .* 1400, .* 1500.* mtu 1500/],
    ['a larger uplink, of two the smaller is named', [uplink(9000)], [uplink(1500)], /^n2: its uplink eth0/],
    ['a smaller port between nodes', [uplink(1500)], [uplink(1500), wire(1400)], /port n2 .* 1400/],
    ['a tunnel that does not fit', [uplink(1500)], [uplink(1500), tunnel(1500)], /only 1450 bytes fit/],
    ['a pod that does not fit', [uplink(1500)], [uplink(1500), pod(9000)], /\(9000\) than fits .* \(1500\)/],
    ['nothing is known of them', [], [], null],
  ];
  for (const [name, n1, n2, says] of rows) {
    test(name, () => {
      const found = sizeProblems([
        { node: 'n1', links: n1 },
        { node: 'n2', links: n2 },
      ]);
      if (says === null) return assert.deepEqual(found, []);
      assert.equal(found.length, 1, JSON.stringify(found));
      assert.match(found[0]?.message ?? '', says);
      assert.equal(found[0]?.object, 'Node n2');
    });
  }
});
