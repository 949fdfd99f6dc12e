import { closeSync, openSync } from 'node:fs';
import { linkCgroup } from '../../../kernel/bpf/link.ts';
import { loadProgram, programInfo } from '../../../kernel/bpf/program.ts';

/** Opens a control group and, unless told otherwise, attaches a program of somebody else that allows every connect(). */
export function openGroup(group: string, attach = true): { fd: number; programId: number; close(): void } {
  const fd = openSync(group, 'r');
  if (!attach) return { fd, programId: 0, close: () => closeSync(fd) };
  const program = loadProgram({
    name: 'foreign',
    type: 'sockAddress',
    attach: 'connect4',
    // r0 = 1; exit
    instructions: Uint8Array.of(0xb7, 0, 0, 0, 1, 0, 0, 0, 0x95, 0, 0, 0, 0, 0, 0, 0),
    license: 'Apache-2.0',
  });
  const link = linkCgroup(program.fd, fd, 'connect4');
  const programId = programInfo(program.fd).id;
  return {
    fd,
    programId,
    close() {
      link.close();
      program.close();
      closeSync(fd);
    },
  };
}
