import { closeSync, openSync, readdirSync } from 'node:fs';
import { join } from 'node:path';
import { linkCgroup, linkDevice, linkInfo } from '../../../kernel/bpf/link.ts';
import { createMap, mapInfo } from '../../../kernel/bpf/map.ts';
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

/** An instruction (struct bpf_insn): code, registers (source << 4 | destination), offset, number. */
type Instruction = readonly [code: number, registers: number, offset: number, number: number];

/** BPF_SOCK_OPS_RTT_CB_FLAG */
export const RTT_CALLBACK = 8;

/**
 * Attaches another program's sock_ops hook, which asks for calls at each measured round trip when a socket connects.
 * `flags` returns the callbacks (BPF_SOCK_OPS_*_CB_FLAG) of the last socket that was connected; null: none was.
 */
export function attachSockOps(group: string): { flags(): number | null; close(): void } {
  const map = createMap({ name: 'foreign', kind: 'hash', keySize: 4, valueSize: 4, maxEntries: 1 });
  const code: readonly Instruction[] = [
    [0xbf, 0x16, 0, 0], // r6 = r1
    [0x61, 0x62, 0, 0], // r2 = op
    [0x55, 0x02, 5, 3], // unless BPF_SOCK_OPS_TCP_CONNECT_CB: skip 5
    [0x61, 0x62, 84, 0], // r2 = bpf_sock_ops_cb_flags
    [0x47, 0x02, 0, RTT_CALLBACK], // r2 |= RTT_CALLBACK
    [0xbf, 0x61, 0, 0], // r1 = r6
    [0x85, 0, 0, 59], // bpf_sock_ops_cb_flags_set(r1, r2)
    [0x05, 0, 12, 0], // skip 12
    [0x55, 0x02, 11, 4], // unless BPF_SOCK_OPS_ACTIVE_ESTABLISHED_CB: skip 11
    [0x61, 0x62, 84, 0], // r2 = bpf_sock_ops_cb_flags
    [0x63, 0x2a, -8, 0], // the value, on the stack
    [0x62, 0x0a, -4, 0], // the key
    [0x18, 0x11, 0, map.fd], // r1 = map
    [0, 0, 0, 0],
    [0xbf, 0xa2, 0, 0], // r2 = stack
    [0x07, 0x02, 0, -4],
    [0xbf, 0xa3, 0, 0], // r3 = stack
    [0x07, 0x03, 0, -8],
    [0xb7, 0x04, 0, 0], // r4 = BPF_ANY
    [0x85, 0, 0, 2], // bpf_map_update_elem
    [0xb7, 0, 0, 1], // r0 = 1
    [0x95, 0, 0, 0], // exit
  ];
  const instructions = Buffer.alloc(code.length * 8);
  for (const [i, [op, registers, offset, number]] of code.entries()) {
    instructions.set([op, registers], i * 8);
    instructions.writeInt16LE(offset, i * 8 + 2);
    instructions.writeInt32LE(number, i * 8 + 4);
  }
  const program = loadProgram({ name: 'foreign', type: 'sockOps', instructions, license: 'Apache-2.0' });
  const link = linkCgroup(program.fd, group, 'sockOps');
  return {
    flags() {
      const value = map.lookup(new Uint8Array(4));
      return value && new DataView(value.buffer).getUint32(0, true);
    },
    close() {
      link.close();
      program.close();
      closeSync(map.fd);
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
