import { messageOf } from '../lib/errors.ts';
import type { Logger } from '../lib/log.ts';
import type { Supervision } from './supervision.ts';

/** The supervisor's record of the processes, in memory and in processes.json. */
export interface SupervisionRecord {
  /** Replaces the record. Does not throw: a failed write, for example on a full disk, is repeated by `retry`. */
  put(supervision: Supervision): void;
  /** Writes the record if its last write failed. */
  retry(): void;
  current(): RecordState;
}

export interface RecordState {
  readonly supervision: Supervision;
  /** Why processes.json is out of date; null: it is current. */
  readonly problem: string | null;
}

/** `onChange` is called after each change of the record and of its problem. */
export function createSupervisionRecord(options: {
  readonly initial: Supervision;
  readonly write: (supervision: Supervision) => void;
  readonly onChange: (state: RecordState) => void;
  readonly logger: Logger;
}): SupervisionRecord {
  const { write, onChange, logger } = options;
  let state: RecordState = { supervision: options.initial, problem: null };
  const put = (supervision: Supervision) => {
    let problem: string | null = null;
    try {
      write(supervision);
    } catch (error) {
      problem = messageOf(error);
    }
    const isKnown = problem === state.problem;
    if (isKnown && supervision === state.supervision) return;
    state = { supervision, problem };
    if (!isKnown && problem !== null)
      logger.error({}, `failed to write the record of the processes: ${problem}`);
    else if (!isKnown) logger.info({}, 'wrote the record of the processes again');
    onChange(state);
  };
  return {
    put,
    retry() {
      if (state.problem !== null) put(state.supervision);
    },
    current: () => state,
  };
}
