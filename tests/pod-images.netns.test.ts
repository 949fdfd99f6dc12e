import assert from 'node:assert/strict';
import { execFile } from 'node:child_process';
import { randomBytes } from 'node:crypto';
import { once as event } from 'node:events';
import {
  closeSync,
  mkdtempSync,
  openSync,
  readdirSync,
  readFileSync,
  readlinkSync,
  rmSync,
  writeFileSync,
} from 'node:fs';
import { createServer, type Server } from 'node:http';
import { type AddressInfo, Socket } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after, before, describe, test } from 'node:test';
import { promisify } from 'node:util';
import { CORE } from '../src/apiserver/testing/api.ts';
import type { Supervision } from '../src/cluster/supervision.ts';
import { detachProgram, openProgram, programsAt } from '../src/kernel/bpf/program.ts';
import { controlGroupRoot } from '../src/kernel/control-group.ts';
import { createNetns, listenTcpIn, openTcpIn, removeNetns } from '../src/kernel/netns.ts';
import { signalProcess } from '../src/kernel/process-identity.ts';
import { hasCode } from '../src/lib/errors.ts';
import { createAuthority } from '../src/lib/pki.ts';
import { eventually } from '../src/lib/testing/eventually.ts';
import { loadImageArchive } from '../src/runtime/images/image-archive.ts';
import { openImageStore } from '../src/runtime/images/image-store.ts';
import {
  buildImage,
  type LayerEntry,
  ociArchive,
  type TestImage,
} from '../src/runtime/images/testing/image-builder.ts';
import { startRegistry, type TestRegistry } from '../src/runtime/images/testing/registry-server.ts';
import { HELLO, LAUNCHER, reserveCluster } from './testing/cluster.ts';
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
  test('devices of the machine cannot be opened: neither one of the image nor one that root makes', async () => {
    // A number that no driver has: ENXIO if the device may be opened.
    const device = { major: 240, minor: 7 };
    const [major, minor] = [device.major, device.minor].map(String);
    await load(
      'devices:1',
      image({ User: 'web' }, [
        { path: 'srv/disk', type: 'character', mode: 0o666, device },
        ...programFiles('/usr/bin/mknod'),
      ]),
    );
    const opened = (command: string) => ({ command: ['/bin/sh', '-c', `${command} 2>&1; exec < /dev/null`] });
    await node.createPod('image-device', once('devices:1', opened('cat /srv/disk')));
    await node.createPod(
      'made-device',
      once('devices:1', {
        ...opened(
          `mknod /srv/null c 1 3; cat /srv/null /dev/null && echo allowed; mknod /srv/mine c ${major} ${minor}; cat /srv/mine`,
        ),
        securityContext: { runAsUser: 0 },
      }),
    );
    for (const name of ['image-device', 'made-device']) await done(name);
    assert.match(String(await node.logs('image-device')), /^cat: .*Operation not permitted\n$/);
    assert.match(String(await node.logs('made-device')), /^allowed\ncat: .*Operation not permitted\n$/);
  });

  test('containers of an earlier version are kept from devices when they are adopted, once', async () => {
    await node.createPod('earlier', once('devices:1', { command: ['/bin/sleep', 'infinity'] }));
    const { metadata } = await node.untilRunning('earlier');
    const pod = join(controlGroupRoot() ?? '', node.cgroupParent, `pod${metadata.uid}`);
    const [group = ''] = readdirSync(pod, { withFileTypes: true })
      .filter((one) => one.isDirectory())
      .map(({ name }) => join(pod, name));
    const fd = openSync(group, 'r');
    try {
      for (const id of programsAt(fd, 'device', false)) {
        const program = openProgram(id) ?? assert.fail();
        detachProgram(program, fd, 'device');
        closeSync(program);
      }
      const opens = async () => (await node.kubectl('exec', 'earlier', '--', '/bin/cat', '/srv/disk')).stderr;
      assert.match(await opens(), /No such device or address/, 'as in earlier versions');
      for (let start = 0; start < 2; start++) {
        await node.killAgent();
        await node.startAgent();
        assert.match(await opens(), /Operation not permitted/);
        assert.equal(programsAt(fd, 'device', false).length, 1);
      }
    } finally {
      closeSync(fd);
    }
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

describe('the nodes of a local cluster pull through the machine', () => {
  const machine = `flt-${randomBytes(3).toString('hex')}-machine`;
  const ADDRESS = '192.0.2.1';
  const { name, stateRoot } = reserveCluster();
  const folder = mkdtempSync(join(tmpdir(), 'flt-pull-'));
  const authority = createAuthority('a company', new Date());
  const env = {
    ...process.env,
    FAIRLEAD_STATE: stateRoot,
    KUBECONFIG: join(stateRoot, name, 'kubeconfig'),
    NODE_EXTRA_CA_CERTS: join(folder, 'ca.pem'),
  };
  let local: TestRegistry;
  let company: TestRegistry;
  let proxy: Server;
  /** What the proxy was asked for. */
  const tunnels: string[] = [];
  const run = promisify(execFile);
  const here = async (words: readonly string[], more: object = {}) =>
    (await run('nsenter', [`--net=/run/netns/${machine}`, ...words], { env: { ...env, ...more } })).stdout;
  const up = (...options: string[]) =>
    upBehind(`http://127.0.0.1:${(proxy.address() as AddressInfo).port}`, ...options);
  const upBehind = (url: string, ...options: string[]) =>
    here([LAUNCHER, 'up', '--detach', '--name', name, '--no-kubeconfig', ...options], { HTTPS_PROXY: url });
  const kubectl = (...words: string[]) => here(['kubectl', ...words]);
  const says = (word: string) => image({ Entrypoint: ['/bin/sh', '-c', `echo ${word}`] });
  const put = (where: TestRegistry, tag: string, built: TestImage) => {
    for (const [digest, data] of built.blobs) where.blobs.set(digest, data);
    where.tags.set(tag, built.manifest.digest);
  };
  /** Runs a pod of an image once, and returns what it wrote. */
  const logOf = async (pod: string, wanted: string): Promise<string> => {
    await kubectl('run', pod, `--image=${wanted}`, '--restart=Never');
    await kubectl('wait', `pod/${pod}`, '--for=jsonpath={.status.phase}=Succeeded', '--timeout=60s');
    return await kubectl('logs', pod);
  };
  /** The response of a server as a place of the cluster gets it; null: it is not reached. */
  const reached = (place: string, url: string) =>
    here([
      LAUNCHER,
      'exec',
      '--name',
      name,
      place,
      '--',
      'fairlead',
      'request',
      url,
      '--timeout',
      '1000',
    ]).catch(() => null);

  before(async () => {
    writeFileSync(env.NODE_EXTRA_CA_CERTS, authority.cert);
    createNetns(machine);
    await here(['ip', 'link', 'set', 'lo', 'up']);
    await here(['ip', 'link', 'add', 'up0', 'type', 'veth', 'peer', 'name', 'up1']);
    await here(['ip', 'address', 'add', `${ADDRESS}/24`, 'dev', 'up0']);
    for (const device of ['up0', 'up1']) await here(['ip', 'link', 'set', device, 'up']);
    local = await startRegistry(undefined, machine);
    const names = [ADDRESS, 'registry.example'];
    company = await startRegistry(
      { ...authority.issue({ commonName: 'registry', names, usage: 'server' }), address: ADDRESS },
      machine,
    );
    const [, port] = company.host.split(':');
    proxy = createServer().on('connect', ({ url = '' }, socket) => {
      tunnels.push(url);
      const upstream = new Socket({ fd: openTcpIn(machine, 'ipv4') }).connect(Number(port), ADDRESS, () => {
        socket.write('HTTP/1.1 200 Connection established\r\n\r\n');
        upstream.pipe(socket).pipe(upstream);
      });
      upstream.on('error', () => socket.destroy());
      socket.on('error', () => upstream.destroy());
    });
    proxy.listen({ fd: listenTcpIn(machine, '127.0.0.1', 0) });
    await event(proxy, 'listening');
    await up('--nodes', '1', '--registry-mirror', `docker.io=http://${local.host}`, '-f', HELLO);
  });
  after(async () => {
    try {
      await here([LAUNCHER, 'down', '--name', name]);
    } finally {
      await local?.close();
      await company?.close();
      proxy?.close();
      removeNetns(machine);
      for (const path of [stateRoot, folder]) rmSync(path, { recursive: true, force: true });
    }
  });

  test('an image without a registry, from a mirror', async () => {
    put(local, 'library/nginx:latest', says('welcome'));
    assert.equal(await logOf('nginx', 'nginx'), 'welcome\n');
    assert.equal(local.requests[0], '/v2/library/nginx/manifests/latest?ns=docker.io');
  });
  test('a registry on the machine’s loopback, also after the processes were killed, and after a stop', async () => {
    put(local, 'app:1', says('one'));
    assert.equal(await logOf('one', `${local.host}/app:1`), 'one\n');
    const record = readFileSync(join(stateRoot, name, 'processes.json'), 'utf8');
    const { supervisor, processes } = JSON.parse(record) as Supervision;
    for (const one of [supervisor, processes['node-1']?.identity]) if (one) signalProcess(one, 'SIGKILL');
    await up();
    put(local, 'app:2', says('two'));
    assert.equal(await logOf('two', `${local.host}/app:2`), 'two\n');
    await here([LAUNCHER, 'stop', '--name', name]);
    await up();
    put(local, 'app:3', says('three'));
    assert.equal(await logOf('three', `${local.host}/app:3`), 'three\n');
  });
  test('a registry of the machine’s network, whose authority is in NODE_EXTRA_CA_CERTS', async () => {
    put(company, 'team/app:1', says('company'));
    await up();
    assert.equal(await logOf('company', `${company.host}/team/app:1`), 'company\n');
    assert.ok(tunnels.includes(company.host));
  });
  test('through the proxy of the environment of up, which finds the registry’s name', async () => {
    put(company, 'team/app:2', says('proxied'));
    assert.equal(await logOf('proxied', 'registry.example/team/app:2'), 'proxied\n');
    assert.ok(tunnels.includes('registry.example:443'));
  });
  test('pods and nodes do not reach the machine', async () => {
    await kubectl(
      'run',
      'on-node',
      '--image=fairlead',
      '--overrides={"spec":{"hostNetwork":true}}',
      '--',
      'sleep',
      '1000',
    );
    await kubectl('wait', 'pod/on-node', '--for=condition=Ready', '--timeout=60s');
    local.requests.length = 0;
    for (const place of ['client', 'on-node', 'node/node-1'])
      for (const url of [`http://${local.host}/v2/`, `http://${ADDRESS}:${company.host.split(':')[1]}/`])
        assert.equal(await reached(place, url), null, `${place} ${url}`);
    assert.deepEqual(local.requests, []);
    assert.match((await reached('client', 'http://hello')) ?? '', /hello/);
  });
  test('only agents and pod runtimes have a descriptor of the machine’s network', async () => {
    const inode = (await here(['readlink', '/proc/self/ns/net'])).trim();
    const holders = readdirSync('/proc')
      .filter((entry) => /^[0-9]+$/.test(entry))
      .filter((pid) => descriptorsOf(pid).includes(inode))
      .map((pid) => readFileSync(`/proc/${pid}/cmdline`, 'utf8'));
    assert.ok(holders.length >= 2);
    assert.deepEqual(
      holders.filter((words) => !/\0(agent|pod-runtime)\0/.test(words)),
      [],
    );
  });
  test('without a way to the registry, the pod’s message and status name what to do', async () => {
    const pull = ['image', 'pull', '--name', name, '198.51.100.7/team/far:1'];
    await upBehind('', '--registry-mirror', 'none');
    await kubectl('run', 'far', '--image=198.51.100.7/team/far:1');
    const text = async () =>
      await kubectl(
        'get',
        'pod',
        'far',
        '-o',
        'jsonpath={.status.containerStatuses[0].state.waiting.message}',
      );
    const message = await eventually(text, (one) => one !== '');
    assert.match(message, /cannot reach 198\.51\.100\.7.*docker save IMAGE \| fairlead image load -/);
    const status = await here([LAUNCHER, 'status', '--name', name]).catch(
      (error: { stdout: string }) => error.stdout,
    );
    assert.match(status.replaceAll(/\s+/g, ' '), /far.*cannot reach 198\.51\.100\.7.*docker save IMAGE/);
    const { stderr } = await run('nsenter', [`--net=/run/netns/${machine}`, LAUNCHER, ...pull], {
      env,
    }).catch((error: { stderr: string }) => error);
    assert.match(stderr, /docker save IMAGE \| fairlead image load -/);
  });
});

/** Returns what the descriptors of a process refer to. */
function descriptorsOf(pid: string): string[] {
  try {
    return readdirSync(`/proc/${pid}/fd`).map((fd) => readlinkSync(`/proc/${pid}/fd/${fd}`));
  } catch (error) {
    // It has ended.
    if (hasCode(error, 'ENOENT', 'ESRCH')) return [];
    throw error;
  }
}
