import assert from 'node:assert/strict';
import { mkdirSync, mkdtempSync, readdirSync, readlinkSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after, beforeEach, describe, test } from 'node:test';
import { containerLogFolder, linkLog, makeNodeLogs, nodePath, removePodLogs } from './node-logs.ts';

const root = mkdtempSync(join(tmpdir(), 'flt-node-logs-'));
after(() => rmSync(root, { recursive: true, force: true }));

describe('the path of a hostPath volume on this machine', () => {
  for (const [path, expected] of [
    ['/var/log', '/state/log'],
    ['/var/log/', '/state/log'],
    ['/var/log/pods', '/state/log/pods'],
    ['/var//log/containers/', '/state/log/containers'],
    ['/var/logs', '/var/logs'],
    ['/var', '/var'],
    ['/var/log/../lib', '/var/log/../lib'],
    ['/data', '/data'],
  ] as const) {
    test(`${path} is ${expected}`, () => assert.equal(nodePath('/state', path), expected));
  }
});

describe('the logs of containers', () => {
  const pod = (name: string, uid: string) => ({ metadata: { namespace: 'shop', name, uid } });
  const [web, other] = [pod('web', 'u1'), pod('web-2', 'u2')];
  const links = () => readdirSync(join(root, 'log', 'containers')).sort();
  beforeEach(() => {
    rmSync(join(root, 'log'), { recursive: true, force: true });
    makeNodeLogs(root);
    for (const one of [web, other]) {
      const folder = containerLogFolder(root, one, 'main');
      mkdirSync(folder, { recursive: true });
      writeFileSync(join(folder, '0.log'), '');
      linkLog(root, one, 'main', `${one.metadata.uid}-0`, join(folder, '0.log'));
    }
  });
  test('have a link by pod, namespace, container and ID', () => {
    assert.match(links().join(' '), /^web-2_shop_main-[0-9a-f]{64}\.log web_shop_main-[0-9a-f]{64}\.log$/);
    assert.equal(
      readlinkSync(join(root, 'log', 'containers', links()[1] ?? '')),
      '/var/log/pods/shop_web_u1/main/0.log',
    );
  });
  test('only the latest run is linked', () => {
    linkLog(root, web, 'main', 'u1-1', join(containerLogFolder(root, web, 'main'), '1.log'));
    assert.equal(links().length, 2);
    assert.match(readlinkSync(join(root, 'log', 'containers', links()[1] ?? '')), /\/1\.log$/);
  });
  test('are removed with their pod', () => {
    removePodLogs(root, 'u1');
    assert.deepEqual(readdirSync(join(root, 'log', 'pods')), ['shop_web-2_u2']);
    assert.match(links().join(' '), /^web-2_\S+$/);
  });
});
