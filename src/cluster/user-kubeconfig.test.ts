import assert from 'node:assert/strict';
import {
  chmodSync,
  chownSync,
  mkdirSync,
  mkdtempSync,
  readFileSync,
  rmSync,
  statSync,
  writeFileSync,
} from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterEach, beforeEach, test } from 'node:test';
import { readKubeconfig } from '../kube/kubeconfig.ts';
import { kubeconfigText } from '../kube/kubeconfig-text.ts';
import { addContext, removeContext, sudoKubeconfig, type UserKubeconfig } from './user-kubeconfig.ts';

const isRoot = process.getuid?.() === 0;
const PASSWD = 'root:x:0:0:root:/root:/bin/bash\njane:x:1000:1000:Jane:/home/jane:/bin/zsh\n';
const PEM = { ca: 'CA', cert: 'CERT', key: 'KEY' };
const kubeconfig = (name: string, port: number) =>
  kubeconfigText({ name, server: `https://127.0.0.1:${port}`, ...PEM });

let home = '';
let user: UserKubeconfig;
beforeEach(() => {
  home = mkdtempSync(join(tmpdir(), 'flt-home-'));
  const id = isRoot ? 65534 : (process.getuid?.() ?? 0);
  if (isRoot) chownSync(home, id, id);
  chmodSync(home, 0o700);
  user = { uid: id, gid: isRoot ? id : (process.getgid?.() ?? 0), file: join(home, '.kube', 'config') };
});
afterEach(() => rmSync(home, { recursive: true, force: true }));

test('the user is the one who ran sudo', () => {
  assert.deepEqual(sudoKubeconfig({ SUDO_UID: '1000', SUDO_GID: '1000' }, PASSWD), {
    uid: 1000,
    gid: 1000,
    file: '/home/jane/.kube/config',
  });
  assert.equal(sudoKubeconfig({}, PASSWD), null);
  assert.equal(sudoKubeconfig({ SUDO_UID: '0', SUDO_GID: '0' }, PASSWD), null);
  assert.equal(sudoKubeconfig({ SUDO_UID: '4711', SUDO_GID: '1' }, PASSWD), null);
});

test('the context is added as the current one, in a file of the user', () => {
  addContext(user, kubeconfig('fairlead-a', 6443));
  assert.equal(readKubeconfig(user.file).server, 'https://127.0.0.1:6443');
  const { uid, mode } = statSync(user.file);
  assert.deepEqual([uid, mode & 0o777], [user.uid, 0o600]);
  addContext(user, kubeconfig('fairlead-b', 6444));
  addContext(user, kubeconfig('fairlead-a', 6445));
  assert.equal(readKubeconfig(user.file, 'fairlead-b').server, 'https://127.0.0.1:6444');
  assert.equal(readKubeconfig(user.file).server, 'https://127.0.0.1:6445');
});

test('other contexts and comments are preserved, and removal leaves no trace', () => {
  mkdirSync(join(home, '.kube'));
  const text = `# mine\n${kubeconfig('work', 1)}`;
  writeFileSync(user.file, text);
  if (isRoot) for (const path of [join(home, '.kube'), user.file]) chownSync(path, user.uid, user.gid);
  addContext(user, kubeconfig('fairlead-a', 6443));
  assert.match(readFileSync(user.file, 'utf8'), /^# mine\n/);
  assert.equal(readKubeconfig(user.file, 'work').server, 'https://127.0.0.1:1');
  removeContext(user, 'fairlead-a');
  const left = readFileSync(user.file, 'utf8');
  assert.doesNotMatch(left, /fairlead-a/);
  assert.equal(readKubeconfig(user.file, 'work').server, 'https://127.0.0.1:1');
});

test('a file that is not a kubeconfig is not changed', () => {
  mkdirSync(join(home, '.kube'));
  writeFileSync(user.file, '- a\n- list\n');
  if (isRoot) for (const path of [join(home, '.kube'), user.file]) chownSync(path, user.uid, user.gid);
  assert.throws(() => addContext(user, kubeconfig('fairlead-a', 1)), /is not a kubeconfig/);
  assert.equal(readFileSync(user.file, 'utf8'), '- a\n- list\n');
});

test('a link into a folder that the user may not write is refused', {
  skip: !isRoot && 'needs root',
}, () => {
  const secret = mkdtempSync(join(tmpdir(), 'flt-root-'));
  try {
    chmodSync(secret, 0o755);
    const linked = { ...user, file: join(secret, 'config') };
    assert.throws(() => addContext(linked, kubeconfig('fairlead-a', 1)), /EACCES/);
  } finally {
    rmSync(secret, { recursive: true });
  }
});
