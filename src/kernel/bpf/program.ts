import { closeSync } from 'node:fs';
import { errorCode } from '../../lib/error-codes.ts';
import { FairleadError } from '../../lib/errors.ts';
import { errnoName, libc } from '../libc.ts';
import { Attributes, bpf, bpfError, COMMAND, tryBpf, tryBpfAsync, zeroTerminated } from './syscall.ts';

/** Kinds of programs (linux/bpf.h, enum bpf_prog_type). */
const PROGRAM_TYPE = {
  socketFilter: 1,
  tc: 3,
  cgroupSkb: 8,
  sockOps: 13,
  cgroupDevice: 15,
  sockAddress: 18,
} as const;

/** Where programs are attached (enum bpf_attach_type). */
export const ATTACH = {
  inetEgress: 1,
  sockOps: 3,
  device: 6,
  bind4: 8,
  bind6: 9,
  connect4: 10,
  connect6: 11,
  postBind4: 12,
  postBind6: 13,
  sendmsg4: 14,
  sendmsg6: 15,
  recvmsg4: 19,
  recvmsg6: 20,
  getpeername4: 29,
  getpeername6: 30,
  sockRelease: 34,
  tcxIngress: 46,
  tcxEgress: 47,
} as const;
export type AttachPoint = keyof typeof ATTACH;

export interface ProgramSource {
  /** At most 15 characters, for bpftool(8). */
  readonly name: string;
  readonly type: keyof typeof PROGRAM_TYPE;
  readonly attach?: AttachPoint;
  /** Relocated instructions, 8 bytes each. */
  readonly instructions: Uint8Array;
  readonly license: string;
}

/** A loaded program held open. */
export interface BpfProgram {
  readonly fd: number;
  readonly name: string;
  close(): void;
}

const LOG_SIZE = 1 << 20;
const LOG_LINES = 12;
/** The verifier returns EAGAIN when a signal is pending (bpf_check in kernel/bpf/verifier.c). */
const TRIES = 20;

/** Calls BPF_PROG_LOAD; returns a descriptor, or -1 with errno set. */
function load(attributes: Attributes): number {
  for (let left = TRIES; ; left--) {
    const fd = tryBpf(COMMAND.programLoad, attributes);
    if (fd >= 0 || left <= 1 || errnoName(libc().errno()) !== 'EAGAIN') return fd;
  }
}

/**
 * Loads a program. Throws FairleadError, whose message ends with the verifier's last lines.
 */
export function loadProgram(source: ProgramSource): BpfProgram {
  const { name } = source;
  const fd = load(loadAttributes(source));
  if (fd >= 0) return held(fd, name);
  const failure = bpfError('load BPF program', name);
  // The log is requested only after a failure, because it makes every load slower.
  const log = new Uint8Array(LOG_SIZE);
  const again = load(loadAttributes(source).u32(24, 1).u32(28, log.length).pointer(32, log));
  if (again >= 0) return held(again, name);
  const text = Buffer.from(log.subarray(0, Math.max(0, log.indexOf(0))))
    .toString('latin1')
    .trim();
  const lines = text.split('\n').slice(-LOG_LINES).join('\n');
  throw new FairleadError(lines === '' ? failure.message : `${failure.message}\n${lines}`, {
    op: 'load BPF program',
    code: errorCode(failure.code),
    object: name,
    ...(failure.hint === undefined ? {} : { hint: failure.hint }),
  });
}

/**
 * Loads a program as `loadProgram` does, but on a thread of libuv's pool: the verifier takes a tenth of a
 * second for a large program, and seconds on a busy machine.
 */
export async function loadProgramAsync(source: ProgramSource): Promise<BpfProgram> {
  const fd = await tryBpfAsync(COMMAND.programLoad, loadAttributes(source));
  return fd >= 0 ? held(fd, source.name) : loadProgram(source);
}

function loadAttributes({ name, type, attach, instructions, license }: ProgramSource): Attributes {
  return new Attributes(128)
    .u32(0, PROGRAM_TYPE[type])
    .u32(4, instructions.length / 8)
    .pointer(8, instructions)
    .pointer(16, zeroTerminated(license))
    .text(48, name, 16)
    .u32(68, attach === undefined ? 0 : ATTACH[attach]);
}

const held = (fd: number, name: string): BpfProgram => ({ fd, name, close: () => closeSync(fd) });

/** Reads a program's type, id, name and the hash of its instructions (struct bpf_prog_info). */
export function programInfo(fd: number): { type: number; id: number; tag: string; name: string } {
  const info = new Uint8Array(80);
  bpf(
    COMMAND.info,
    new Attributes(16).u32(0, fd).u32(4, info.length).pointer(8, info),
    'read BPF program information',
  );
  const view = new DataView(info.buffer);
  return {
    type: view.getUint32(0, true),
    id: view.getUint32(4, true),
    tag: Buffer.from(info.subarray(8, 16)).toString('hex'),
    name: Buffer.from(info.subarray(64, 80)).toString('latin1').replace(/\0.*$/s, ''),
  };
}

/** Opens a loaded program; returns null if it was freed. The caller closes the descriptor. */
export function openProgram(id: number): number | null {
  const fd = tryBpf(COMMAND.programById, new Attributes(16).u32(0, id));
  if (fd >= 0) return fd;
  if (errnoName(libc().errno()) === 'ENOENT') return null;
  throw bpfError('open BPF program', String(id));
}

/** Attaches a program to a control group without a link: it stays until it is detached. */
export function attachProgram(programFd: number, cgroupFd: number, attach: AttachPoint): void {
  const ALLOW_MULTI = 2;
  const attributes = new Attributes(64)
    .u32(0, cgroupFd)
    .u32(4, programFd)
    .u32(8, ATTACH[attach])
    .u32(12, ALLOW_MULTI);
  bpf(COMMAND.programAttach, attributes, 'attach BPF program', attach);
}

/** Detaches a program that was attached to a control group without a link. */
export function detachProgram(programFd: number, cgroupFd: number, attach: AttachPoint): void {
  const attributes = new Attributes(64).u32(0, cgroupFd).u32(4, programFd).u32(8, ATTACH[attach]);
  bpf(COMMAND.programDetach, attributes, 'detach BPF program', attach);
}

/** Returns the ids of the programs attached to a control group; `effective`: including those of its ancestors. */
export function programsAt(cgroupFd: number, attach: AttachPoint, effective = true): number[] {
  const ids = new Uint32Array(256);
  const bytes = new Uint8Array(ids.buffer);
  const QUERY_EFFECTIVE = 1;
  const attributes = new Attributes(64)
    .u32(0, cgroupFd)
    .u32(4, ATTACH[attach])
    .u32(8, effective ? QUERY_EFFECTIVE : 0)
    .pointer(16, bytes)
    .u32(24, ids.length);
  bpf(COMMAND.programQuery, attributes, 'list BPF programs of a control group', attach);
  return [...ids.subarray(0, attributes.readU32(24))];
}

/** Returns true if the kernel loads this program. Throws for missing privileges. */
export function canLoad(source: ProgramSource): boolean {
  const attributes = new Attributes(128)
    .u32(0, PROGRAM_TYPE[source.type])
    .u32(4, source.instructions.length / 8)
    .pointer(8, source.instructions)
    .pointer(16, zeroTerminated(source.license))
    .u32(68, source.attach === undefined ? 0 : ATTACH[source.attach]);
  const fd = load(attributes);
  if (fd >= 0) {
    libc().close(fd);
    return true;
  }
  const error = bpfError('probe BPF');
  if (error.code === 'EPERM') throw error;
  return false;
}
