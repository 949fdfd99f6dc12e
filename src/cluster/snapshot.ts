import { execFile } from 'node:child_process';
import {
  cpSync,
  existsSync,
  lstatSync,
  mkdirSync,
  mkdtempSync,
  readdirSync,
  renameSync,
  rmSync,
  writeFileSync,
} from 'node:fs';
import { join, resolve } from 'node:path';
import { DatabaseSync } from 'node:sqlite';
import { promisify } from 'node:util';
import { freshPath } from '../kernel/replace-file.ts';
import { FairleadError, messageOf } from '../lib/errors.ts';
import { ETCD } from './control-plane-programs.ts';
import { type ClusterState, checkClusterName, clusterPaths, readSupervision, stateRoot } from './state.ts';
import { whileSuspended } from './suspension.ts';

const run = promisify(execFile);
/** The files of the embedded control plane's objects, and the folder of a real one's. */
const DATABASE = ['data.db', 'data.db-wal', 'etcd'];
/** The folder of the copied database. */
const COPIES = 'snapshot';
const LISTING_BYTES = 256 * 1024 * 1024;

/**
 * Writes a cluster's files to an archive (tar, compressed with gzip; readable by root only): objects, credentials,
 * images, volumes and the files of pods. The cluster may be running: its API server, or etcd, is suspended while the database is
 * copied. Logs and unwritten changes of pods are not included.
 */
export async function takeSnapshot(state: ClusterState, file: string): Promise<void> {
  const { name } = state;
  const target = resolve(file);
  const copies = join(clusterPaths(name).root, COPIES);
  const fresh = freshPath(target);
  try {
    await copyDatabase(state, copies);
    // It contains keys: tar preserves the mode of an existing file.
    writeFileSync(fresh, '', { mode: 0o600 });
    const exclude = [
      ...DATABASE.map((entry) => `${name}/${entry}`),
      `${name}/data.db.reserve`,
      `${name}/logs`,
      `${name}/processes.json`,
      `${name}/egress.json`,
      // Proxies of this machine's environment.
      `${name}/image-pulls.json`,
      `${name}/ready.json`,
      `${name}/nodes/*/state/*.sock`,
      // Records of processes: another machine's process may have the same number.
      `${name}/nodes/*/state/pod-runtime.json`,
      `${name}/nodes/*/state/ready.json`,
      `${name}/nodes/*/state/runtime/crun/*`,
      `${name}/nodes/*/state/pods/*/sandbox.json`,
      // The next run of a container starts from its image.
      `${name}/nodes/*/state/pods/*/containers/*/run-*`,
    ];
    await tar('take a snapshot', [
      ...['--create', '--gzip', '--file', fresh, '--one-file-system', '--numeric-owner', '--sparse'],
      // Running pods keep writing.
      ...['--warning=no-file-changed', '--warning=no-file-removed', '--ignore-failed-read'],
      ...exclude.map((pattern) => `--exclude=${pattern}`),
      ...['-C', stateRoot(), name],
    ]);
    renameSync(fresh, target);
  } finally {
    rmSync(copies, { recursive: true, force: true });
    rmSync(fresh, { force: true });
  }
}

/** Copies the database with its write-ahead log: together they are consistent while no process writes. */
async function copyDatabase(
  { name, controlPlane, realControlPlane }: ClusterState,
  to: string,
): Promise<void> {
  mkdirSync(to, { recursive: true, mode: 0o700 });
  const { root } = clusterPaths(name);
  const writer = realControlPlane ? (readSupervision(name).processes[ETCD]?.identity ?? null) : controlPlane;
  const copy = () => {
    for (const entry of DATABASE)
      if (existsSync(join(root, entry))) cpSync(join(root, entry), join(to, entry), { recursive: true });
  };
  if (writer) await whileSuspended(writer, copy);
  else copy();
  if (!realControlPlane) foldLog(join(to, 'data.db'));
}

/** Writes the changes in a database's write-ahead log into the database, so that each restored cluster need not read them. */
function foldLog(file: string): void {
  const database = new DatabaseSync(file);
  try {
    database.exec('PRAGMA wal_checkpoint(TRUNCATE)');
  } finally {
    // The last connection removes the log.
    database.close();
  }
}

const RESTORE = 'restore a snapshot';

/** Returns the name of a snapshot's cluster. Throws FairleadError "bad-archive" for other files. */
export async function snapshotName(file: string): Promise<string> {
  const { stdout } = await tar(RESTORE, ['--list', '--gzip', '--file', resolve(file)]);
  const entries = stdout.split('\n').filter((entry) => entry !== '');
  const name = entries.find((entry) => /^[^/]+\/cluster\.json$/.test(entry))?.split('/')[0] ?? '';
  const foreign = entries.find((entry) => entry !== name && !entry.startsWith(`${name}/`));
  if (name === '' || foreign !== undefined) throw badArchive(file, foreign ?? 'cluster.json');
  return checkClusterName(name);
}

const badArchive = (file: string, object: string) =>
  new FairleadError(`${file} is not a snapshot of a cluster`, {
    op: RESTORE,
    code: 'bad-archive',
    object,
    hint: 'snapshots are written by: fairlead snapshot FILE',
  });

/** Extracts a snapshot as a stopped cluster of the same name; `up` starts it. Returns its name. */
export async function restoreSnapshot(file: string): Promise<string> {
  const archive = resolve(file);
  const op = RESTORE;
  mkdirSync(stateRoot(), { recursive: true, mode: 0o755 });
  const folder = mkdtempSync(join(stateRoot(), '.restore-'));
  try {
    await tar(op, [
      ...['--extract', '--gzip', '--file', archive, '-C', folder],
      ...['--numeric-owner', '--same-owner', '--same-permissions'],
    ]);
    const name = extractedName(file, folder);
    const { root } = clusterPaths(checkClusterName(name));
    if (existsSync(root)) {
      throw new FairleadError(`cluster ${name} exists`, {
        op,
        code: 'EEXIST',
        hint: `remove it first: fairlead down --name ${name}`,
      });
    }
    const copies = join(folder, name, COPIES);
    for (const entry of readdirSync(copies)) renameSync(join(copies, entry), join(folder, name, entry));
    rmSync(copies, { recursive: true });
    renameSync(join(folder, name), root);
    return name;
  } finally {
    rmSync(folder, { recursive: true, force: true });
  }
}

/** Returns the name of the cluster in a folder of extracted files. Throws FairleadError "bad-archive" if there is anything else. */
function extractedName(file: string, folder: string): string {
  // Of an archive that someone else made, any entry may be a link to elsewhere.
  const isFolder = (path: string) => lstatSync(path, { throwIfNoEntry: false })?.isDirectory() === true;
  const [name = '', foreign] = readdirSync(folder);
  const root = join(folder, name);
  if (foreign !== undefined) throw badArchive(file, foreign);
  if (name === '' || !isFolder(root) || !existsSync(join(root, 'cluster.json')))
    throw badArchive(file, 'cluster.json');
  if (!isFolder(join(root, COPIES))) throw badArchive(file, COPIES);
  return name;
}

async function tar(op: string, args: readonly string[]): Promise<{ readonly stdout: string }> {
  try {
    return await run('tar', args, { maxBuffer: LISTING_BYTES });
  } catch (error) {
    const { code, stderr = '', stdout = '' } = error as { code?: unknown; stderr?: string; stdout?: string };
    // GNU tar: 1 means that files changed while they were read.
    if (code === 1 && args[0] === '--create') return { stdout };
    const reason = code === 'ENOENT' ? 'the program tar is missing' : stderr.trim().split('\n').at(-1);
    throw new FairleadError(`failed to ${op}: ${reason || messageOf(error)}`, {
      op,
      code: code === 'ENOENT' ? 'ENOENT' : 'EIO',
      cause: error,
    });
  }
}
