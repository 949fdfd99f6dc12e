import { closeSync, constants, openSync } from 'node:fs';
import { libc } from '../libc.ts';
import { attachProgram, loadProgram, openProgram, programInfo, programsAt } from './program.ts';

/** A character device that processes may use, by its numbers. */
export interface CharacterDevice {
  readonly major: number;
  /** Absent: all. */
  readonly minor?: number;
}

/** A loaded program that decides which devices the processes of control groups may use. It stays as long as this process. */
export interface DeviceFilter {
  /**
   * Attaches it to a control group and those below, until the group is removed, unless an earlier process has. Throws the kernel's
   * error.
   */
  attach(group: string): void;
}

/**
 * Loads a filter: nodes of all devices may be made, none opened but the allowed ones. It is attached without an OCI runtime, as
 * crun needs CAP_SYS_RESOURCE for its own. Throws FairleadError where the kernel has no such programs (CONFIG_CGROUP_BPF).
 */
export function loadDeviceFilter(allowed: readonly CharacterDevice[]): DeviceFilter {
  const program = loadProgram({
    name: 'fl_devices',
    type: 'cgroupDevice',
    instructions: encode(filterOf(allowed)),
    license: 'Apache-2.0',
  });
  const { tag } = programInfo(program.fd);
  return {
    attach(group) {
      const fd = openSync(group, constants.O_DIRECTORY | constants.O_RDONLY);
      try {
        if (!programsAt(fd, 'device', false).some((id) => tagOf(id) === tag))
          attachProgram(program.fd, fd, 'device');
      } finally {
        closeSync(fd);
      }
    },
  };
}

/** Returns the digest of a program's instructions; null: it is gone. */
function tagOf(id: number): string | null {
  const fd = openProgram(id);
  if (fd === null) return null;
  try {
    return programInfo(fd).tag;
  } finally {
    libc().close(fd);
  }
}

/** An instruction; `to`: the end of the program that it jumps to. */
interface Instruction {
  readonly op: number;
  readonly to?: 'allow' | 'deny';
  readonly registers?: number;
  readonly offset?: number;
  readonly value?: number;
}

// linux/bpf.h, linux/bpf_common.h.
const LOAD_WORD = 0x61;
const MOVE = 0xbf;
const MOVE_VALUE = 0xb7;
const SHIFT_RIGHT = 0x77;
const AND = 0x57;
const IF_EQUAL = 0x15;
const UNLESS_EQUAL = 0x55;
const EXIT = 0x95;
const BPF_DEVCG_ACC_MKNOD = 1;
const BPF_DEVCG_DEV_CHAR = 2;
// struct bpf_cgroup_dev_ctx
const ACCESS_AND_TYPE = 0;
const MAJOR = 4;
const MINOR = 8;

/** R1 is the context, R0 the result. */
function filterOf(allowed: readonly CharacterDevice[]): Instruction[] {
  const [access, type, major, minor] = [2, 3, 4, 5];
  const load = (register: number, offset: number) => ({ op: LOAD_WORD, registers: register | 0x10, offset });
  return [
    load(access, ACCESS_AND_TYPE),
    { op: MOVE, registers: type | (access << 4) },
    { op: SHIFT_RIGHT, registers: access, value: 16 },
    { op: AND, registers: type, value: 0xffff },
    { op: IF_EQUAL, registers: access, value: BPF_DEVCG_ACC_MKNOD, to: 'allow' },
    { op: UNLESS_EQUAL, registers: type, value: BPF_DEVCG_DEV_CHAR, to: 'deny' },
    load(major, MAJOR),
    load(minor, MINOR),
    ...allowed.flatMap((device): Instruction[] =>
      device.minor === undefined
        ? [{ op: IF_EQUAL, registers: major, value: device.major, to: 'allow' }]
        : [
            { op: UNLESS_EQUAL, registers: major, value: device.major, offset: 1 },
            { op: IF_EQUAL, registers: minor, value: device.minor, to: 'allow' },
          ],
    ),
    { op: MOVE_VALUE, value: 0 },
    { op: EXIT },
    { op: MOVE_VALUE, value: 1 },
    { op: EXIT },
  ];
}

/** The last two instructions allow, the two before deny. */
function encode(program: readonly Instruction[]): Uint8Array {
  const bytes = Buffer.alloc(program.length * 8);
  const ends = { allow: program.length - 2, deny: program.length - 4 };
  for (const [i, { op, to, registers = 0, offset = 0, value = 0 }] of program.entries()) {
    bytes.writeUInt8(op, i * 8);
    bytes.writeUInt8(registers, i * 8 + 1);
    bytes.writeInt16LE(to === undefined ? offset : ends[to] - i - 1, i * 8 + 2);
    bytes.writeInt32LE(value, i * 8 + 4);
  }
  return bytes;
}
