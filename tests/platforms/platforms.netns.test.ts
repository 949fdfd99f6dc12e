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

/** Returns both outputs of a script. */
function inJail(options: readonly string[], script: string): Promise<string> {
  const words = ['--show', ROOT, ...options, '--', 'sh', '-c', `exec 2>&1\n${script}`];
  const env = { ...process.env, JAIL_FOLDER: ROOT, COLUMNS: '400' };
  return new Promise((resolve) => {
    execFile(JAIL, words, { env, timeout: 240_000 }, (_, out, error) => resolve(out + error));
  });
}
