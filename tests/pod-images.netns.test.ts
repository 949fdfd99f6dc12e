import assert from 'node:assert/strict';
import { readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { after, before, describe, test } from 'node:test';
import { CORE } from '../src/apiserver/testing/api.ts';
import { createAuthority } from '../src/lib/pki.ts';
import { loadImageArchive } from '../src/runtime/images/image-archive.ts';
import { openImageStore } from '../src/runtime/images/image-store.ts';
import {
  buildImage,
  type LayerEntry,
  ociArchive,
  type TestImage,
} from '../src/runtime/images/testing/image-builder.ts';
import { startRegistry, type TestRegistry } from '../src/runtime/images/testing/registry-server.ts';
import { type PodNode, startPodNode } from './testing/pod-node.ts';
import { programFiles } from './testing/program-files.ts';

// Containers of images other than the built-in ones: the settings of an image apply, and images are pulled
// by the node.

let node: PodNode;
let registry: TestRegistry;

before(async () => {
  node = await startPodNode();
  await node.startAgent();
  registry = await startRegistry();
});
after(async () => {
  await registry?.close();
  await node?.close();
});

const BASE = ['/bin/sh', '/bin/cat', '/bin/sleep', '/usr/bin/id'].flatMap(programFiles);
const USERS: LayerEntry[] = [
  { path: 'etc', type: 'directory' },
  { path: 'etc/passwd', contents: 'root:x:0:0::/:/bin/sh\nweb:x:1500:1501::/srv:/bin/sh\n' },
  { path: 'etc/group', contents: 'root:x:0:\nweb:x:1501:\nmedia:x:1600:other,web\ntape:x:1700:root\n' },
  { path: 'srv', type: 'directory' },
  { path: 'srv/greeting', contents: 'hello from the layer\n' },
];
const image = (config: object, more: LayerEntry[] = []) => buildImage([BASE, [...USERS, ...more]], config);

async function load(name: string, built: TestImage): Promise<void> {
  const file = join(node.stateDir, 'archive.tar');
  writeFileSync(file, ociArchive([{ descriptor: built.manifest, name }], built.blobs));
  await loadImageArchive(openImageStore(join(node.stateDir, 'images')), file, { now: new Date() });
}
function publish(name: string, built: TestImage): string {
  for (const [digest, data] of built.blobs) registry.blobs.set(digest, data);
  registry.tags.set(name, built.manifest.digest);
  return `${registry.host}/${name}`;
}
const once = (containerImage: string, more: object = {}, pod: object = {}) => ({
  restartPolicy: 'Never',
  containers: [{ name: 'main', image: containerImage, imagePullPolicy: 'IfNotPresent', ...more }],
  ...pod,
});
const done = (name: string) => node.until(name, (one) => one.status.phase === 'Succeeded');
const waiting = (name: string, reason: RegExp) =>
  node.until(name, (one) => reason.test(one.status.containerStatuses?.[0].state.waiting?.reason));

describe('settings of the image', () => {
  const script = 'cat greeting; id -u; id -g; id -G; echo "$GREETING $*"';
  before(() =>
    load(
      'app:1',
      image({
        Entrypoint: ['/bin/sh', '-c'],
        Cmd: [script, 'x', 'default'],
        Env: ['GREETING=hi', 'LATER=no'],
        WorkingDir: '/srv',
        User: 'web',
      }),
    ),
  );
  for (const [what, name, fields, pod, out] of [
    [
      'entry point, command, variables, folder and user',
      'all',
      {},
      {},
      'hello from the layer\n1500\n1501\n1501 1600\nhi default\n',
    ],
    ['args replace its command', 'args', { args: ['echo "$0"', 'mine'] }, {}, 'mine\n'],
    ['command replaces both', 'command', { command: ['/bin/cat', 'greeting'] }, {}, 'hello from the layer\n'],
    [
      'the pod’s variables and folder take precedence',
      'env',
      {
        args: ['echo "$GREETING"; cat /srv/greeting'],
        workingDir: '/bin',
        env: [{ name: 'GREETING', value: 'mine' }],
      },
      {},
      'mine\nhello from the layer\n',
    ],
    [
      'runAsUser replaces its user and that user’s groups',
      'user',
      { args: ['id -u; id -g; id -G'], securityContext: { runAsUser: 1234 } },
      {},
      '1234\n0\n0\n',
    ],
    [
      'runAsGroup and fsGroup are added',
      'group',
      { args: ['id -u; id -g; id -G'], securityContext: { runAsGroup: 77 } },
      { securityContext: { fsGroup: 88 } },
      '1500\n77\n77 88 1600\n',
    ],
  ] as const) {
    test(what, async () => {
      await node.createPod(name, once('app:1', fields, pod));
      const { status } = await done(name);
      const sorted = (text: unknown) => String(text).replace('77 1600 88', '77 88 1600');
      assert.equal(sorted(await node.logs(name)), out);
      assert.match(status.containerStatuses[0].imageID, /^docker\.io\/library\/app@sha256:[0-9a-f]{64}$/);
    });
  }
  test('its stop signal, even after a restart of the agent', async () => {
    const trap =
      'trap "echo quit > /out/signal; exit 0" QUIT; trap "echo term > /out/signal" TERM; echo up; while :; do /bin/sleep 0.1; done';
    await load('stops:1', image({ Entrypoint: ['/bin/sh', '-c', trap], StopSignal: '3' }));
    await node.createPod('stops', {
      ...once('stops:1', { volumeMounts: [{ name: 'out', mountPath: '/out' }] }),
      volumes: [{ name: 'out', hostPath: { path: node.stateDir } }],
      terminationGracePeriodSeconds: 30,
    });
    await node.until('stops', async () => (await node.logs('stops')) === 'up\n');
    await node.killAgent();
    await node.startAgent();
    await node.api.request('DELETE', `${CORE}/pods/stops`);
    await node.until('stops', (one) => one === null);
    assert.equal(readFileSync(join(node.stateDir, 'signal'), 'utf8'), 'quit\n');
  });
  test('an unknown user, and root with runAsNonRoot, are errors that name the user', async () => {
    await load('ghost:1', image({ Entrypoint: ['/bin/id'], User: 'ghost' }));
    await load('root:1', image({ Entrypoint: ['/bin/id'] }));
    await node.createPod('ghost', once('ghost:1'));
    await node.createPod('root', once('root:1', {}, { securityContext: { runAsNonRoot: true } }));
    const ghost = await waiting('ghost', /CreateContainerConfigError/);
    assert.match(
      ghost.status.containerStatuses[0].state.waiting.message,
      /"ghost" is not in its \/etc\/passwd/,
    );
    const root = await waiting('root', /CreateContainerConfigError/);
    assert.match(root.status.containerStatuses[0].state.waiting.message, /runAsNonRoot/);
  });
  test('files that a container writes are not shared with others', async () => {
    await load(
      'writes:1',
      image({ Entrypoint: ['/bin/sh', '-c', 'echo mine >> /srv/greeting; cat /srv/greeting'] }),
    );
    for (const name of ['writes-1', 'writes-2']) {
      await node.createPod(name, once('writes:1'));
      await done(name);
      assert.equal(await node.logs(name), 'hello from the layer\nmine\n');
    }
  });
});

describe('images on the node', () => {
  const says = (word: string) => image({ Entrypoint: ['/bin/sh', '-c', `echo ${word}`] });
  const asked = (name: string) =>
    registry.requests.filter((url) => url.startsWith(`/v2/${name}/manifests`)).length;

  test('IfNotPresent: pulled once, with events, and used again', async () => {
    const name = publish('once:1', says('once'));
    for (const pod of ['once-1', 'once-2']) {
      await node.createPod(pod, once(name));
      await done(pod);
      assert.equal(await node.logs(pod), 'once\n');
    }
    assert.equal(asked('once'), 1);
    const { body } = await node.api.request('GET', `${CORE}/events`);
    const reasons = body.items
      .filter((one: { involvedObject: { name: string } }) => one.involvedObject.name === 'once-1')
      .map((one: { reason: string }) => one.reason);
    assert.deepEqual(
      ['Pulling', 'Pulled', 'Started'].filter((reason) => !reasons.includes(reason)),
      [],
    );
  });
  test('Always: the registry is queried each time, and a moved tag is pulled again', async () => {
    const name = publish('moves:1', says('old'));
    await node.createPod('moves-1', once(name, { imagePullPolicy: 'Always' }));
    await done('moves-1');
    publish('moves:1', says('new'));
    await node.createPod('moves-2', once(name, { imagePullPolicy: 'Always' }));
    await done('moves-2');
    assert.deepEqual([await node.logs('moves-1'), await node.logs('moves-2')], ['old\n', 'new\n']);
    assert.equal(asked('moves'), 2);
  });
  test('a loaded image is used with any pull policy', async () => {
    await load(`${registry.host}/loaded:latest`, says('loaded'));
    await node.createPod('loaded', once(`${registry.host}/loaded:latest`, { imagePullPolicy: 'Always' }));
    await done('loaded');
    assert.equal(asked('loaded'), 0);
  });
  test('Never: a missing image is an error until it is loaded', async () => {
    await node.createPod('never', once('never:1', { imagePullPolicy: 'Never' }));
    const { status } = await waiting('never', /ErrImageNeverPull/);
    assert.match(status.containerStatuses[0].state.waiting.message, /not present with pull policy of Never/);
    await load('never:1', says('never'));
    await done('never');
  });
  test('an image that cannot be pulled: ErrImagePull, then ImagePullBackOff, and the pod runs once it exists', async () => {
    const name = `${registry.host}/late:1`;
    await node.createPod('late', once(name));
    const { status } = await waiting('late', /^ErrImagePull$/);
    assert.match(
      status.containerStatuses[0].state.waiting.message,
      /not found in 127\.0\.0\.1:.*fairlead image load/,
    );
    const backed = await waiting('late', /^ImagePullBackOff$/);
    assert.match(backed.status.containerStatuses[0].state.waiting.message, /^Back-off pulling image/);
    assert.equal(backed.status.phase, 'Pending');
    await load(name, says('late'));
    await done('late');
  });
  test('an invalid name: InvalidImageName', async () => {
    await node.createPod('invalid', once('Not A Name'));
    await waiting('invalid', /^InvalidImageName$/);
  });
  test('imagePullSecrets authenticate the node', async () => {
    const guarded = await startRegistry();
    guarded.access = { user: 'me', password: 'secret', token: true };
    const built = says('guarded');
    for (const [digest, data] of built.blobs) guarded.blobs.set(digest, data);
    guarded.tags.set('team/app:1', built.manifest.digest);
    const name = `${guarded.host}/team/app:1`;
    await node.createPod('refused', once(name));
    await waiting('refused', /^ErrImagePull$/);
    const auth = Buffer.from('me:secret').toString('base64');
    await node.api.request('POST', `${CORE}/secrets`, {
      apiVersion: 'v1',
      kind: 'Secret',
      metadata: { name: 'pull' },
      type: 'kubernetes.io/dockerconfigjson',
      stringData: { '.dockerconfigjson': JSON.stringify({ auths: { [guarded.host]: { auth } } }) },
    });
    await node.createPod('allowed', once(name, {}, { imagePullSecrets: [{ name: 'pull' }] }));
    await done('allowed');
    await guarded.close();
  });
  test('over HTTPS, only with a certificate of an authority that the node trusts', async () => {
    const address = '172.30.9.11';
    const { authority } = node.api;
    const tls = {
      ...authority.issue({ commonName: 'registry', names: [address], usage: 'server' }),
      address,
    };
    const secure = await startRegistry(tls);
    const built = says('secure');
    for (const [digest, data] of built.blobs) secure.blobs.set(digest, data);
    secure.tags.set('app:1', built.manifest.digest);
    await node.createPod('secure', once(`${secure.host}/app:1`));
    await done('secure');
    await secure.close();
    const other = createAuthority('somebody else', new Date());
    const untrusted = await startRegistry({
      ...other.issue({ commonName: 'registry', names: [address], usage: 'server' }),
      address,
    });
    await node.createPod('untrusted', once(`${untrusted.host}/app:1`));
    const { status } = await waiting('untrusted', /^ErrImagePull$/);
    assert.match(
      status.containerStatuses[0].state.waiting.message,
      /cannot reach 172\.30\.9\.11:.*certificate/,
    );
    await untrusted.close();
  });
  test('a pod can be deleted while its image is pulled', async () => {
    const name = publish('slow:1', says('slow'));
    // The registry never completes the transfer.
    for (const { digest } of says('slow').layers) registry.breaks.set(digest, Array(50).fill(1));
    await node.createPod('slow', once(name));
    await node.api.request('DELETE', `${CORE}/pods/slow?gracePeriodSeconds=0`);
    await node.until('slow', (one) => one === null);
  });
});
