import assert from 'node:assert/strict';
import { mkdtempSync, rmSync, statSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { test } from 'node:test';
import type { Pod } from '../kube/types.ts';
import { prepareVolumes, type VolumeSources } from './volumes.ts';

const unused = () => {
  throw new Error('not used here');
};
const SOURCES: VolumeSources = {
  configMap: unused,
  secret: unused,
  onMachine: unused,
  image: unused,
  claimed: unused,
  token: async () => 'token',
  fields: { pod: {}, podIps: [], hostIps: [], allocatable: {} },
};
type Spec = NonNullable<Pod['spec']>;
const main = (runAsUser?: number) => ({
  name: `main-${runAsUser}`,
  ...(runAsUser === undefined ? {} : { securityContext: { runAsUser } }),
});

// The modes are those of upstream's pkg/volume/projected: the owner's only, and the group's with an fsGroup.
const ROWS: readonly [what: string, spec: Spec, mode: string, user: number, group: number][] = [
  ['is everybody’s without a user', { containers: [main()] }, '644', 0, 0],
  ['is the user’s of the pod', { containers: [main()], securityContext: { runAsUser: 7 } }, '600', 7, 0],
  ['is the user’s of all containers', { containers: [main(7)], initContainers: [main(7)] }, '600', 7, 0],
  ['is everybody’s for two users', { containers: [main(7), main(8)] }, '644', 0, 0],
  ['is everybody’s if one container has no user', { containers: [main(7), main()] }, '644', 0, 0],
  ['is the group’s', { containers: [main()], securityContext: { fsGroup: 9 } }, '640', 0, 9],
  [
    'is the user’s and the group’s',
    { containers: [main()], securityContext: { runAsUser: 7, fsGroup: 9 } },
    '640',
    7,
    9,
  ],
];
for (const [what, spec, mode, user, group] of ROWS) {
  test(`the token of a service account ${what}`, async (t) => {
    const folder = mkdtempSync(join(tmpdir(), 'fairlead-token-'));
    t.after(() => rmSync(folder, { recursive: true, force: true }));
    const volume = { name: 'access', projected: { sources: [{ serviceAccountToken: { path: 'token' } }] } };
    await prepareVolumes({ spec: { ...spec, volumes: [volume] } }, folder, SOURCES);
    const file = statSync(join(folder, 'access/token'));
    assert.deepEqual([(file.mode & 0o777).toString(8), file.uid, file.gid], [mode, user, group]);
  });
}
