import type { FairleadError } from '../../lib/errors.ts';
import { loadKoffi } from '../koffi.ts';
import { libc, systemError } from '../libc.ts';

/** Commands of bpf(2) (linux/bpf.h, enum bpf_cmd). */
export const COMMAND = {
  mapCreate: 0,
  lookup: 1,
  update: 2,
  delete: 3,
  nextKey: 4,
  programLoad: 5,
  pin: 6,
  openPin: 7,
  programAttach: 8,
  programDetach: 9,
  programTestRun: 10,
  programById: 13,
  mapById: 14,
  info: 15,
  programQuery: 16,
  btfLoad: 18,
  mapFreeze: 22,
  lookupBatch: 24,
  updateBatch: 26,
  deleteBatch: 27,
  linkCreate: 28,
  linkUpdate: 29,
  linkById: 30,
  nextLink: 31,
  linkDetach: 34,
} as const;

const SYSCALL_NUMBER: Readonly<Record<string, number>> = { x64: 321, arm64: 280 };

let addressOf: ((value: Uint8Array) => bigint) | undefined;

/** Returns the address of a buffer. The caller keeps the buffer until the call has returned. */
export function pointer(bytes: Uint8Array): bigint {
  addressOf ??= loadKoffi().address;
  return addressOf(bytes);
}

/** A `union bpf_attr`, which keeps the buffers that it points to. */
export class Attributes {
  readonly bytes: Uint8Array;
  readonly #view: DataView;
  readonly #kept: Uint8Array[] = [];

  constructor(size: number) {
    this.bytes = new Uint8Array(size);
    this.#view = new DataView(this.bytes.buffer);
  }

  u32(at: number, value: number): this {
    this.#view.setUint32(at, value, true);
    return this;
  }

  u64(at: number, value: bigint): this {
    this.#view.setBigUint64(at, value, true);
    return this;
  }

  pointer(at: number, to: Uint8Array): this {
    this.#kept.push(to);
    return this.u64(at, pointer(to));
  }

  /** Writes text of at most `room - 1` bytes. */
  text(at: number, value: string, room: number): this {
    this.bytes.set(Buffer.from(value, 'latin1').subarray(0, room - 1), at);
    return this;
  }

  /** Releases the buffers after the call has returned. */
  release(): void {
    this.#kept.length = 0;
  }

  readU32(at: number): number {
    return this.#view.getUint32(at, true);
  }
}

/** Calls bpf(2). Returns its result, or -1 with errno set. */
export function tryBpf(command: number, attributes: Attributes): number {
  const number = SYSCALL_NUMBER[process.arch] ?? 280;
  return Number(libc().syscall(number, command, attributes.bytes, attributes.bytes.length));
}

/** Calls bpf(2) on a thread of libuv's pool. Returns its result, or -1. */
export async function tryBpfAsync(command: number, attributes: Attributes): Promise<number> {
  const number = SYSCALL_NUMBER[process.arch] ?? 280;
  const { bytes } = attributes;
  const result = await libc().syscallAsync(number, command, bytes, bytes.length);
  // The buffers that the attributes point to stay alive until here.
  attributes.release();
  return result;
}

/** Calls bpf(2). Throws FairleadError naming the operation and the object. */
export function bpf(command: number, attributes: Attributes, op: string, object?: string): number {
  const result = tryBpf(command, attributes);
  if (result < 0) throw bpfError(op, object);
  return result;
}

/** Returns an error for the call that just failed. */
export function bpfError(op: string, object?: string): FairleadError {
  const error = systemError(op, object);
  return error.code === 'EPERM'
    ? systemError(op, object, 'run as root, or with CAP_BPF and CAP_NET_ADMIN')
    : error;
}

/** Returns the bytes of a text with its terminating zero. */
export const zeroTerminated = (text: string): Uint8Array => Buffer.from(`${text}\0`);
