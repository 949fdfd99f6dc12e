import assert from 'node:assert/strict';
import { execFileSync, spawnSync } from 'node:child_process';
import { readdirSync, readFileSync, statSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { after, before, describe, test } from 'node:test';
import { hasIpvs } from '../src/cluster/rootless/ipvs-support.ts';
import type { OpenLesson } from '../src/learn/course.ts';
import type { CommandResult } from '../src/learn/run-command.ts';
import { eventually } from '../src/lib/testing/eventually.ts';
import { buildImage, ociArchive } from '../src/runtime/images/testing/image-builder.ts';
import { freeLocalPort, HELLO, LAUNCHER, reserveCluster, runFairlead } from './testing/cluster.ts';
import { cannotRun, ordinaryUser } from './testing/ordinary-user.ts';
import { TAKES_FULL_PRODUCT } from './testing/pairwise.ts';
import { programFiles } from './testing/program-files.ts';

/** A cluster of a user without rights: everything that the documents promise without root. */

const UID = 41_000;
const OTHER_UID = 41_001;
/** The first bytes of a pcapng file: its section header block. */
const PCAPNG = 0x0a0d0d0a;
const reason = cannotRun(UID);

/**
 * The modes that work without root, with the scenarios of the check. The rules are those of root (tests/promise has every
 * flow in each mode); a user namespace can take a mode's rights away, which the plain flows show.
 */
const SOME = TAKES_FULL_PRODUCT ? [] : ['plain:'];
const CHECKED: readonly (readonly [mode: string, only: readonly string[]])[] = [
  ['nftables', []],
  ['iptables', SOME],
  ['userspace', SOME],
];

describe('a cluster of an ordinary user', { skip: reason ?? false }, () => {
  const user = ordinaryUser(UID);
  const other = ordinaryUser(OTHER_UID);
  const port = freeLocalPort();
  const snapshot = join(user.home, 'snapshot.tar.gz');
  // The same name as that of the user.
  const root = { ...reserveCluster(), name: 'default' };
  const kubectl = (...words: string[]) =>
    user.run('kubectl', words, { KUBECONFIG: join(user.home, '.kube', 'config') });

  /** Runs a command that has to succeed; returns its output. */
  async function ask(...words: string[]): Promise<string> {
    const { status, out, error } = await user.fairlead(...words);
    assert.equal(status, 0, `fairlead ${words.join(' ')}:\n${out}\n${error}`);
    return out;
  }
  const clusterReady = () =>
    eventually(
      () => user.fairlead('status'),
      ({ status }) => status === 0,
    );

  /** Sends requests until a command has ended that waits for packets: the first ones may be sent before it begins. */
  async function untilAnswered(command: Promise<string>, check: (text: string) => void): Promise<void> {
    let isOver = false;
    const ended = command.finally(() => {
      isOver = true;
    });
    ended.catch(() => {});
    await eventually(async () => {
      await ask('exec', 'client', '--', 'fairlead', 'request', 'http://hello', '--count', '5');
      return isOver;
    });
    check(await ended);
  }

  before(async () => {
    await ask('up', '--detach', '--nodes', '2', '-f', HELLO, '--publish', `${port}:80/svc/hello`);
  });
  after(async () => {
    await user.fairlead('down', '--all');
    await other.fairlead('down', '--all');
    await runFairlead(root.stateRoot, ['down', '--name', root.name]);
    user.remove();
    other.remove();
  });

  test('its state is below the state folder of the user, and the user owns it', async () => {
    const kubeconfig = (await ask('kubeconfig')).trim();
    assert.equal(kubeconfig, join(user.home, '.local/state/fairlead/default/kubeconfig'));
  });

  test('status is healthy', async () => {
    await clusterReady();
    assert.match(await ask('status'), /node-2 .*Ready/);
  });

  test('kubectl reaches the API server on the loopback of the user, by the context that up added', async () => {
    const { status, out, error } = await kubectl('get', 'nodes', '-o', 'name');
    assert.equal(status, 0, error);
    assert.equal(out, 'node/node-1\nnode/node-2\n');
  });

  test('a pod whose image is in a registry names the command that pulls it', async () => {
    const image = '127.0.0.1:1/none:1';
    assert.equal((await kubectl('run', 'far', `--image=${image}`)).status, 0);
    const path = 'jsonpath={.status.containerStatuses[0].state.waiting.message}';
    await eventually(
      async () => (await kubectl('get', 'pod', 'far', '-o', path)).out,
      (message) => message.includes(`fairlead image pull ${image}`),
    );
    await kubectl('delete', 'pod', 'far', '--now');
  });

  test('the kubeconfig of another user is answered with sudo', async () => {
    const kubeconfig = (await ask('kubeconfig')).trim();
    for (const words of [['status'], ['kubeconfig'], ['check'], ['image', 'ls']]) {
      const { error } = await other.run(LAUNCHER, words, { KUBECONFIG: kubeconfig });
      assert.match(error, /only its owner may read it.*try: run the command with sudo/s, words.join(' '));
    }
  });

  test('a published port answers on the loopback of the user', async () => {
    const answer = await eventually(
      () => fetch(`http://127.0.0.1:${port}/hostname`).then((response) => response.text(), String),
      (text) => /^hello-/.test(text),
    );
    assert.match(answer, /^hello-/);
  });

  test('ports are published and closed while it runs', async () => {
    const second = freeLocalPort();
    await ask('up', '--detach', '-p', `${port}:80/svc/hello`, '-p', `${second}:80/svc/hello`);
    assert.match(await (await fetch(`http://127.0.0.1:${second}/hostname`)).text(), /^hello-/);
    await ask('up', '--detach', '-p', `${port}:80/svc/hello`);
    await eventually(
      () =>
        fetch(`http://127.0.0.1:${second}/hostname`).then(
          () => 'open',
          () => 'closed',
        ),
      (state) => state === 'closed',
    );
    assert.match(await (await fetch(`http://127.0.0.1:${port}/hostname`)).text(), /^hello-/);
  });

  test('exec runs a command in a pod, on a node and outside', async () => {
    assert.match(
      await ask('exec', 'client', '--', 'fairlead', 'request', 'http://hello', '--count', '9'),
      /hello-/,
    );
    assert.match(await ask('exec', 'node/node-1', '--', 'ip', 'route'), /172\.30\.0\.0/);
    assert.match(
      await ask('exec', 'outside', '--', 'fairlead', 'request', 'http://172.30.0.11:30080'),
      /hello-/,
    );
  });

  test('explain, trace and flows show its traffic', async () => {
    assert.match(await ask('explain', 'client', 'svc/hello'), /hello-/);
    assert.match(await ask('trace', 'client', 'svc/hello'), /^DELIVERED after/m);
    await untilAnswered(ask('trace', '--watch', 'svc/hello'), (text) =>
      assert.match(text, /^DELIVERED after/m),
    );
    const flows = user.start(LAUNCHER, ['flows']);
    let seen = '';
    flows.stdout?.setEncoding('utf8').on('data', (text: string) => (seen += text));
    await eventually(
      async () => {
        await ask('exec', 'client', '--', 'fairlead', 'request', 'http://hello');
        return seen;
      },
      (text) => text.includes('hello'),
    );
    flows.kill('SIGINT');
  });

  test('capture prints packets, and writes a file that the user owns', async () => {
    const limits = ['--count', '2', '--duration', '60'];
    await untilAnswered(ask('capture', 'all', ...limits), (text) => assert.notEqual(text, ''));
    // Relative to the folder in which the user types.
    await untilAnswered(ask('capture', 'client', ...limits, '-w', 'packets.pcapng'), () => {
      const file = join(user.home, 'packets.pcapng');
      assert.equal(statSync(file).uid, UID);
      assert.equal(readFileSync(file).readUInt32BE(0), PCAPNG);
    });
  });

  test('fault plants each kind, lists them, and undoes them', async () => {
    const [pod = ''] = (await kubectl('get', 'pod', '-l', 'app=hello', '-o', 'name')).out.split('\n');
    const faults: readonly (readonly string[])[] = [
      ['silent', pod.replace('pod/', '')],
      ['cut', 'node-2'],
      ['slow', 'node-1', '--delay', '20'],
      ['drain', 'node-2'],
    ];
    for (const [kind = '', target = '', ...words] of faults) {
      await ask('fault', kind, target, ...words);
      assert.match(await ask('fault'), new RegExp(`^${kind} +(default/)?${target}`, 'm'));
      assert.match(await ask('fault', 'undo'), new RegExp(`^undone: ${kind} `, 'm'));
    }
    assert.equal(await ask('fault'), 'no faults\n');
    await clusterReady();
  });

  test('image loads an archive of the user, whose pods run, lists and removes it', async () => {
    const image = buildImage([['/bin/sh', '/bin/sleep'].flatMap(programFiles)], {
      Entrypoint: ['/bin/sh', '-c', 'echo from the image; exec sleep 1000'],
    });
    const name = 'example.com/greeter:1';
    const archive = ociArchive([{ descriptor: image.manifest, name }], image.blobs);
    writeFileSync(join(user.home, 'greeter.tar'), archive);
    assert.match(await ask('image', 'load', 'greeter.tar'), /example\.com\/greeter:1/);
    assert.match(await ask('image', 'ls'), /example\.com\/greeter:1/);
    await kubectl('run', 'greeter', `--image=${name}`);
    await eventually(
      () => ask('logs', 'greeter').catch(String),
      (text) => text === 'from the image\n',
    );
    await kubectl('delete', 'pod', 'greeter', '--now');
    await eventually(
      () => user.fairlead('image', 'rm', name),
      ({ status }) => status === 0,
    );
    assert.doesNotMatch(await ask('image', 'ls'), /greeter/);
  });

  test('the page of lessons runs the commands of a step', async () => {
    const child = user.start(LAUNCHER, ['ui']);
    let out = '';
    child.stdout?.setEncoding('utf8').on('data', (text: string) => (out += text));
    try {
      const url = await eventually(
        () => Promise.resolve(out.trim()),
        (text) => /^http:.*\/$/.test(text),
      );
      const post = async (path: string, body: object) => {
        const response = await fetch(`${url}api/${path}`, { method: 'POST', body: JSON.stringify(body) });
        assert.equal(response.status, 200, await response.clone().text());
        return await response.json();
      };
      const { step } = (await post('lesson', { lesson: 'pods', advance: 'stay' })) as OpenLesson;
      assert.ok(step && step.commands.length > 0);
      for (const index of step.commands.keys()) {
        const request = { lesson: 'pods', step: step.number, list: 'commands', index };
        const { code, output } = (await post('lesson-command', request)) as CommandResult;
        assert.equal(code, 0, output);
      }
    } finally {
      child.kill('SIGINT');
    }
    await ask('learn', '--reset');
  });

  for (const [start, stop] of [
    ['open', /127\.0\.0\.1:(\d+)/],
    ['ui', /http:\/\/127\.0\.0\.1:(\d+)/],
  ] as const) {
    test(`${start} listens on the loopback of the user until Ctrl-C`, async () => {
      const words = start === 'open' ? ['open', 'svc/hello'] : ['ui'];
      const child = user.start(LAUNCHER, words);
      let out = '';
      child.stdout?.setEncoding('utf8').on('data', (text: string) => (out += text));
      try {
        const opened = await eventually(
          () => Promise.resolve(stop.exec(out)?.[1] ?? null),
          (found) => found !== null,
        );
        const url = start === 'open' ? `http://127.0.0.1:${opened}/hostname` : out.trim().split('\n')[0];
        assert.equal((await fetch(String(url))).status, 200);
      } finally {
        child.kill('SIGINT');
      }
      const [status] = await new Promise<[number | null]>((resolve) => {
        if (child.exitCode !== null) resolve([child.exitCode]);
        else child.on('exit', (code) => resolve([code]));
      });
      assert.equal(status, 0);
    });
  }

  for (const [mode, only] of CHECKED) {
    test(`${only.length === 0 ? 'every flow' : 'flows'} of check in ${mode} mode`, async () => {
      await ask('mode', mode);
      const words = only.flatMap((text) => ['--only', text]);
      const { failed, drifts, flows } = JSON.parse(await ask('check', '-o', 'json', ...words)) as {
        failed: number;
        drifts: unknown[];
        flows: unknown[];
      };
      assert.deepEqual({ failed, drifts }, { failed: 0, drifts: [] });
      assert.ok(flows.length > (only.length === 0 ? 800 : 50), `${flows.length} flows`);
    });
  }

  test('what only root can do is refused with the reason', async () => {
    const refused: readonly (readonly [readonly string[], RegExp])[] = [
      [
        ['mode', 'ebpf'],
        /eBPF mode is not possible without root: the kernel loads BPF programs for root only/,
      ],
      [['up', '--name', 'x', '--mode', 'ebpf'], /eBPF mode is not possible without root/],
      [['up', '--name', 'x', '--host-access'], /--host-access is not possible without root/],
      ...(hasIpvs()
        ? []
        : [[['mode', 'ipvs'], /IPVS mode is not possible without root: its kernel module/] as const]),
    ];
    for (const [words, message] of refused) {
      const { status, error } = await user.fairlead(...words);
      assert.equal(status, 1);
      assert.match(error, message);
    }
  });

  test('clusters of root and of another user with the same name run beside it, and are removed without it', async () => {
    assert.match(
      (await other.fairlead('exec', 'client', '--', 'true')).error,
      /you have no cluster of the name default/,
    );
    const runtime = join(other.home, 'run');
    assert.equal((await other.run('mkdir', ['-m', '700', runtime])).status, 0);
    const theirs = (...words: string[]) => other.run(LAUNCHER, words, { XDG_RUNTIME_DIR: runtime });
    const started = await theirs('up', '--detach', '-f', HELLO);
    assert.equal(started.status, 0, started.error);
    const sockets = (at: string) => other.run('find', [at, '-name', '*.sock', '-type', 's']);
    assert.equal((await sockets(join(other.home, '.local'))).out, '');
    assert.match((await sockets(runtime)).out, /\.sock\n$/);
    assert.match((await theirs('explain', 'client', 'svc/hello')).out, /^DELIVERED/);
    const ofRoot = await runFairlead(root.stateRoot, ['up', '--detach', '--name', root.name]);
    assert.equal(ofRoot.status, 0, ofRoot.error);
    assert.equal((await user.run('ls', [join(other.home, '.local/state/fairlead/default')])).status, 2);
    await clusterReady();
    assert.equal((await theirs('down')).status, 0);
    assert.equal((await sockets(runtime)).out, '');
    assert.equal((await runFairlead(root.stateRoot, ['down', '--name', root.name])).status, 0);
    await eventually(
      () => Promise.resolve(other.processes()),
      (left) => left.length === 0,
    );
    await clusterReady();
  });

  test('stop leaves no process, and up starts the same cluster again', async () => {
    assert.equal((await kubectl('create', 'configmap', 'kept')).status, 0);
    await ask('stop');
    await eventually(
      () => Promise.resolve(user.processes()),
      (left) => left.length === 0,
    );
    assert.match((await user.fairlead('exec', 'client', '--', 'true')).error, /cluster default is stopped/);
    await ask('up', '--detach');
    assert.equal((await kubectl('get', 'configmap', 'kept', '-o', 'name')).out, 'configmap/kept\n');
    assert.match(await (await fetch(`http://127.0.0.1:${port}/hostname`)).text(), /^hello-/);
  });

  test('a snapshot of it is restored by the same user', async () => {
    await ask('snapshot', snapshot);
    await ask('down');
    await ask('restore', snapshot);
    await ask('up', '--detach');
    assert.equal((await kubectl('get', 'configmap', 'kept', '-o', 'name')).out, 'configmap/kept\n');
  });

  test('run gives a command outside of the namespaces a cluster, and removes it', async () => {
    const asked =
      'id -u && kubectl get nodes -o name && fairlead exec client -- fairlead request http://hello; exit 7';
    const words = ['run', '-f', HELLO, '--evidence', join(user.home, 'evidence'), '--', 'sh', '-c', asked];
    const { status, out, error } = await user.fairlead(...words);
    assert.equal(status, 7, error);
    assert.match(out, new RegExp(`^${UID}\\nnode/node-1\\nhello-`));
    assert.match(readFileSync(join(user.home, 'evidence', 'events.txt'), 'utf8'), /Pod default\/client/);
    assert.deepEqual(readdirSync(join(user.home, '.local/state/fairlead')).toSorted(), [
      '.namespaces',
      'default',
    ]);
    const restored = await user.fairlead('run', '--restore', snapshot, '--', 'true');
    assert.match(restored.error, /cluster default exists, and would be removed at the end of this run/);
  });

  test('down leaves no process, mount or context', async () => {
    await ask('down');
    await eventually(
      () => Promise.resolve(user.processes()),
      (left) => left.length === 0,
    );
    assert.doesNotMatch(readFileSync('/proc/self/mounts', 'utf8'), new RegExp(user.home));
    assert.deepEqual(readdirSync(join(user.home, '.local/state/fairlead')), ['.namespaces']);
    assert.doesNotMatch(readFileSync(join(user.home, '.kube', 'config'), 'utf8'), /fairlead-default/);
  });

  test('run --restore gives a command the cluster of a snapshot, and removes it', async () => {
    const asked =
      'kubectl get configmap kept -o name && fairlead exec client -- fairlead request http://hello; exit 3';
    const { status, out, error } = await user.fairlead('run', '--restore', snapshot, '--', 'sh', '-c', asked);
    assert.equal(status, 3, error);
    assert.match(out, /^configmap\/kept\nhello-/);
    await eventually(
      () => Promise.resolve(user.processes()),
      (left) => left.length === 0,
    );
    assert.deepEqual(readdirSync(join(user.home, '.local/state/fairlead')), ['.namespaces']);
    writeFileSync(snapshot, 'not an archive');
    const broken = await user.fairlead('run', '--restore', snapshot, '--', 'true');
    assert.equal(broken.status, 1);
    assert.match(broken.error, /failed to restore a snapshot/);
  });
});

describe('an ordinary user on a machine with mounts below its programs, as a container', {
  skip: reason ?? false,
}, () => {
  test('up starts pods', async () => {
    const user = ordinaryUser(UID);
    // Seen by this file's programs only (tools/private-node).
    const covered = join('/usr', readdirSync('/usr').toSorted().at(-1) ?? '', '.');
    try {
      execFileSync('mount', ['--bind', covered, covered]);
      const { status, error } = await user.fairlead('up', '--detach', '-f', HELLO);
      assert.equal(status, 0, error);
      const asked = await user.fairlead('exec', 'client', '--', 'fairlead', 'request', 'http://hello');
      assert.match(asked.out, /^hello-/, asked.error);
    } finally {
      await user.fairlead('down');
      execFileSync('umount', ['--lazy', covered]);
      user.remove();
    }
  });
});

describe('an ordinary user for whom a cluster is not possible', { skip: reason ?? false }, () => {
  test('up says within its first second which setting forbids user namespaces, and the fix', async () => {
    const user = ordinaryUser(UID);
    try {
      // The setting is one of each user namespace: that of the machine stays as it is.
      const script = 'echo 0 > /proc/sys/user/max_user_namespaces && exec "$0" up --detach';
      const { status, error } = await user.run('unshare', [
        ...['--user', '--map-user=1000', '--map-group=1000', '--keep-caps', 'sh', '-c', script, LAUNCHER],
      ]);
      assert.equal(status, 1);
      assert.match(
        error,
        /an ordinary user cannot start a cluster on this machine: user.max_user_namespaces is 0/,
      );
      assert.match(error, /sudo sysctl -w user.max_user_namespaces=15000/);
      assert.deepEqual(user.processes(), []);
    } finally {
      user.remove();
    }
  });
});

/** The tests run in a mount namespace of their own: other programs do not see these files. */
function giveIds(uid: number, folder: string): () => void {
  for (const file of ['subuid', 'subgid']) {
    writeFileSync(join(folder, file), `${uid}:200000:65536\n`);
    execFileSync('mount', ['--bind', join(folder, file), `/etc/${file}`]);
  }
  // newuidmap serves users with an entry only.
  const passwd = join(folder, 'passwd');
  writeFileSync(passwd, `${readFileSync('/etc/passwd', 'utf8')}flt-user:x:${uid}:${uid}::/:/bin/sh\n`);
  execFileSync('mount', ['--bind', passwd, '/etc/passwd']);
  return () => execFileSync('umount', ['/etc/subuid', '/etc/subgid', '/etc/passwd']);
}

const hasNewuidmap = spawnSync('sh', ['-c', 'command -v newuidmap newgidmap']).status === 0;
const runAs = (id: number) => `
apiVersion: v1
kind: Pod
metadata: {name: user-${id}}
spec:
  restartPolicy: Never
  securityContext: {runAsUser: ${id}, runAsGroup: ${id}, fsGroup: ${id}}
  volumes: [{name: data, emptyDir: {}}]
  containers:
  - {name: c, image: host, command: [sh, -c, 'id -u; touch /data/x && stat -c %g /data/x'], volumeMounts: [{name: data, mountPath: /data}]}
`;

for (const { ids, skip } of [
  { ids: 'one id', skip: reason },
  { ids: 'many ids', skip: reason ?? (hasNewuidmap ? null : 'newuidmap is not installed') },
]) {
  test(`pods of a user with ${ids}`, { skip: skip ?? false }, async () => {
    const user = ordinaryUser(OTHER_UID);
    const takeIds = ids === 'many ids' ? giveIds(OTHER_UID, user.home) : () => {};
    const kubectl = (...words: string[]) =>
      user.run('kubectl', words, { KUBECONFIG: join(user.home, '.kube', 'config') });
    try {
      const manifest = join(user.home, 'pod.yaml');
      writeFileSync(manifest, runAs(1234));
      assert.equal((await user.fairlead('up', '--detach')).status, 0);
      assert.equal((await kubectl('apply', '-f', manifest)).status, 0);
      const state = await eventually(
        async () => (await kubectl('describe', 'pod', 'user-1234')).out,
        (text) => /not one of yours|Status: +Succeeded/.test(text),
      );
      if (ids === 'many ids') assert.equal((await kubectl('logs', 'user-1234')).out, '1234\n1234\n');
      else assert.match(state, /the user 1234 is not one of yours: a cluster without root needs newuidmap/);
      assert.equal((await user.fairlead('down')).status, 0);
      await eventually(
        () => Promise.resolve(user.processes()),
        (left) => left.length === 0,
      );
    } finally {
      await user.fairlead('down');
      takeIds();
      user.remove();
    }
  });
}
