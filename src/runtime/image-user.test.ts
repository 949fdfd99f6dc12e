import assert from 'node:assert/strict';
import { execFileSync } from 'node:child_process';
import { mkdirSync, mkdtempSync, rmSync, symlinkSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after, beforeEach, describe, test } from 'node:test';
import type { Container, Pod } from '../kube/types.ts';
import { containerUser } from './image-user.ts';

const folder = mkdtempSync(join(tmpdir(), 'flt-image-user-'));
const root = join(folder, 'root');
const etc = (file: string) => join(root, 'etc', file);
after(() => rmSync(folder, { recursive: true, force: true }));
beforeEach(() => {
  rmSync(root, { recursive: true, force: true });
  mkdirSync(join(root, 'etc'), { recursive: true });
  writeFileSync(etc('passwd'), 'root:x:0:0::/root:/bin/sh\napp:x:1000:1001::/:/bin/sh\n');
  writeFileSync(etc('group'), 'root:x:0:\nstaff:x:50:app\n');
});

type Security = NonNullable<NonNullable<Pod['spec']>['securityContext']>;

interface Row {
  readonly what: string;
  /** The image's USER. */
  readonly user?: string;
  readonly passwd?: string;
  readonly group?: string;
  readonly prepare?: () => void;
  readonly pod?: Security;
  readonly container?: NonNullable<Container['securityContext']>;
  /** "UID:GID GROUP…", or the error. */
  readonly result: string | RegExp;
}

const MIB = 1 << 20;

const ROWS: readonly Row[] = [
  { what: 'a name', user: 'app', result: '1000:1001 50' },
  { what: 'a number', user: '7', result: '7:0' },
  { what: 'a number with leading zeros', user: '007', result: '7:0' },
  { what: 'a name and a group', user: 'app:staff', result: '1000:50 50' },
  { what: 'no user', result: '0:0' },
  { what: 'a number of the pod', user: 'app', pod: { runAsUser: 8 }, result: '8:0' },
  { what: 'an unknown name', user: 'absent', result: /"absent" is not in its \/etc\/passwd/ },
  { what: 'a negative number', user: '-1', result: /"-1" is not in/ },
  { what: 'a number with a space', user: ' 0', result: /" 0" is not in/ },
  { what: 'a hexadecimal number', user: '0x0', result: /"0x0" is not in/ },
  { what: 'the largest number', user: '4294967294', result: '4294967294:0' },
  { what: 'the number that system calls ignore', user: '4294967295', result: /above 4294967294/ },
  { what: 'a number that wraps around to root', user: '4294967296', result: /above 4294967294/ },
  { what: 'a number of 400 digits', user: '9'.repeat(400), result: /above 4294967294/ },
  { what: 'a group that system calls ignore', user: '7:4294967295', result: /above 4294967294/ },
  {
    what: 'a name with the number that system calls ignore',
    user: 'evil',
    passwd: 'evil:x:4294967295:0::/:/bin/sh\n',
    pod: { runAsNonRoot: true },
    result: /above 4294967294/,
  },
  {
    what: 'a name with a group that system calls ignore',
    user: 'evil',
    passwd: 'evil:x:1:4294967295::/:/bin/sh\n',
    result: /above 4294967294/,
  },
  {
    what: 'membership in a group that system calls ignore',
    user: 'app',
    group: 'evil:x:4294967295:app\n',
    result: /above 4294967294/,
  },
  {
    what: 'a number that the image names root',
    user: '1000',
    passwd: '1000:x:0:0::/:/bin/sh\n',
    pod: { runAsNonRoot: true },
    result: /would run as root/,
  },
  { what: 'runAsUser of the pod', pod: { runAsUser: 4294967295 }, result: /4294967295 is not a user/ },
  {
    what: 'runAsUser of the container',
    container: { runAsUser: 4294967295, runAsNonRoot: true },
    result: /4294967295 is not a user/,
  },
  { what: 'runAsUser above 2^31 - 1', container: { runAsUser: 2 ** 31 }, result: /is not a user/ },
  { what: 'runAsUser below zero', container: { runAsUser: -1 }, result: /is not a user/ },
  { what: 'runAsGroup', container: { runAsGroup: 4294967295 }, result: /is not a user or group/ },
  { what: 'fsGroup', pod: { fsGroup: 4294967295 }, result: /is not a user or group/ },
  { what: 'supplementalGroups', pod: { supplementalGroups: [1, 2 ** 32] }, result: /is not a user or group/ },
  {
    what: 'an entry at the start of an /etc/passwd of 64 MiB',
    user: 'app',
    pod: { supplementalGroupsPolicy: 'Strict' } as Security,
    passwd: `app:x:1000:1001::/:/bin/sh\n${'other:x:5:5::/:/bin/sh\n'.repeat(3_000_000)}`,
    result: '1000:1001',
  },
  {
    what: 'an entry after the first MiB of /etc/passwd',
    user: 'app',
    passwd: `${'#'.repeat(MIB)}\napp:x:0:0::/:/bin/sh\n`,
    result: /\/etc\/passwd is larger than 1048576 bytes/,
  },
  {
    what: 'groups after the first MiB of /etc/group',
    user: 'app',
    group: `${'#'.repeat(MIB)}\nstaff:x:50:app\n`,
    result: /\/etc\/group is larger than 1048576 bytes/,
  },
  {
    what: 'an /etc/passwd that is a pipe',
    user: '7',
    prepare: () => {
      rmSync(etc('passwd'));
      execFileSync('mkfifo', [etc('passwd')]);
    },
    result: '7:0',
  },
  {
    what: 'an /etc/passwd that links to a file of the machine',
    user: 'outside',
    prepare: () => {
      writeFileSync(join(folder, 'passwd'), 'outside:x:0:0::/:/bin/sh\n');
      rmSync(etc('passwd'));
      symlinkSync('../../passwd', etc('passwd'));
    },
    result: /"outside" is not in/,
  },
  {
    what: 'an /etc/passwd that links inside the image',
    user: 'inside',
    prepare: () => {
      writeFileSync(etc('real'), 'inside:x:3:4::/:/bin/sh\n');
      rmSync(etc('passwd'));
      symlinkSync('/etc/real', etc('passwd'));
    },
    result: '3:4',
  },
  {
    what: 'an /etc that links to itself',
    user: 'app',
    prepare: () => {
      rmSync(join(root, 'etc'), { recursive: true });
      symlinkSync('etc', join(root, 'etc'));
    },
    result: /too many symbolic links/,
  },
];

describe('the user of a container, by', () => {
  for (const { what, user = '', passwd, group, prepare, pod, container, result } of ROWS) {
    test(what, () => {
      if (passwd !== undefined) writeFileSync(etc('passwd'), passwd);
      if (group !== undefined) writeFileSync(etc('group'), group);
      prepare?.();
      const find = () =>
        containerUser(
          { spec: { securityContext: pod, containers: [] } } as unknown as Pod,
          { name: 'main', securityContext: container } as Container,
          user,
          root,
        );
      if (typeof result !== 'string')
        assert.throws(find, { code: 'CreateContainerConfigError', message: result });
      else {
        const { uid, gid, groups } = find();
        assert.equal([`${uid}:${gid}`, ...groups].join(' '), result);
      }
    });
  }
});
