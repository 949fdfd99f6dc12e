import { readInRoot } from '../kernel/bounded-file.ts';
import { isMapped, mappedIds } from '../kernel/id-maps.ts';
import type { Container, Pod } from '../kube/types.ts';
import { hasCode, messageOf } from '../lib/errors.ts';
import { isApiId, MAX_API_ID, MAX_ID, parseId } from '../lib/user-ids.ts';
import { KubeletError } from './kubelet-error.ts';

/** The user of a container's processes. */
export interface ProcessUser {
  readonly uid: number;
  readonly gid: number;
  /** Supplementary groups. */
  readonly groups: readonly number[];
}

/** Bytes of an image's /etc/passwd or /etc/group that are read. */
const MAX_TABLE_BYTES = 1 << 20;

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
  checkIds(pod, container);
  const own = container.securityContext ?? {};
  const shared = pod.spec?.securityContext ?? {};
  const passwd = table(rootfs, 'etc/passwd');
  const [user = '', group = ''] = imageUser.split(':');
  const wanted = own.runAsUser ?? shared.runAsUser;
  const entry = passwd.find(
    wanted === undefined
      ? ([name, , uid]) => name === user || uid === user
      : ([, , uid]) => uid === String(wanted),
  );
  const uid =
    wanted ?? idOf(entry?.[2] ?? (user || '0'), `the image's user ${JSON.stringify(user)}`, '/etc/passwd');
  if ((own.runAsNonRoot ?? shared.runAsNonRoot) && uid === 0) {
    throw problem('container has runAsNonRoot and would run as root; set securityContext.runAsUser');
  }
  const groups = table(rootfs, 'etc/group');
  // The image's group applies only with the image's user.
  const imageGroup = wanted === undefined ? group : '';
  const named =
    imageGroup === '' ? undefined : groups.find(([name, , gid]) => name === imageGroup || gid === imageGroup);
  const gid =
    own.runAsGroup ??
    shared.runAsGroup ??
    idOf(
      named?.[2] ?? (imageGroup || (entry?.[3] ?? '0')),
      `the image's group ${JSON.stringify(imageGroup || (entry?.[3] ?? ''))}`,
      '/etc/group',
    );
  const { supplementalGroupsPolicy } = shared as { supplementalGroupsPolicy?: string };
  const login = entry?.[0];
  requireMapped('user', uid);
  requireMapped('group', gid);
  if (supplementalGroupsPolicy === 'Strict' || login === undefined) return { uid, gid, groups: [] };
  const member = groups.all(([, , , members = '']) => members.split(',').includes(login));
  return {
    uid,
    gid,
    groups: member
      .map(([name, , id = '']) => idOf(id, `the image's group ${JSON.stringify(name)}`, '/etc/group'))
      .filter((id) => isMapped(mappedIds('gid'), id)),
  };
}

/** Throws for numbers in the pod that no user or group can have: an API server before ours may not have refused them. */
export function checkIds(pod: Pod, container?: Container): void {
  const { runAsUser, runAsGroup, fsGroup, supplementalGroups = [] } = pod.spec?.securityContext ?? {};
  const { runAsUser: ownUser, runAsGroup: ownGroup } = container?.securityContext ?? {};
  const [users, groups] = [
    [runAsUser, ownUser],
    [runAsGroup, fsGroup, ...supplementalGroups, ownGroup],
  ];
  for (const id of [runAsUser, runAsGroup, fsGroup, ...supplementalGroups, ownUser, ownGroup]) {
    if (id !== undefined && id !== null && !isApiId(id)) {
      throw problem(`securityContext: ${id} is not a user or group: use a number from 0 to ${MAX_API_ID}`);
    }
  }
  for (const id of users) if (id !== undefined && id !== null) requireMapped('user', id);
  for (const id of groups) if (id !== undefined && id !== null) requireMapped('group', id);
}

/** Throws for an id that the user namespace of an ordinary user's cluster does not have. */
function requireMapped(what: 'user' | 'group', id: number): void {
  if (isMapped(mappedIds(what === 'user' ? 'uid' : 'gid'), id)) return;
  throw problem(
    `the ${what} ${id} is not one of yours: a cluster without root needs newuidmap (Debian: uidmap), and ids for you in /etc/subuid and /etc/subgid, before its first start; or run the container as root`,
  );
}

function idOf(text: string, what: string, file: string): number {
  const id = parseId(text);
  if (id !== null) return id;
  if (/^[0-9]+$/.test(text))
    throw problem(`${what} has the number ${text.slice(0, 20)}, which is above ${MAX_ID}`);
  throw problem(`${what} is not in its ${file}`);
}

interface Table {
  /** Returns the fields of the first line that fits. */
  find(fits: (fields: readonly string[]) => boolean): readonly string[] | undefined;
  all(fits: (fields: readonly string[]) => boolean): (readonly string[])[];
}

/**
 * Opens a file like /etc/passwd; empty if the image has no such file. Its start is read; a search that does not end there
 * throws, since the rest could change who the user is.
 */
function table(rootfs: string, file: string): Table {
  let text = '';
  let isCut = false;
  try {
    const start = readInRoot(rootfs, file, MAX_TABLE_BYTES);
    ({ isCut } = start);
    text = start.bytes.toString('utf8');
  } catch (error) {
    if (hasCode(error, 'ELOOP')) throw problem(`too many symbolic links in the image's /${file}`);
    if (!hasCode(error, 'ENOENT', 'ENOTDIR', 'not-a-file')) {
      throw problem(`the image's /${file} cannot be read: ${messageOf(error)}`);
    }
  }
  const found = function* (fits: (fields: readonly string[]) => boolean) {
    for (let at = 0; at < text.length; ) {
      const newline = text.indexOf('\n', at);
      const end = newline < 0 ? text.length : newline;
      // The last line of a cut text is a part of one.
      if (newline < 0 && isCut) break;
      if (end > at && text[at] !== '#') {
        const fields = text.slice(at, end).split(':');
        if (fits(fields)) yield fields;
      }
      at = end + 1;
    }
    if (isCut) throw problem(`the image's /${file} is larger than ${MAX_TABLE_BYTES} bytes`);
  };
  return {
    find(fits) {
      for (const fields of found(fits)) return fields;
      return undefined;
    },
    all: (fits) => [...found(fits)],
  };
}

function problem(message: string): KubeletError {
  return new KubeletError('CreateContainerConfigError', message, { op: 'start container' });
}
