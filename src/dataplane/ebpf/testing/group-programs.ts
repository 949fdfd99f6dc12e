import { closeSync, openSync, readdirSync } from 'node:fs';
import { join } from 'node:path';
import { linkCgroup, linkDevice, linkInfo } from '../../../kernel/bpf/link.ts';
import { mapInfo } from '../../../kernel/bpf/map.ts';
import { openPin } from '../../../kernel/bpf/pin.ts';
import { loadProgram, programInfo } from '../../../kernel/bpf/program.ts';
import { Attributes, COMMAND, tryBpf } from '../../../kernel/bpf/syscall.ts';
import { inNetns } from '../../../kernel/netns.ts';
import { getLink, openRouteSocket } from '../../../kernel/rtnetlink/links.ts';

/** Opens a control group and, by default, attaches another program's connect4 hook that allows every connect(). */
export function openGroup(
  group: string,
  attach = true,
): { fd: number; linkFd: number; programId: number; close(): void } {
  const fd = openSync(group, 'r');
  if (!attach) return { fd, linkFd: -1, programId: 0, close: () => closeSync(fd) };
  const program = loadProgram({
    name: 'foreign',
    type: 'sockAddress',
    attach: 'connect4',
    // r0 = 1; exit
    instructions: Uint8Array.of(0xb7, 0, 0, 0, 1, 0, 0, 0, 0x95, 0, 0, 0, 0, 0, 0, 0),
    license: 'Apache-2.0',
  });
  const link = linkCgroup(program.fd, group, 'connect4');
  const programId = programInfo(program.fd).id;
  return {
    fd,
    linkFd: link.fd,
    programId,
    close() {
      link.close();
      program.close();
      closeSync(fd);
    },
  };
}

/** Attaches a foreign program, which lets all packets pass, to a device. */
export function attachForeign(netns: string, device: string): { isAttached(): boolean; close(): void } {
  using socket = openRouteSocket(netns);
  const { index } = getLink(socket, device);
  const program = loadProgram({
    name: 'foreign',
    type: 'tc',
    // r0 = -1; exit
    instructions: Uint8Array.of(0xb7, 0, 0, 0, 0xff, 0xff, 0xff, 0xff, 0x95, 0, 0, 0, 0, 0, 0, 0),
    license: 'Apache-2.0',
  });
  const link = inNetns(netns, () => linkDevice(program.fd, index, 'tcxIngress'));
  return {
    isAttached: () => linkInfo(link.fd).interface === index,
    close() {
      link.close();
      program.close();
    },
  };
}

/** Returns true if the kernel has a program or map with this number. */
export function isInKernel(kind: 'program' | 'map', id: number): boolean {
  const command = kind === 'program' ? COMMAND.programById : COMMAND.mapById;
  const fd = tryBpf(command, new Attributes(16).u32(0, id));
  if (fd >= 0) closeSync(fd);
  return fd >= 0;
}

/** Returns the numbers of the programs and maps that are pinned in a folder. */
export function pinnedNumbers(folder: string): { programs: number[]; maps: number[] } {
  const programs: number[] = [];
  const maps: number[] = [];
  for (const name of readdirSync(folder)) {
    const fd = openPin(join(folder, name));
    if (fd === null) continue;
    if (name.startsWith('link-')) programs.push(linkInfo(fd).programId);
    else maps.push(mapInfo(fd).id);
    closeSync(fd);
  }
  return { programs: [...new Set(programs)], maps };
}
