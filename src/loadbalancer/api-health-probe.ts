/** Probes whether the API server answers this client. */
export interface ApiHealthProbe {
  /** Sends a small request, unless one is in flight or was just sent. */
  probe(): void;
  /**
   * Returns the milliseconds for which every request was answered in time; 0 after a failure or without a
   * recent request.
   */
  healthyMs(): number;
}

export interface ApiHealthProbeOptions {
  readonly ask: () => Promise<unknown>;
  /** Milliseconds of a monotonic clock. */
  readonly steady: () => number;
  /** Returns the time after which an answer counts as a failure. */
  readonly slowMs: () => number;
  /** Called after each answer or failure. */
  readonly onResult: () => void;
}

const MIN_GAP_MS = 50;

export function createApiHealthProbe({
  ask,
  steady,
  slowMs,
  onResult,
}: ApiHealthProbeOptions): ApiHealthProbe {
  /** The time of the first request in an unbroken series of timely answers. */
  let healthySince: number | null = null;
  let lastSent = Number.NEGATIVE_INFINITY;
  let isAsking = false;
  const settle = (answered: boolean) => {
    isAsking = false;
    if (!answered || steady() - lastSent > slowMs()) healthySince = null;
    else healthySince ??= lastSent;
    onResult();
  };
  return {
    probe() {
      const now = steady();
      if (isAsking || now - lastSent < MIN_GAP_MS) return;
      // The time between two requests far apart is unknown, as after a suspended process resumes.
      if (now - lastSent > MIN_GAP_MS + slowMs()) healthySince = null;
      lastSent = now;
      isAsking = true;
      ask().then(
        () => settle(true),
        () => settle(false),
      );
    },
    healthyMs() {
      const now = steady();
      return healthySince === null || now - lastSent > MIN_GAP_MS + slowMs() ? 0 : now - healthySince;
    },
  };
}
