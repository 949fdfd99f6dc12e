import { FairleadError, messageOf } from '../../lib/errors.ts';
import type { Logger } from '../../lib/log.ts';
import type { LiveTable, TableInput } from './restore.ts';

/** The maximum number of chains that are left out separately. */
const MAX_KEPT = 16;

/** Chains that the last complete programming could not delete because foreign rules jump to them. */
export interface KeptChains {
  readonly errors: ReadonlyMap<string, Error>;
  /** Records the chain that could not be deleted; returns false if something else failed. */
  keep(error: unknown): boolean;
  /** Empties the chains that cannot be deleted. */
  emptying(input: TableInput, live: LiveTable): TableInput;
  clear(): void;
}

export function createKeptChains(logger: Logger): KeptChains {
  const errors = new Map<string, Error>();
  return {
    errors,
    keep(error) {
      const chain = /^-X (KUBE-\S+)/.exec((error instanceof FairleadError && error.object) || '')?.[1];
      if (chain === undefined || errors.has(chain) || errors.size >= MAX_KEPT) return false;
      errors.set(chain, error as Error);
      logger.error(
        { chain, error: messageOf(error) },
        'cannot delete a chain because foreign rules jump to it: emptied instead',
      );
      return true;
    },
    emptying(input, live) {
      if (errors.size === 0) return input;
      const kept = input.deleted.filter((chain) => errors.has(chain));
      const full = kept.filter((chain) => live.chains.get(chain)?.length !== 0);
      return {
        ...input,
        written: new Map([...input.written, ...full.map((chain) => [chain, []] as const)]),
        deleted: input.deleted.filter((chain) => !errors.has(chain)),
      };
    },
    clear: () => errors.clear(),
  };
}
