import assert from 'node:assert/strict';
import { describe, test } from 'node:test';
import { ociConfig } from './oci-config.ts';

const BOUNDING = ['CAP_CHOWN', 'CAP_MKNOD', 'CAP_SYS_ADMIN'];

function capabilitiesOf(securityContext: object, confinesDevices: boolean): readonly string[] {
  const container = { name: 'main', securityContext };
  const config = ociConfig({
    pod: { apiVersion: 'v1', kind: 'Pod', spec: { containers: [container] } },
    container,
    ...{ args: ['true'], env: new Map(), cwd: '/', rootfs: '/none', pausePid: 1, mounts: [], tty: false },
    user: { uid: 0, gid: 0, groups: [] },
    cgroupsPath: null,
    cgroupControllers: new Set(),
    ids: { isPartial: false, groups: [] },
    boundingSet: BOUNDING,
    confinesDevices,
    seccompFolder: '/none',
  }) as { process: { capabilities: { bounding: string[] } } };
  return config.process.capabilities.bounding;
}

describe('a container makes device nodes', () => {
  test('where its control group keeps it from opening them', () =>
    assert.deepEqual(capabilitiesOf({}, true), ['CAP_CHOWN', 'CAP_MKNOD']));
  test('not elsewhere, also with all capabilities', () => {
    assert.deepEqual(capabilitiesOf({}, false), ['CAP_CHOWN']);
    assert.deepEqual(capabilitiesOf({ capabilities: { add: ['ALL'] } }, false), [
      'CAP_CHOWN',
      'CAP_SYS_ADMIN',
    ]);
  });
  test('everywhere if it is privileged', () =>
    assert.deepEqual(capabilitiesOf({ privileged: true }, false), BOUNDING));
  test('and is refused if it asks for that by name where it may not', () =>
    assert.throws(
      () => capabilitiesOf({ capabilities: { add: ['MKNOD'] } }, false),
      /capabilities\.add: MKNOD/,
    ));
});
