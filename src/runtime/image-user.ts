import { lstatSync, readFileSync, readlinkSync } from 'node:fs';
import { join } from 'node:path';
import type { Container, Pod } from '../kube/types.ts';
import { hasCode } from '../lib/errors.ts';
import { KubeletError } from './kubelet-error.ts';

/** The user of a container's processes. */
export interface ProcessUser {
  readonly uid: number;
  readonly gid: number;
  /** Supplementary groups. */
  readonly groups: readonly number[];
}

/**
 * Returns the user of a container: from its own setting, the pod's, or the image's. Names are looked up in the image's
 * /etc/passwd and /etc/group, which also list the user's other groups (supplementalGroupsPolicy "Merge").
 * Throws KubeletError "CreateContainerConfigError".
 */
export function containerUser(
  pod: Pod,
  container: Container,
  imageUser: string,
  rootfs: string,
): ProcessUser {
  const own = container.securityContext ?? {};
  const shared = pod.spec?.securityContext ?? {};
  const passwd = table(rootfs, 'etc/passwd');
  const groups = table(rootfs, 'etc/group');
  const [user = '', group = ''] = imageUser.split(':');
  const wanted = own.runAsUser ?? shared.runAsUser;
  const entry =
    wanted === undefined
      ? passwd.find(([name, , uid]) => name === user || uid === user)
      : passwd.find(([, , uid]) => uid === String(wanted));
  const uid = wanted ?? number(entry?.[2] ?? (user || '0'));
  if (uid === null) throw problem(`the image's user ${JSON.stringify(user)} is not in its /etc/passwd`);
  if ((own.runAsNonRoot ?? shared.runAsNonRoot) && uid === 0) {
    throw problem('container has runAsNonRoot and would run as root; set securityContext.runAsUser');
  }
  // The image's group applies only with the image's user.
  const imageGroup = wanted === undefined ? group : '';
  const named = groups.find(
    ([name, , gid]) => imageGroup !== '' && (name === imageGroup || gid === imageGroup),
  );
  const gid =
    own.runAsGroup ?? shared.runAsGroup ?? number(named?.[2] ?? (imageGroup || (entry?.[3] ?? '0')));
  if (gid === null) throw problem(`the image's group ${JSON.stringify(group)} is not in its /etc/group`);
  const { supplementalGroupsPolicy } = shared as { supplementalGroupsPolicy?: string };
  if (supplementalGroupsPolicy === 'Strict') return { uid, gid, groups: [] };
  const login = entry?.[0];
  const member = groups.filter(
    ([, , , members = '']) => login !== undefined && members.split(',').includes(login),
  );
  return { uid, gid, groups: member.map(([, , id]) => number(id ?? '')).filter((id) => id !== null) };
}

function number(text: string): number | null {
  return /^[0-9]+$/.test(text) ? Number(text) : null;
}

/** Returns the fields of a file like /etc/passwd; empty if the image has no such file. */
function table(rootfs: string, file: string): string[][] {
  try {
    return readFileSync(resolveInside(rootfs, file), 'utf8')
      .split('\n')
      .filter((line) => line !== '' && !line.startsWith('#'))
      .map((line) => line.split(':'));
  } catch (error) {
    if (hasCode(error, 'ENOENT', 'ENOTDIR', 'EISDIR')) return [];
    throw error;
  }
}

const MAX_LINKS = 40;

/** Resolves a path as if `root` were "/": an image's links must not lead to files of the machine. */
function resolveInside(root: string, path: string): string {
  const todo = path.split('/');
  let done: string[] = [];
  for (let links = 0; ; ) {
    const part = todo.shift();
    if (part === undefined) return join(root, ...done);
    if (part === '' || part === '.') continue;
    if (part === '..') {
      done.pop();
      continue;
    }
    const at = join(root, ...done, part);
    if (!lstatSync(at, { throwIfNoEntry: false })?.isSymbolicLink()) {
      done.push(part);
      continue;
    }
    if (++links > MAX_LINKS) throw problem(`too many symbolic links in the image's ${path}`);
    const target = readlinkSync(at);
    if (target.startsWith('/')) done = [];
    todo.unshift(...target.split('/'));
  }
}

function problem(message: string): KubeletError {
  return new KubeletError('CreateContainerConfigError', message, { op: 'start container' });
}
