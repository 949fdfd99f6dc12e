import { existsSync, mkdirSync, readFileSync } from 'node:fs';
import { open, rename, rm, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import type { Clock } from '../lib/clock.ts';
import { messageOf } from '../lib/errors.ts';
import type { Logger } from '../lib/log.ts';
import type { CachedObjects, Informer } from './informer.ts';
import type { KubeObject } from './types.ts';

export interface ObjectCacheOptions {
  /** Has a file for each resource; it is created. */
  readonly folder: string;
  readonly clock: Clock;
  readonly logger: Logger;
}

/** The objects of informers in files, for a start while the API server cannot be reached. */
export interface ObjectCache {
  /** Returns the objects that an earlier process wrote under this name, or null: none, or the file is damaged. */
  read<T extends KubeObject>(name: string): CachedObjects<T> | null;
  /** Writes the objects of an informer after they have changed. */
  keep<T extends KubeObject>(name: string, informer: KeptInformer<T>): void;
  /** Writes what has changed, and stops. */
  close(): Promise<void>;
}

type CurrentInformer<T> = Pick<Informer<T>, 'list' | 'cachedAt' | 'hasSynced' | 'lastContact'>;
type KeptInformer<T> = CurrentInformer<T> & Pick<Informer<T>, 'handle'>;

/** A change is written after this time, with those that follow it. */
const WRITE_MS = 10_000;
/** The processor time of writing is at most this share of all time, at any rate of changes. */
const MAX_SHARE = 0.01;
/**
 * How often the times of the last contact are written. A server sends bookmarks every minute: objects that do not change
 * are as current as the last one.
 */
const CONTACT_MS = 60_000;
const CONTACTS_FILE = 'contacts.json';
/** The length of text that is made and written without a break for other work. */
const CHUNK = 1 << 16;
const FORMAT = 1;

interface Header {
  readonly format: number;
  /** Milliseconds of the clock. */
  readonly at: number;
}

/** Opens the cache. A file that cannot be written is reported, and tried again after the next change. */
export function openObjectCache({ folder, clock, logger }: ObjectCacheOptions): ObjectCache {
  const kept = new Map<string, CurrentInformer<KubeObject>>();
  const changed = new Set<string>();
  let cancel: (() => void) | null = null;
  let writing: Promise<void> = Promise.resolve();
  let isClosed = false;
  let nextAt = 0;
  /** By the names of files: when the server last confirmed their objects, in milliseconds of the clock. */
  const contacts = new Map(Object.entries(readContacts(folder, logger)));
  let cancelContacts: (() => void) | null = null;

  const confirmLater = () => {
    if (isClosed) return;
    cancelContacts ??= clock.after(CONTACT_MS, () => {
      cancelContacts = null;
      writing = writing.then(writeConfirmed).finally(confirmLater);
    });
  };

  /** Writes the times up to which the files hold the objects of the server. */
  async function writeConfirmed(): Promise<void> {
    let isNew = false;
    for (const [name, { hasSynced, cachedAt, lastContact }] of kept) {
      // A file lacks changes that are not written yet.
      if (!hasSynced || cachedAt !== null || changed.has(name) || contacts.get(name) === lastContact)
        continue;
      contacts.set(name, lastContact);
      isNew = true;
    }
    if (!isNew) return;
    const file = join(folder, CONTACTS_FILE);
    try {
      mkdirSync(folder, { recursive: true, mode: 0o700 });
      await writeFile(`${file}.new`, JSON.stringify(Object.fromEntries(contacts)), { mode: 0o600 });
      await rename(`${file}.new`, file);
    } catch (error) {
      logger.warn({ folder }, `failed to write the time of the last contact: ${messageOf(error)}`);
    }
  }

  const schedule = () => {
    if (isClosed) return;
    cancel ??= clock.after(Math.max(WRITE_MS, nextAt - clock.now()), () => {
      cancel = null;
      writing = writing.then(writeChanged);
    });
  };

  async function writeChanged(): Promise<void> {
    let busy = 0;
    for (const [name, informer] of kept) {
      // Objects of a cache are not newer than the file.
      if (!changed.has(name) || informer.cachedAt !== null) continue;
      changed.delete(name);
      try {
        busy += await writeObjects(fileOf(folder, name), informer.list(), clock.now());
      } catch (error) {
        changed.add(name);
        const context = { objects: name, folder };
        logger.warn(
          context,
          `failed to write objects for a start without the API server: ${messageOf(error)}`,
        );
      }
    }
    nextAt = clock.now() + busy / MAX_SHARE;
    if (changed.size > 0) schedule();
  }

  return {
    read<T extends KubeObject>(name: string) {
      const found = readObjects<T>(fileOf(folder, name), logger);
      return found && { ...found, at: Math.max(found.at, contacts.get(name) ?? found.at) };
    },
    keep(name, informer) {
      confirmLater();
      kept.set(name, informer);
      const change = () => {
        changed.add(name);
        schedule();
      };
      informer.handle({ onAdd: change, onUpdate: change, onDelete: change });
    },
    async close() {
      isClosed = true;
      cancel?.();
      cancelContacts?.();
      await writing;
      await writeChanged();
      await writeConfirmed();
    },
  };
}

const fileOf = (folder: string, name: string): string => join(folder, `${name}.ndjson`);

/** Writes a header and a line for each object. Returns the milliseconds of processor time that it took. */
async function writeObjects(file: string, objects: readonly KubeObject[], at: number): Promise<number> {
  mkdirSync(join(file, '..'), { recursive: true, mode: 0o700 });
  const fresh = `${file}.new`;
  let busy = 0;
  const out = await open(fresh, 'w', 0o600);
  try {
    const header: Header = { format: FORMAT, at };
    let text = `${JSON.stringify(header)}\n`;
    let began = performance.now();
    for (const object of objects) {
      text += `${JSON.stringify(object)}\n`;
      if (text.length < CHUNK) continue;
      busy += performance.now() - began;
      await out.writeFile(text);
      text = '';
      began = performance.now();
    }
    busy += performance.now() - began;
    await out.writeFile(text);
    // An interrupted write must not leave half a file under the name that is read.
    await out.datasync();
  } catch (error) {
    await out.close();
    await rm(fresh, { force: true });
    throw error;
  }
  await out.close();
  await rename(fresh, file);
  return busy;
}

function readContacts(folder: string, logger: Logger): Record<string, number> {
  const file = join(folder, CONTACTS_FILE);
  if (!existsSync(file)) return {};
  try {
    const entries = Object.entries(JSON.parse(readFileSync(file, 'utf8')) as Record<string, unknown>);
    return Object.fromEntries(
      entries.flatMap(([name, at]) => (Number.isFinite(at) ? [[name, Number(at)]] : [])),
    );
  } catch (error) {
    logger.warn({ file }, `the time of the last contact cannot be used: ${messageOf(error)}`);
    return {};
  }
}

function readObjects<T extends KubeObject>(file: string, logger: Logger): CachedObjects<T> | null {
  if (!existsSync(file)) return null;
  try {
    const [first = '', ...lines] = readFileSync(file, 'utf8').split('\n');
    const { format, at } = JSON.parse(first) as Header;
    if (format !== FORMAT || !Number.isFinite(at)) return null;
    return { at, objects: lines.filter((line) => line !== '').map((line) => JSON.parse(line) as T) };
  } catch (error) {
    logger.warn({ file }, `the objects of an earlier run cannot be used: ${messageOf(error)}`);
    return null;
  }
}
