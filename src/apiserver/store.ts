import { DatabaseSync, type StatementSync } from 'node:sqlite';
import { messageOf } from '../lib/errors.ts';
import { type Deferral, type DiskReserve, openDiskReserve } from './disk-reserve.ts';
import type { ApiObject } from './object.ts';
import { StatusError } from './status-error.ts';

/** A stored object: decoded once, serialised once. Must not be changed. */
export interface StoredObject {
  readonly collection: string;
  /** "namespace/name", or "/name" without a namespace. Orders lists as upstream does. */
  readonly key: string;
  readonly version: number;
  readonly object: ApiObject;
  readonly json: string;
}

/**
 * A change of one object; `before` is null for a creation, `after` for a deletion (then `last` has the new version).
 */
export interface StoreEvent {
  readonly version: number;
  readonly collection: string;
  readonly before: StoredObject | null;
  readonly after: StoredObject | null;
  /** The object as seen by watchers: `after`, or the deleted object with the version of its deletion. */
  readonly last: StoredObject;
}

/** Maximum number of changes, and of their JSON bytes, by which a watch may lag before it must list again. */
const MAX_HISTORY = 20_000;
const MAX_HISTORY_BYTES = 32 * 1024 * 1024;

/** SQLite's result codes (sqlite.org/rescode.html): the disk is full. */
const SQLITE_FULL = 13;
/** Timeout for the lock of a process that is exiting. */
const LOCK_MS = 5000;
/** Pages of 4 KiB, together as large as the reserve. */
const UNUSED_PAGES = 2048;
const IN_MEMORY = ':memory:';
const atOnce: Deferral = (fill) => {
  fill();
  return () => {};
};

/**
 * The objects of the API server: in memory for reads, in SQLite so that no acknowledged write is lost when the process
 * dies. Calls are synchronous, so that read-then-write is atomic.
 *
 * On a full disk, reads continue, and a write throws StatusError 507 and changes nothing. Deletions succeed, and so do
 * changes of objects that are being deleted: space for them is reserved (the file `FILE.reserve`). Writes succeed again
 * when the disk has room for that reserve.
 */
export class Store {
  readonly #file: string;
  readonly #database: DatabaseSync;
  /** Null for a database in memory. */
  readonly #reserve: DiskReserve | null;
  readonly #upsert: StatementSync;
  readonly #delete: StatementSync;
  readonly #setVersion: StatementSync;
  readonly #collections = new Map<string, Map<string, StoredObject>>();
  /** Sorted objects of each collection, until it changes. */
  readonly #sorted = new Map<string, readonly StoredObject[]>();
  readonly #listeners = new Map<string, Set<(event: StoreEvent) => void>>();
  readonly #history: StoreEvent[] = [];
  #historyBytes = 0;
  #version = 1;
  #isBatch = false;
  /** Individual changes up to this version are no longer available. */
  #compacted: number;
  /** Lists of earlier versions are no longer available. */
  #oldestList = 0;

  /** `file`: path of the database, or ":memory:"; `later`: when the space for deletions is reserved. */
  constructor(file: string, later: Deferral = atOnce) {
    this.#file = file;
    this.#database = new DatabaseSync(file, { timeout: LOCK_MS });
    // WAL with NORMAL survives the death of the process without a flush per write (sqlite.org/wal.html). With exclusive
    // locking, the WAL index is in this process's memory, not in a file that needs space to start on a full disk.
    this.#database.exec(`
      PRAGMA locking_mode = EXCLUSIVE;
      PRAGMA journal_mode = WAL;
      PRAGMA synchronous = NORMAL;
      CREATE TABLE IF NOT EXISTS object (collection TEXT, key TEXT, version INTEGER, json TEXT, PRIMARY KEY (collection, key)) WITHOUT ROWID;
      CREATE TABLE IF NOT EXISTS counter (name TEXT PRIMARY KEY, value INTEGER);
    `);
    this.#upsert = this.#database.prepare('INSERT OR REPLACE INTO object VALUES (?, ?, ?, ?)');
    this.#delete = this.#database.prepare('DELETE FROM object WHERE collection = ? AND key = ?');
    this.#setVersion = this.#database.prepare("INSERT OR REPLACE INTO counter VALUES ('version', ?)");
    const saved = this.#database.prepare("SELECT value FROM counter WHERE name = 'version'").get();
    if (typeof saved?.['value'] === 'number') this.#version = saved['value'];
    for (const row of this.#database.prepare('SELECT collection, key, version, json FROM object').iterate()) {
      const { collection, key, version, json } = row as {
        collection: string;
        key: string;
        version: number;
        json: string;
      };
      this.#collection(collection).set(key, { collection, key, version, json, object: JSON.parse(json) });
    }
    this.#compacted = this.#version;
    this.#reserve = file === IN_MEMORY ? null : openDiskReserve(`${file}.reserve`, later);
  }

  /** The version of the last change: reported by lists, start of watches. */
  get version(): number {
    return this.#version;
  }

  /** The earliest version from which watches may start. */
  get oldestWatchable(): number {
    return this.#compacted;
  }

  get(collection: string, key: string): StoredObject | undefined {
    return this.#collections.get(collection)?.get(key);
  }

  /** Returns a collection's objects, of one namespace if given, sorted by key. */
  list(collection: string, namespace?: string): readonly StoredObject[] {
    let all = this.#sorted.get(collection);
    if (!all) {
      all = sortedByKey(this.#collections.get(collection)?.values() ?? []);
      this.#sorted.set(collection, all);
    }
    return ofNamespace(all, namespace);
  }

  /** Like `list`, at an earlier version; null if that version is too old. */
  listAt(version: number, collection: string, namespace?: string): readonly StoredObject[] | null {
    if (version >= this.#version) return this.list(collection, namespace);
    if (version < this.#oldestList) return null;
    const later = this.since(collection, version);
    if (later === null) return null;
    const objects = new Map(this.#collections.get(collection));
    for (const { before, last } of later.reverse()) {
      if (before) objects.set(last.key, before);
      else objects.delete(last.key);
    }
    return ofNamespace(sortedByKey(objects.values()), namespace);
  }

  /** Makes lists of versions before this one unavailable. */
  expireLists(before: number): void {
    this.#oldestList = before;
  }

  /** Returns the number of objects in a collection. */
  count(collection: string): number {
    return this.#collections.get(collection)?.size ?? 0;
  }

  /**
   * Creates or replaces an object and sets its metadata.resourceVersion. The store owns the object from then on. Throws
   * StatusError 507 if the disk is full, unless the object is being deleted.
   */
  put(collection: string, key: string, object: ApiObject): StoredObject {
    const version = this.#version + 1;
    object.metadata.resourceVersion = String(version);
    const stored: StoredObject = { collection, key, version, object, json: JSON.stringify(object) };
    const isDeletion = object.metadata.deletionTimestamp !== undefined;
    this.#write(() => this.#upsert.run(collection, key, version, stored.json), version, isDeletion);
    const objects = this.#collection(collection);
    const before = objects.get(key) ?? null;
    objects.set(key, stored);
    this.#publish({ version, collection, before, after: stored, last: stored });
    return stored;
  }

  /**
   * Deletes an object; returns it (`final`: as its deletion changed it) with the version of its deletion, or undefined
   * if it does not exist.
   */
  remove(collection: string, key: string, final?: ApiObject): StoredObject | undefined {
    const before = this.get(collection, key);
    if (!before) return undefined;
    const version = this.#version + 1;
    this.#write(() => this.#delete.run(collection, key), version, true);
    this.#collection(collection).delete(key);
    const object = {
      ...(final ?? before.object),
      metadata: { ...(final ?? before.object).metadata, resourceVersion: String(version) },
    };
    const last = { ...before, version, object, json: JSON.stringify(object) };
    this.#publish({ version, collection, before, after: null, last });
    return last;
  }

  /**
   * Writes all changes that `run` makes by one transaction, for the many objects of a first start. If it throws, the disk
   * has none of them, unlike the memory: this store must not be used afterwards.
   */
  batch(run: () => void): void {
    this.#isBatch = true;
    try {
      this.#database.exec('BEGIN');
      run();
      this.#setVersion.run(this.#version);
      this.#database.exec('COMMIT');
    } catch (error) {
      if (this.#database.isTransaction) this.#database.exec('ROLLBACK');
      throw isFull(error) ? this.#full() : error;
    } finally {
      this.#isBatch = false;
    }
  }

  /** Calls `listener` for every later change of a collection. Returns a function that ends it. */
  listen(collection: string, listener: (event: StoreEvent) => void): () => void {
    let listeners = this.#listeners.get(collection);
    if (!listeners) {
      listeners = new Set();
      this.#listeners.set(collection, listeners);
    }
    listeners.add(listener);
    return () => listeners.delete(listener);
  }

  /** Returns the changes of a collection after a version; null if that version is too old. */
  since(collection: string, version: number): StoreEvent[] | null {
    if (version < this.#compacted) return null;
    let start = this.#history.length;
    while (start > 0 && (this.#history[start - 1]?.version ?? 0) > version) start--;
    return this.#history.slice(start).filter((event) => event.collection === collection);
  }

  /** Returns why the database cannot be read or written; null if it can. */
  problem(): string | null {
    try {
      this.#database.prepare('SELECT 1').get();
      return this.#reserve?.hasRoom() === false ? this.#full().message : null;
    } catch (error) {
      return messageOf(error);
    }
  }

  close(): void {
    this.#database.close();
    this.#reserve?.close();
  }

  #collection(name: string): Map<string, StoredObject> {
    let objects = this.#collections.get(name);
    if (!objects) {
      objects = new Map();
      this.#collections.set(name, objects);
    }
    return objects;
  }

  #write(change: () => void, version: number, isDeletion: boolean): void {
    if (!isDeletion && !this.#hasRoom()) throw this.#full();
    while (!this.#transact(change, version)) {
      if (!isDeletion || !this.#reserve?.release()) throw this.#full();
    }
    this.#version = version;
  }

  /** Writes a change with its version; returns false, with nothing changed, if the disk is full. */
  #transact(change: () => void, version: number): boolean {
    if (this.#isBatch) {
      change();
      return true;
    }
    try {
      this.#database.exec('BEGIN');
      change();
      this.#setVersion.run(version);
      this.#database.exec('COMMIT');
      return true;
    } catch (error) {
      // SQLite ends the transaction itself after some errors, including a full disk (sqlite.org/lang_transaction.html).
      if (this.#database.isTransaction) this.#database.exec('ROLLBACK');
      if (isFull(error)) return false;
      throw new StatusError(500, 'InternalError', `failed to write to ${this.#file}: ${messageOf(error)}`);
    }
  }

  /**
   * Reports whether objects may be written: the reserve is complete, or as much space is unused within the database.
   */
  #hasRoom(): boolean {
    if (!this.#reserve || this.#reserve.refill()) return true;
    const { freelist_count: pages } = this.#database.prepare('PRAGMA freelist_count').get() ?? {};
    return typeof pages === 'number' && pages >= UNUSED_PAGES;
  }

  #full(): StatusError {
    const room = this.#reserve ? ` (${this.#reserve.describe()})` : '';
    return new StatusError(
      507,
      'InsufficientStorage',
      `the disk of ${this.#file} is full${room}: free space there, or delete objects; reading and deleting still work`,
    );
  }

  /** Drops the oldest changes until both limits are met. */
  #compact(): void {
    let count = 0;
    while (
      count < this.#history.length - 1 &&
      (this.#history.length - count > MAX_HISTORY || this.#historyBytes > MAX_HISTORY_BYTES)
    ) {
      this.#historyBytes -= this.#history[count]?.last.json.length ?? 0;
      count++;
    }
    const dropped = this.#history.splice(0, count);
    this.#compacted = dropped[dropped.length - 1]?.version ?? this.#compacted;
  }

  #publish(event: StoreEvent): void {
    this.#sorted.delete(event.collection);
    this.#history.push(event);
    this.#historyBytes += event.last.json.length;
    if (this.#history.length > MAX_HISTORY * 1.5 || this.#historyBytes > MAX_HISTORY_BYTES * 1.5) {
      this.#compact();
    }
    for (const listener of [...(this.#listeners.get(event.collection) ?? [])]) listener(event);
  }
}

function isFull(error: unknown): boolean {
  // The low byte is the primary code.
  return error instanceof Error && 'errcode' in error && (Number(error.errcode) & 0xff) === SQLITE_FULL;
}

function sortedByKey(objects: Iterable<StoredObject>): StoredObject[] {
  return [...objects].sort((a, b) => (a.key < b.key ? -1 : a.key > b.key ? 1 : 0));
}

function ofNamespace(all: readonly StoredObject[], namespace: string | undefined): readonly StoredObject[] {
  return namespace === undefined ? all : all.filter((stored) => stored.key.startsWith(`${namespace}/`));
}
