import { mkdirSync, readFileSync } from 'node:fs';
import { homedir } from 'node:os';
import { dirname, join } from 'node:path';
import { type Document, isMap, isSeq, parseDocument, type YAMLMap, type YAMLSeq } from 'yaml';
import { readOptionalFile } from '../kernel/optional-file.ts';
import { replaceFile } from '../kernel/replace-file.ts';
import { FairleadError } from '../lib/errors.ts';

/** The user who ran this program by sudo, and the kubeconfig of this user. */
export interface UserKubeconfig {
  readonly uid: number;
  readonly gid: number;
  /** `~/.kube/config` */
  readonly file: string;
}

/** The lists of a kubeconfig that contain the parts of a context. */
const LISTS = ['clusters', 'users', 'contexts'] as const;

/**
 * Finds the kubeconfig of the user who ran sudo, by the variables that sudo sets; null if that user is root or sudo was
 * not used.
 */
export function sudoKubeconfig(
  environment: Readonly<Record<string, string | undefined>>,
  passwd = readFileSync('/etc/passwd', 'utf8'),
): UserKubeconfig | null {
  const { SUDO_UID, SUDO_GID } = environment;
  if (!SUDO_UID || !SUDO_GID || SUDO_UID === '0') return null;
  const entry = passwd.split('\n').find((line) => line.split(':')[2] === SUDO_UID);
  const home = entry?.split(':')[5];
  if (!home) return null;
  return { uid: Number(SUDO_UID), gid: Number(SUDO_GID), file: join(home, '.kube', 'config') };
}

/** Returns the kubeconfig of an ordinary user in own namespaces, where the user is root. */
export const ownKubeconfig = (): UserKubeconfig => ({
  uid: 0,
  gid: 0,
  file: join(homedir(), '.kube', 'config'),
});

/**
 * Merges a kubeconfig with one context into the user's, replacing entries of the same name, and makes the context the
 * current one. Comments and other entries are preserved.
 */
export function addContext(user: UserKubeconfig, kubeconfig: string): void {
  asUser(user, () => {
    const added = parseDocument(kubeconfig);
    const document = readDocument(user.file);
    for (const list of LISTS) {
      for (const entry of entriesOf(added, list)) {
        const kept = entriesOf(document, list).filter((one) => one.get('name') !== entry.get('name'));
        document.set(list, document.createNode([...kept, entry]));
      }
    }
    document.set('current-context', added.get('current-context'));
    mkdirSync(dirname(user.file), { recursive: true, mode: 0o750 });
    replaceFile(user.file, document.toString({ lineWidth: 0 }));
  });
}

/** Removes a context, its cluster and its user from the user's kubeconfig, if present. */
export function removeContext(user: UserKubeconfig, name: string): void {
  asUser(user, () => {
    if (readOptionalFile(user.file) === null) return;
    const document = readDocument(user.file);
    for (const list of LISTS) {
      const kept = entriesOf(document, list).filter((one) => one.get('name') !== name);
      document.set(list, document.createNode(kept));
    }
    if (document.get('current-context') === name) document.set('current-context', '');
    replaceFile(user.file, document.toString({ lineWidth: 0 }));
  });
}

/** Reads a kubeconfig for changes; a missing or empty file becomes an empty kubeconfig. */
function readDocument(file: string): Document {
  const text = readOptionalFile(file)?.trim() || 'apiVersion: v1\nkind: Config\npreferences: {}\n';
  const document = parseDocument(text);
  const [problem] = document.errors;
  if (!problem && isMap(document.contents)) return document;
  throw new FairleadError(`${file} is not a kubeconfig${problem ? `: ${problem.message}` : ''}`, {
    op: 'change the kubeconfig',
    code: 'bad-kubeconfig',
    object: file,
    hint: 'correct the file, or use: fairlead up --no-kubeconfig',
  });
}

function entriesOf(document: Document, list: (typeof LISTS)[number]): YAMLMap[] {
  const found = document.get(list);
  return isSeq(found) ? (found as YAMLSeq).items.filter((item): item is YAMLMap => isMap(item)) : [];
}

/**
 * Runs a synchronous function with the rights of a user, so that links in the user's home cannot exceed these rights.
 */
function asUser<T>({ uid, gid }: UserKubeconfig, act: () => T): T {
  const { geteuid, getegid, getgroups, seteuid, setegid, setgroups } = process;
  if (!geteuid || !getegid || !getgroups || !seteuid || !setegid || !setgroups || geteuid() === uid)
    return act();
  const [ownGroup, ownGroups] = [getegid(), getgroups()];
  setgroups([gid]);
  setegid(gid);
  seteuid(uid);
  try {
    return act();
  } finally {
    seteuid(0);
    setegid(ownGroup);
    setgroups(ownGroups);
  }
}
