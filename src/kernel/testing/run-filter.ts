import type { FilterInstruction } from '../socket-filter.ts';

/** Runs a classic BPF program (linux/filter.h) on a frame, as the kernel does: a load behind the end returns 0. */
export function runFilter(program: readonly FilterInstruction[], frame: Uint8Array): number {
  const view = new DataView(frame.buffer, frame.byteOffset, frame.byteLength);
  const memory = new Uint32Array(16);
  let a = 0;
  let x = 0;
  for (let at = 0; at < program.length; at++) {
    const [code, jt, jf, k] = program[at] ?? [6, 0, 0, 0];
    const kind = code & 7;
    const operand = code & 8 ? x : k;
    switch (kind) {
      case 0:
      case 1: {
        const loaded = load(view, memory, code, k, x);
        if (loaded === null) return 0;
        if (kind === 0) a = loaded;
        else x = loaded;
        break;
      }
      case 2:
        memory[k] = a;
        break;
      case 4:
        a = calculate(code & 0xf0, a, operand) >>> 0;
        break;
      case 5: {
        const test = code & 0xf0;
        if (test === 0) at += k;
        else at += jumps(test, a, operand) ? jt : jf;
        break;
      }
      case 6:
        return k;
      case 7:
        if (code & 0x80) a = x;
        else x = a;
    }
  }
  throw new Error('the program has no end');
}

function load(view: DataView, memory: Uint32Array, code: number, k: number, x: number): number | null {
  const mode = code & 0xe0;
  if (mode === 0x00) return k;
  if (mode === 0x60) return memory[k] ?? 0;
  const offset = mode === 0x40 ? x + k : k;
  const size = { 0: 4, 8: 2, 16: 1 }[code & 0x18] ?? 4;
  if (offset + size > view.byteLength) return null;
  if (mode === 0xa0) return 4 * (view.getUint8(offset) & 0xf);
  return size === 4 ? view.getUint32(offset) : size === 2 ? view.getUint16(offset) : view.getUint8(offset);
}

function calculate(operation: number, a: number, operand: number): number {
  switch (operation) {
    case 0x00:
      return a + operand;
    case 0x10:
      return a - operand;
    case 0x50:
      return a & operand;
    case 0x60:
      return a << operand;
    default:
      throw new Error(`no such operation: ${operation}`);
  }
}

function jumps(test: number, a: number, operand: number): boolean {
  switch (test) {
    case 0x10:
      return a === operand;
    case 0x30:
      return a >= operand;
    case 0x40:
      return (a & operand) !== 0;
    default:
      throw new Error(`no such test: ${test}`);
  }
}
