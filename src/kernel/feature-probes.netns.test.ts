import assert from 'node:assert/strict';
import { mkdtempSync, readdirSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { test } from 'node:test';
import { hasCode } from '../lib/errors.ts';
import { probeFeatures, probeNamedNetns, probeOverlay } from './feature-probes.ts';
import { libc } from './libc.ts';
import { MNT_DETACH } from './mount-flags.ts';
import { listNetns } from './netns.ts';
import { listLinks, openRouteSocket } from './rtnetlink/links.ts';

const devices = () => {
  using socket = openRouteSocket();
  return listLinks(socket).map(({ name }) => name);
};

test('the probes use the features and leave nothing behind', () => {
  const [names, links] = [listNetns(), devices()];
  probeNamedNetns();
  const failures = new Map(
    probeFeatures(['veth', 'bridge', 'dummy', 'vxlan', 'nf_tables', 'netdev', 'sysctls']),
  );
  // Kernels without IPVS often lack dummy devices, too.
  if (hasCode(failures.get('dummy'), 'EOPNOTSUPP')) failures.delete('dummy');
  assert.deepEqual([...failures], []);
  assert.deepEqual([listNetns(), devices()], [names, links]);
});

test('overlays: a tmpfs holds upper layers, an overlay does not; nothing is left in the folder', () => {
  const folder = mkdtempSync(join(tmpdir(), 'probe-'));
  try {
    assert.equal(libc().mount('tmpfs', folder, 'tmpfs', 0, null), 0);
    probeOverlay(folder);
    assert.deepEqual(readdirSync(folder), []);
    const below = mkdtempSync(join(folder, 'below-'));
    const paths = ['lower', 'upper', 'work', 'merged'].map((name) => mkdtempSync(join(below, name)));
    const [lower, upper, work, merged = ''] = paths;
    const data = `lowerdir=${lower},upperdir=${upper},workdir=${work}`;
    assert.equal(libc().mount('overlay', merged, 'overlay', 0, data), 0);
    assert.throws(
      () => probeOverlay(merged),
      (error) => hasCode(error, 'EINVAL'),
    );
    assert.deepEqual(readdirSync(merged), []);
  } finally {
    // Mounts of the test end with its mount namespace, too.
    for (const mount of readdirSync(folder)) libc().umount2(join(folder, mount), MNT_DETACH);
    libc().umount2(folder, MNT_DETACH);
    rmSync(folder, { recursive: true, force: true });
  }
});
