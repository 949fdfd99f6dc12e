import type { Table } from './chain-names.ts';
import {
  type CountedRule,
  type LiveTable,
  readPackets,
  readTables,
  restore,
  restoreInput,
  type TableInput,
  type Tool,
} from './restore.ts';

/** Changes of both tables: each list is written in order, a commit each. */
export type TableInputs = Readonly<Record<Table, readonly TableInput[]>>;

/** The tables of one family, by the programs of iptables or by the kernel's interface. */
export interface Tables {
  /** Reads both tables. Throws FairleadError. */
  read(): Promise<Record<Table, LiveTable>>;
  /** Applies changes, each atomically. Throws FairleadError with the line of iptables-restore that was refused. */
  write(inputs: TableInputs): Promise<void>;
  /**
   * Returns the packets of the first rule with each of these options in its chain of the filter table; 0 without such a rule.
   * Throws FairleadError.
   */
  packets(counted: readonly CountedRule[]): Promise<number[]>;
  close(): void;
}

/** Returns the tables through iptables-save and iptables-restore. */
export function toolTables(tool: Tool): Tables {
  return {
    read: () => readTables(tool),
    async write(inputs) {
      const text = restoreInput(inputs);
      if (text !== '') await restore(tool, text);
    },
    packets: (counted) => Promise.all(counted.map((one) => readPackets(tool, one))),
    close() {},
  };
}
