/** Whether an API server answers at present, as one of its clients sees it. */
export interface ServerPulse {
  /** Asks it something small, unless it was asked a moment ago. */
  beat(): void;
  /** For how long it has answered every time, and at once; 0 when it does not, or was not asked lately. */
  healthyMs(): number;
}

export interface ServerPulseOptions {
  readonly ask: () => Promise<unknown>;
  /** Milliseconds of a clock that nobody sets. */
  readonly steady: () => number;
  /** An answer that takes longer is none. */
  readonly slowMs: number;
  /** Something is known anew. */
  readonly onBeat: () => void;
}

/** Least time between two questions. */
const GAP_MS = 50;

export function createServerPulse({ ask, steady, slowMs, onBeat }: ServerPulseOptions): ServerPulse {
  /** Since when every question was answered in time. */
  let since: number | null = null;
  let asked = Number.NEGATIVE_INFINITY;
  let isAsking = false;
  const settle = (answered: boolean) => {
    isAsking = false;
    if (!answered || steady() - asked > slowMs) since = null;
    else since ??= asked;
    onBeat();
  };
  return {
    beat() {
      const now = steady();
      if (isAsking || now - asked < GAP_MS) return;
      // What was so before a pause says nothing of the time in between; nor does what this process slept through.
      if (now - asked > GAP_MS + slowMs) since = null;
      asked = now;
      isAsking = true;
      ask().then(
        () => settle(true),
        () => settle(false),
      );
    },
    healthyMs() {
      const now = steady();
      return since === null || now - asked > GAP_MS + slowMs ? 0 : now - since;
    },
  };
}
