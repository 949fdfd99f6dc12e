import type { FilterInstruction } from './socket-filter.ts';

/** Parts of instruction codes of classic BPF (linux/bpf_common.h, linux/filter.h). */
export const OP = {
  LD: 0x00,
  LDX: 0x01,
  ST: 0x02,
  ALU: 0x04,
  JMP: 0x05,
  RET: 0x06,
  MISC: 0x07,
  WORD: 0x00,
  HALF: 0x08,
  BYTE: 0x10,
  ABS: 0x20,
  IND: 0x40,
  MEM: 0x60,
  MSH: 0xa0,
  ADD: 0x00,
  SUB: 0x10,
  AND: 0x50,
  LSH: 0x60,
  X: 0x08,
  JA: 0x00,
  JEQ: 0x10,
  JGE: 0x30,
  JSET: 0x40,
  TAX: 0x00,
  TXA: 0x80,
} as const;

/** A program in the making. */
export type FilterProgram = ReturnType<typeof createFilterProgram>;

/** Collects instructions and turns labels into distances, which are forward only (linux/filter.h). */
export function createFilterProgram() {
  type Target = string | null;
  const lines: { code: number; k: number; yes: Target; no: Target }[] = [];
  const labels = new Map<string, number>();
  return {
    add: (code: number, k: number) => void lines.push({ code, k, yes: null, no: null }),
    /** Null: the next instruction. */
    jumpIf: (test: number, k: number, yes: Target, no: Target) =>
      void lines.push({ code: OP.JMP | test, k, yes, no }),
    jump: (to: string) => void lines.push({ code: OP.JMP | OP.JA, k: 0, yes: to, no: null }),
    label: (name: string) => void labels.set(name, lines.length),
    build(): FilterInstruction[] {
      const distance = (from: number, to: Target) => (to === null ? 0 : (labels.get(to) ?? 0) - from - 1);
      return lines.map(({ code, k, yes, no }, at): FilterInstruction => {
        if (code === (OP.JMP | OP.JA)) return [code, 0, 0, distance(at, yes)];
        return [code, distance(at, yes), distance(at, no), k];
      });
    },
  };
}

/** Length of an Ethernet header. */
export const ETHERNET = 14;

/**
 * Adds instructions that find the transport header of an Ethernet frame, of IPv4 and of IPv6 without extension headers: from
 * there on it begins at X + ETHERNET, and the cell of memory has its protocol. Other frames go to the label "drop".
 */
export function findTransport({ add, jumpIf, jump, label }: FilterProgram, protocolCell: number): void {
  const { LD, LDX, ST, WORD, HALF, BYTE, ABS, MSH, JEQ } = OP;
  add(LD | HALF | ABS, 12);
  jumpIf(JEQ, 0x0800, 'network-4', null);
  jumpIf(JEQ, 0x86dd, null, 'drop');
  add(LD | BYTE | ABS, ETHERNET + 6);
  add(ST, protocolCell);
  add(LDX | WORD, 40);
  jump('network-end');
  label('network-4');
  add(LD | BYTE | ABS, ETHERNET + 9);
  add(ST, protocolCell);
  add(LDX | BYTE | MSH, ETHERNET);
  label('network-end');
}
