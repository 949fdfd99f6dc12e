import { execFile } from 'node:child_process';
import { promisify } from 'node:util';
import type { IPFamily } from '../../lib/address.ts';
import { messageOf } from '../../lib/errors.ts';
import type { Logger } from '../../lib/log.ts';
import type { DataplaneOptions } from '../dataplane.ts';
import { type DriftWatch, watchLegacyTables, watchNftEvents } from './drift-watch.ts';
import { openKernelTables } from './kernel-tables.ts';
import { command, type TableInput, type Tool, type Variant } from './restore.ts';
import { stages } from './staging.ts';
import { type Tables, toolTables } from './tables.ts';

/** The tables of each family, by the variant of iptables that the machine uses, and the watch of changes by others. */
export interface TableAccess {
  readonly tools: ReadonlyMap<IPFamily, Tool>;
  /** Returns the tables of a family; only while `changing` works, or after it. */
  tablesOf(tool: Tool): Tables;
  /** Divides a change that is too large for one transaction. */
  divided(input: TableInput, isLive: (chain: string) => boolean): TableInput[];
  /** Finds out the variant, and takes changes during the work as this program's own. */
  changing<T>(work: () => Promise<T>): Promise<T>;
  close(): void;
}

export interface TableAccessOptions extends Pick<DataplaneOptions, 'families' | 'netns' | 'onForeignChange'> {
  readonly variant: Variant;
  readonly logger: Logger;
}

export function createTableAccess(options: TableAccessOptions): TableAccess {
  const { families, variant, netns, logger, onForeignChange } = options;
  const tools = new Map(
    families.map((family): [IPFamily, Tool] => [
      family,
      { family, variant, netns, onProcess: (pid) => watch?.ownProcess(pid) },
    ]),
  );
  let watch: DriftWatch | null = null;
  let nft: boolean | null = null;
  const opened = new Map<Tool, Tables>();

  async function openWatch(): Promise<void> {
    nft ??= variant === 'auto' ? await isNft() : variant === 'nft';
    if (watch || !onForeignChange) return;
    const settings = { families, netns, onChange: onForeignChange };
    watch = nft ? watchNftEvents(settings) : watchLegacyTables(settings);
  }

  return {
    tools,
    tablesOf(tool) {
      const tables = opened.get(tool) ?? (nft ? toolTables(tool) : openLegacy(tool, logger));
      opened.set(tool, tables);
      return tables;
    },
    divided: (input, isLive) => (nft ? stages(input, isLive) : [input]),
    async changing(work) {
      await openWatch();
      watch?.begin();
      try {
        return await work();
      } finally {
        watch?.end();
      }
    },
    close() {
      watch?.close();
      watch = null;
      for (const tables of opened.values()) tables.close();
      opened.clear();
    },
  };
}

function openLegacy(tool: Tool, logger: Logger): Tables {
  const onToolUsed = (reason: string) =>
    logger.info({ reason }, `${command(tool, '-restore')} does what the kernel interface cannot`);
  const onLostCounters = (error: string) =>
    logger.warn({ error }, 'the counters of other iptables rules start at zero again');
  try {
    return openKernelTables(tool, { onToolUsed, onLostCounters });
  } catch (error) {
    onToolUsed(messageOf(error));
    return toolTables(tool);
  }
}

async function isNft(): Promise<boolean> {
  const { stdout } = await promisify(execFile)('iptables', ['--version']);
  return stdout.includes('nf_tables');
}
