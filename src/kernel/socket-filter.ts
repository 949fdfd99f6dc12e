import { pointer } from './bpf/syscall.ts';
import { libc } from './libc.ts';
import { SOL_SOCKET } from './socket-numbers.ts';

const SO_ATTACH_FILTER = 26;

/** One instruction of a classic BPF program (linux/filter.h): code, jump if true, jump if false, constant. */
export type FilterInstruction = readonly [code: number, jt: number, jf: number, k: number];

/**
 * Attaches a filter: the socket receives only packets for which the program returns more than 0. Returns
 * false if the kernel refused (see errno).
 */
export function attachFilter(fd: number, program: readonly FilterInstruction[]): boolean {
  const instructions = new Uint8Array(program.length * 8);
  const view = new DataView(instructions.buffer);
  for (const [i, [code, jt, jf, k]] of program.entries()) {
    view.setUint16(i * 8, code, true);
    view.setUint8(i * 8 + 2, jt);
    view.setUint8(i * 8 + 3, jf);
    view.setUint32(i * 8 + 4, k, true);
  }
  // struct sock_fprog: a length, padding, a pointer.
  const header = new Uint8Array(16);
  const fields = new DataView(header.buffer);
  fields.setUint16(0, program.length, true);
  fields.setBigUint64(8, pointer(instructions), true);
  return libc().setsockopt(fd, SOL_SOCKET, SO_ATTACH_FILTER, header, header.length) === 0;
}
