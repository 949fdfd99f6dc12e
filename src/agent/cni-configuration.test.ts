import assert from 'node:assert/strict';
import { test } from 'node:test';
import { readConfiguration } from './configuration.ts';

const withCni = (cni: object) => ({ kind: 'AgentConfiguration', nodeName: 'node-1', network: { cni } });
const FOLDERS = { binDir: '/opt/cni/bin', confDir: '/etc/cni/net.d' };
const BANDWIDTH = { type: 'bandwidth', capabilities: { bandwidth: true } };

const READ: readonly [what: string, cni: object, expected: object][] = [
  ['nothing', {}, { ...FOLDERS, chained: [] }],
  ['a folder', { binDir: '/usr/lib/cni' }, { ...FOLDERS, binDir: '/usr/lib/cni', chained: [] }],
  ['plugins with fields of their own', { chained: [BANDWIDTH] }, { ...FOLDERS, chained: [BANDWIDTH] }],
];
for (const [what, cni, expected] of READ)
  test(`${what} is read`, () => {
    assert.deepEqual(readConfiguration(withCni(cni)).network?.cni, expected);
  });

const REFUSED: readonly [what: string, chained: unknown, message: RegExp][] = [
  ['an object instead of a list', BANDWIDTH, /network\.cni\.chained: must be a list/],
  ['a name instead of a configuration', ['bandwidth'], /network\.cni\.chained\[0\]: must be an object/],
  ['a plugin without a type', [BANDWIDTH, {}], /network\.cni\.chained\[1\]: needs a type/],
  ['a path instead of a type', [{ type: '../x' }], /needs a type: the name of the plugin's program/],
  ['the first plugin once more', [{ type: 'fairlead' }], /is the plugin that comes first/],
];
for (const [what, chained, message] of REFUSED)
  test(`${what} is refused`, () => {
    assert.throws(() => readConfiguration(withCni({ chained })), message);
  });
