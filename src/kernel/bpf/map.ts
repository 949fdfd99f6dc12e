import { closeSync } from 'node:fs';
import { basename } from 'node:path';
import { blockFor } from '../../lib/clock.ts';
import { errnoName, libc } from '../libc.ts';
import { type SharedMemory, shareMemory } from '../mapped-memory.ts';
import { loadStorageTypes } from './btf.ts';
import { openPin } from './pin.ts';
import { Attributes, bpf, bpfError, COMMAND, pointer, tryBpf } from './syscall.ts';

/** Kinds of maps (linux/bpf.h, enum bpf_map_type). */
const MAP_TYPE = { hash: 1, array: 2, lruHash: 9, lpmTrie: 11, skStorage: 24, ringbuf: 27 } as const;
export type MapKind = keyof typeof MAP_TYPE;

/** Entries of a hash map are allocated on demand (BPF_F_NO_PREALLOC). */
export const NO_PREALLOC = 1;
/** The memory of an array can be mapped (BPF_F_MMAPABLE, kernel 5.5). */
export const MMAPABLE = 0x400;

/** Flags of `update`: only a new key (1), only an existing key (2), either (0). */
export const UPDATE = { any: 0, create: 1, replace: 2 } as const;

export interface MapDefinition {
  /** At most 15 characters, for bpftool(8). */
  readonly name: string;
  readonly kind: MapKind;
  readonly keySize: number;
  readonly valueSize: number;
  /** 0 for sk_storage. For a ring buffer its bytes: a power of two of at least a page. */
  readonly maxEntries: number;
  readonly flags?: number;
}

/** Attributes of a map (struct bpf_map_info). */
export interface MapInfo {
  readonly type: number;
  readonly id: number;
  readonly keySize: number;
  readonly valueSize: number;
  readonly maxEntries: number;
  readonly flags: number;
}

const BATCH = 4096;

/**
 * Elements of a map without preallocation come from a small cache of the processor, which the kernel refills in interrupt
 * work (kernel/bpf/memalloc.c). Without an interrupt for that, it waits for the next timer tick, and updates until then
 * fail with ENOMEM although there is memory.
 */
const REFILL_MS = 10;
const MAX_REFILLS = 20;

/** An open BPF map. Keys and values are bytes as the programs see them. */
export class BpfMap {
  readonly fd: number;
  readonly name: string;
  readonly keySize: number;
  readonly valueSize: number;
  readonly maxEntries: number;
  readonly #element = new Attributes(32);
  #memory: SharedMemory | null = null;

  constructor(fd: number, { name, keySize, valueSize, maxEntries }: MapDefinition) {
    this.fd = fd;
    this.name = name;
    this.keySize = keySize;
    this.valueSize = valueSize;
    this.maxEntries = maxEntries;
    this.#element.u32(0, fd);
  }

  /** Returns a copy of the value; null if the map does not have the key. */
  lookup(key: Uint8Array): Uint8Array | null {
    const value = new Uint8Array(this.valueSize);
    if (this.#call(COMMAND.lookup, key, value, 0) >= 0) return value;
    if (errnoName(libc().errno()) === 'ENOENT') return null;
    throw bpfError('look up in BPF map', this.name);
  }

  update(key: Uint8Array, value: Uint8Array, flags: number = UPDATE.any): void {
    for (let refills = 0; this.#call(COMMAND.update, key, value, flags) < 0; refills++) {
      if (refills === MAX_REFILLS || !isCacheEmpty()) throw bpfError('write BPF map', this.name);
      blockFor(REFILL_MS);
    }
  }

  /** Deletes a key. Returns true if the key existed. */
  delete(key: Uint8Array): boolean {
    if (this.#call(COMMAND.delete, key, null, 0) >= 0) return true;
    if (errnoName(libc().errno()) === 'ENOENT') return false;
    throw bpfError('delete from BPF map', this.name);
  }

  /** Writes `count` elements; keys and values are each contiguous. */
  updateBatch(keys: Uint8Array, values: Uint8Array, count: number): void {
    this.#batch(COMMAND.updateBatch, keys, values, count, 'write BPF map');
  }

  /** Deletes `count` keys, all of which must exist. */
  deleteBatch(keys: Uint8Array, count: number): void {
    this.#batch(COMMAND.deleteBatch, keys, null, count, 'delete from BPF map');
  }

  /** Returns the keys, unordered, of a map of any kind; at most `max`. */
  keys(max = Number.POSITIVE_INFINITY): Uint8Array[] {
    const keys: Uint8Array[] = [];
    for (let last: Uint8Array | null = null; ; ) {
      const next = new Uint8Array(this.keySize);
      const attributes = new Attributes(32).u32(0, this.fd).pointer(16, next);
      if (last !== null) attributes.pointer(8, last);
      if (tryBpf(COMMAND.nextKey, attributes) < 0) {
        if (errnoName(libc().errno()) === 'ENOENT') return keys;
        throw bpfError('read BPF map', this.name);
      }
      keys.push(next);
      // A key that is deleted meanwhile makes the kernel begin again.
      if (keys.length >= Math.min(max, this.maxEntries)) return keys;
      last = next;
    }
  }

  /** Returns all keys with their values, unordered. */
  entries(): [key: Uint8Array, value: Uint8Array][] {
    const out: [Uint8Array, Uint8Array][] = [];
    // A batch contains whole buckets of a hash map; ENOSPC: the next bucket does not fit.
    for (let room = Math.max(64, Math.min(BATCH, this.maxEntries)); ; room *= 2) {
      out.length = 0;
      if (this.#readAll(room, out)) return out;
    }
  }

  /** Returns the values of an array's elements `first` to `first + count - 1`. */
  range(first: number, count: number): Uint8Array[] {
    const keys = new Uint8Array(count * 4);
    const values = new Uint8Array(count * this.valueSize);
    const attributes = new Attributes(56).pointer(8, new Uint8Array(8)).pointer(16, keys).pointer(24, values);
    // The batch begins after the given key.
    if (first > 0) attributes.pointer(0, new Uint8Array(Uint32Array.of(first - 1).buffer));
    attributes.u32(32, count).u32(36, this.fd);
    if (tryBpf(COMMAND.lookupBatch, attributes) < 0 && errnoName(libc().errno()) !== 'ENOENT') {
      throw bpfError('read BPF map', this.name);
    }
    return Array.from({ length: attributes.readU32(32) }, (_, i) =>
      values.slice(i * this.valueSize, (i + 1) * this.valueSize),
    );
  }

  /**
   * Writes `count` elements of an array made with MMAPABLE, whose values are whole words, to its memory. Programs may read
   * a half-written element: use it only for elements that they do not use yet.
   */
  writeMemory(keys: Uint32Array, values: Uint32Array, count: number): void {
    const words = this.valueSize / 4;
    const { memory, stride } = this.#share();
    for (let i = 0; i < count; i++) {
      const key = keys[i] ?? 0;
      if (key >= this.maxEntries) throw new RangeError(`BPF map ${this.name} has no element ${key}`);
      const from = i * words;
      const to = key * stride;
      for (let word = 0; word < words; word++) memory[to + word] = values[from + word] ?? 0;
    }
  }

  /**
   * Returns true if any element of an array made with MMAPABLE satisfies a predicate; `words` are valid
   * during the call only.
   */
  someInMemory(is: (words: Uint32Array, index: number) => boolean): boolean {
    const { memory, stride } = this.#share();
    for (let i = 0; i < this.maxEntries; i++) {
      if (is(memory.subarray(i * stride, i * stride + this.valueSize / 4), i)) return true;
    }
    return false;
  }

  /**
   * Returns the memory of an array, and an element's size in words: elements begin at multiples of eight
   * bytes.
   */
  #share(): { memory: Uint32Array; stride: number } {
    const stride = Math.ceil(this.valueSize / 8) * 2;
    this.#memory ??= shareMemory(this.fd, this.maxEntries * stride * 4, { writable: true });
    return { memory: new Uint32Array(this.#memory.bytes), stride };
  }

  close(): void {
    this.#memory?.unmap();
    this.#memory = null;
    closeSync(this.fd);
  }

  #call(command: number, key: Uint8Array, value: Uint8Array | null, flags: number): number {
    this.#checkSizes(key, value);
    const element = this.#element
      .u64(8, pointer(key))
      .u64(16, value ? pointer(value) : 0n)
      .u64(24, BigInt(flags));
    return tryBpf(command, element);
  }

  #checkSizes(key: Uint8Array, value: Uint8Array | null): void {
    // The kernel reads as many bytes as the map's definition says, even beyond the end of a shorter buffer.
    if (key.length !== this.keySize || (value && value.length !== this.valueSize)) {
      throw new RangeError(
        `BPF map ${this.name} has keys of ${this.keySize} and values of ${this.valueSize} bytes, not ${key.length} and ${value?.length}`,
      );
    }
  }

  #batch(command: number, keys: Uint8Array, values: Uint8Array | null, count: number, op: string): void {
    if (count === 0) return;
    if (keys.length < count * this.keySize || (values && values.length < count * this.valueSize)) {
      throw new RangeError(`BPF map ${this.name}: ${count} elements need more bytes`);
    }
    for (let done = 0, refills = 0; done < count; refills++) {
      const attributes = new Attributes(56)
        .pointer(16, keys.subarray(done * this.keySize))
        .u32(32, count - done)
        .u32(36, this.fd);
      if (values) attributes.pointer(24, values.subarray(done * this.valueSize));
      if (tryBpf(command, attributes) >= 0) return;
      const isEmpty = isCacheEmpty();
      // A kernel that fails before the first element may leave the number as it is.
      const processed = attributes.readU32(32);
      const written = processed < count - done ? processed : 0;
      if (!isEmpty || (written === 0 && refills >= MAX_REFILLS)) throw bpfError(op, this.name);
      if (written > 0) refills = 0;
      done += written;
      blockFor(REFILL_MS);
    }
  }

  #readAll(room: number, out: [Uint8Array, Uint8Array][]): boolean {
    const keys = new Uint8Array(room * this.keySize);
    const values = new Uint8Array(room * this.valueSize);
    // A hash's cursor is its bucket's number, in 4 bytes; an array's is the key.
    const cursor = new Uint8Array(Math.max(8, this.keySize));
    for (let first = true; ; first = false) {
      const attributes = new Attributes(56)
        .pointer(8, cursor)
        .pointer(16, keys)
        .pointer(24, values)
        .u32(32, room)
        .u32(36, this.fd);
      if (!first) attributes.pointer(0, cursor);
      const result = tryBpf(COMMAND.lookupBatch, attributes);
      const code = result < 0 ? errnoName(libc().errno()) : '';
      if (code === 'ENOSPC') return false;
      if (code !== '' && code !== 'ENOENT') throw bpfError('read BPF map', this.name);
      const count = attributes.readU32(32);
      for (let i = 0; i < count; i++) {
        out.push([
          keys.slice(i * this.keySize, (i + 1) * this.keySize),
          values.slice(i * this.valueSize, (i + 1) * this.valueSize),
        ]);
      }
      if (code === 'ENOENT') return true;
    }
  }
}

/** Creates a map. Throws FairleadError, code EPERM without the privilege. */
export function createMap(definition: MapDefinition): BpfMap {
  const { name, kind, keySize, valueSize, maxEntries, flags = 0 } = definition;
  const attributes = new Attributes(72)
    .u32(0, MAP_TYPE[kind])
    .u32(4, keySize)
    .u32(8, valueSize)
    .u32(12, maxEntries)
    .u32(16, kind === 'skStorage' ? flags | NO_PREALLOC : flags)
    .text(28, name, 16);
  // Socket storage requires type information (bpf_local_storage_map_alloc_check).
  const types = kind === 'skStorage' ? loadStorageTypes(valueSize) : null;
  if (types) attributes.u32(48, types.fd).u32(52, types.key).u32(56, types.value);
  try {
    return new BpfMap(bpf(COMMAND.mapCreate, attributes, 'create BPF map', name), definition);
  } finally {
    if (types) closeSync(types.fd);
  }
}

/** Opens a pinned map, of any program; returns null if there is none. The caller closes the descriptor. */
export function openPinnedMap(path: string): BpfMap | null {
  const fd = openPin(path);
  if (fd === null) return null;
  return new BpfMap(fd, { name: basename(path), kind: 'hash', ...sizesOf(mapInfo(fd)) });
}

const sizesOf = ({ keySize, valueSize, maxEntries }: MapInfo) => ({ keySize, valueSize, maxEntries });

/** Reads the attributes of an open map. */
export function mapInfo(fd: number): MapInfo {
  const info = new Uint8Array(80);
  bpf(
    COMMAND.info,
    new Attributes(16).u32(0, fd).u32(4, info.length).pointer(8, info),
    'read BPF map information',
  );
  const view = new DataView(info.buffer);
  return {
    type: view.getUint32(0, true),
    id: view.getUint32(4, true),
    keySize: view.getUint32(8, true),
    valueSize: view.getUint32(12, true),
    maxEntries: view.getUint32(16, true),
    flags: view.getUint32(20, true),
  };
}

/** Returns true if an open map has the type and sizes of a definition; its capacity may differ. */
export function isLike(info: MapInfo, definition: MapDefinition): boolean {
  return (
    (info.flags & MMAPABLE) === ((definition.flags ?? 0) & MMAPABLE) &&
    info.type === MAP_TYPE[definition.kind] &&
    info.keySize === definition.keySize &&
    info.valueSize === definition.valueSize
  );
}

function isCacheEmpty(): boolean {
  return errnoName(libc().errno()) === 'ENOMEM';
}
