import {
  createFilterProgram,
  ETHERNET,
  type FilterProgram,
  findTransport,
  OP,
} from '../kernel/filter-program.ts';
import { TCP_FLAG } from '../kernel/packet.ts';
import type { FilterInstruction } from '../kernel/socket-filter.ts';

/** The frames that the kernel passes to a trace: few of the other traffic, and never too few of its own. */
export type FlowFilter =
  /** Segments with a sequence number, or an acknowledgment, less than `window` bytes after `sequence`. */
  | {
      readonly protocol: 'TCP';
      readonly sequence: number;
      readonly window: number;
      /** Segments from or to these ports pass too: of connections that a proxy opens on the flow's behalf. */
      readonly ports: readonly number[];
    }
  /** The first packets of all connections: SYN, SYN-ACK and RST. */
  | { readonly protocol: 'TCP'; readonly handshakes: true }
  /** Datagrams from or to one of these ports. */
  | { readonly protocol: 'UDP'; readonly ports: readonly number[] };

const {
  LD,
  LDX,
  ST,
  ALU,
  RET,
  MISC,
  WORD,
  HALF,
  BYTE,
  IND,
  MEM,
  ADD,
  SUB,
  AND,
  LSH,
  X,
  JEQ,
  JGE,
  JSET,
  TAX,
  TXA,
} = OP;

const PROTOCOL_CELL = 0;
const BASE_CELL = 1;

/**
 * Renders a filter as a classic BPF program for Ethernet frames: IPv4 and IPv6 without extension headers, also inside VXLAN
 * on `tunnelPort`, and all ICMP errors. It returns `snapBytes` for frames that pass.
 */
export function flowFilter(
  filter: FlowFilter,
  tunnelPort: number | null,
  snapBytes: number,
): FilterInstruction[] {
  const program = createFilterProgram();
  const { add, jumpIf, jump, label } = program;
  findTransport(program, PROTOCOL_CELL);
  if (tunnelPort !== null) {
    add(LD | MEM, PROTOCOL_CELL);
    jumpIf(JEQ, 17, null, 'transport');
    add(LD | HALF | IND, ETHERNET + 2);
    jumpIf(JEQ, tunnelPort, null, 'transport');
    // The inner frame begins after the headers of UDP and VXLAN; X becomes its offset.
    add(MISC | TXA, 0);
    add(ALU | ADD, ETHERNET + 16);
    add(ST, BASE_CELL);
    add(MISC | TAX, 0);
    add(LD | HALF | IND, 12);
    jumpIf(JEQ, 0x0800, 'inner-4', null);
    jumpIf(JEQ, 0x86dd, null, 'drop');
    add(LD | BYTE | IND, ETHERNET + 6);
    add(ST, PROTOCOL_CELL);
    add(MISC | TXA, 0);
    add(ALU | ADD, 40);
    add(MISC | TAX, 0);
    jump('transport');
    label('inner-4');
    add(LD | BYTE | IND, ETHERNET + 9);
    add(ST, PROTOCOL_CELL);
    add(LD | BYTE | IND, ETHERNET);
    add(ALU | AND, 0xf);
    add(ALU | LSH, 2);
    add(LDX | MEM, BASE_CELL);
    add(ALU | ADD | X, 0);
    add(MISC | TAX, 0);
    label('transport');
  }
  add(LD | MEM, PROTOCOL_CELL);
  jumpIf(JEQ, filter.protocol === 'TCP' ? 6 : 17, 'flow', null);
  jumpIf(JEQ, 1, 'icmp', null);
  jumpIf(JEQ, 58, null, 'drop');
  add(LD | BYTE | IND, ETHERNET);
  jumpIf(JGE, 128, 'drop', 'pass');
  label('icmp');
  add(LD | BYTE | IND, ETHERNET);
  jumpIf(JEQ, 3, 'pass', null);
  jumpIf(JEQ, 11, 'pass', 'drop');
  label('flow');
  if ('handshakes' in filter) {
    add(LD | BYTE | IND, ETHERNET + 13);
    jumpIf(JSET, TCP_FLAG.syn | TCP_FLAG.rst, 'pass', 'drop');
  } else addFlow(program, filter);
  label('drop');
  add(RET, 0);
  label('pass');
  add(RET, snapBytes);
  return program.build();
}

function addFlow(
  { add, jumpIf }: FilterProgram,
  filter: Exclude<FlowFilter, { readonly handshakes: true }>,
): void {
  for (const at of [0, 2]) {
    if (filter.ports.length > 0) add(LD | HALF | IND, ETHERNET + at);
    for (const port of filter.ports) jumpIf(JEQ, port, 'pass', null);
  }
  if (filter.protocol === 'TCP') {
    for (const at of [4, 8]) {
      add(LD | WORD | IND, ETHERNET + at);
      add(ALU | SUB, filter.sequence);
      jumpIf(JGE, filter.window, null, 'pass');
    }
  }
}
