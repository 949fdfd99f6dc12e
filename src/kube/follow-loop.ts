import { type Clock, pause } from '../lib/clock.ts';
import { messageOf } from '../lib/errors.ts';
import type { Logger } from '../lib/log.ts';
import { ApiError, hasReason } from './client.ts';
import { type MissingRule, missingRule } from './missing-rule.ts';
import type { Follower } from './server-contact.ts';
import type { KubeObject, Resource } from './types.ts';

const FIRST_BACKOFF_MS = 50;
const MAX_BACKOFF_MS = 30_000;
/** For a server that is unreachable or starting: agents reconnect soon after it is available. */
const MAX_STARTING_BACKOFF_MS = 5000;
/**
 * How long refusals (403, 404 …) are taken for those of a server that is starting, which has not read its roles yet.
 * After that, all agents of a large cluster must not repeat them every few seconds.
 */
const STARTING_MS = 120_000;
/** Interval between attempts for an optional resource that is missing or forbidden. */
const OPTIONAL_RETRY_MS = 600_000;

export interface FollowLoopOptions {
  readonly resource: Resource;
  /** See InformerOptions. */
  readonly optional?: boolean;
  readonly onRefused?: (error: ApiError) => void;
  readonly clock: Clock;
  /** 0 ≤ n < 1 */
  readonly random: () => number;
  readonly logger: Logger;
  readonly signal: AbortSignal;
}

/** The requests of the loop, and the receivers of its reports. */
export interface FollowSteps {
  /** Lists everything. Returns the version of the list. */
  list(): Promise<string>;
  /** Watches from a version until the watch ends. Returns the version that it has reached. */
  watch(version: string): Promise<string>;
  /** Uses the objects of an earlier run, unless there are newer ones. */
  useCache(): void;
  /** Whether the latest request was a watch that the server accepted. */
  isOpen(): boolean;
  cachedAt(): number | null;
  readonly follower: Follower;
  readonly rights: Rights;
}

interface LoopState {
  /** Where the next watch begins; null: with a list. */
  version: string | null;
  backoff: number;
  /** The latest watch ended because its version was too old. */
  expired: boolean;
  /** A missing or forbidden optional resource was reported. */
  refused: boolean;
  /** When the server that answers now began to refuse. */
  refusedSince: number | null;
  /** How often in succession watches broke at once. */
  breaks: number;
}

/** Lists and watches a resource, again after each failure, until the signal aborts. */
export async function followServer(options: FollowLoopOptions, steps: FollowSteps): Promise<void> {
  const { clock, logger, signal, resource } = options;
  const complaints = createComplaints(logger, resource.plural);
  const state: LoopState = {
    ...{ version: null, backoff: FIRST_BACKOFF_MS, expired: false },
    ...{ refused: false, refusedSince: null, breaks: 0 },
  };
  while (!signal.aborted) {
    const startedAt = clock.now();
    try {
      if (state.version === null) {
        state.version = await steps.list();
        if (!state.expired) state.backoff = FIRST_BACKOFF_MS;
      }
      state.version = await steps.watch(state.version);
      Object.assign(state, { expired: false, refusedSince: null, breaks: 0 });
      complaints.forget();
      if (clock.now() - startedAt > 5000) state.backoff = FIRST_BACKOFF_MS;
      // Prevents a busy loop with a server that ends watches immediately.
      if (clock.now() - startedAt < 1000) await pause(clock, FIRST_BACKOFF_MS, signal);
    } catch (error) {
      if (signal.aborted) break;
      if (hasReason(error, 'Expired', 'Gone')) await listAgain(options, steps, state);
      else await recover(options, steps, state, complaints, error);
    }
  }
}

async function listAgain(
  { resource, clock, random, logger, signal }: FollowLoopOptions,
  { follower }: FollowSteps,
  state: LoopState,
): Promise<void> {
  follower.answered();
  logger.info({ resource: resource.plural }, 'watch expired; listing again');
  // A first 410 is handled immediately; repeated ones wait, to prevent a busy loop.
  if (state.version === null || state.expired)
    await pause(clock, state.backoff * (0.5 + random() / 2), signal);
  state.backoff = Math.min(state.backoff * 2, MAX_BACKOFF_MS);
  state.expired = true;
  state.version = null;
}

/** Reports a failure of a list or watch, and waits. */
async function recover(
  options: FollowLoopOptions,
  { useCache, isOpen, cachedAt, follower, rights }: FollowSteps,
  state: LoopState,
  complaints: Complaints,
  error: unknown,
): Promise<void> {
  const { clock, signal } = options;
  const now = clock.now();
  state.refusedSince = isRefusal(error) ? (state.refusedSince ?? now) : null;
  if (state.refusedSince === null) useCache();
  else follower.answered();
  const isStarting = state.refusedSince === null || now - state.refusedSince < STARTING_MS;
  const longest = isStarting ? MAX_STARTING_BACKOFF_MS : MAX_BACKOFF_MS;
  const delay = Math.min(state.backoff, longest) * (0.5 + options.random() / 2);
  state.backoff = Math.min(state.backoff * 2, MAX_BACKOFF_MS);
  if (options.optional && hasReason(error, 'NotFound', 'Forbidden')) {
    if (!state.refused) reportRefusal(options, error);
    state.refused = true;
    state.version = null;
    await pause(clock, isStarting ? delay : OPTIONAL_RETRY_MS, signal);
    return;
  }
  const verb = state.version === null ? 'list' : 'watch';
  if (hasReason(error, 'Forbidden')) rights.forbidden(error, verb);
  else if (state.refusedSince !== null) complaints.report(`failed to ${verb}`, error);
  else if (!isOpen()) follower.lost(messageOf(error), cachedAt());
  // A first break is that of a server that restarts, or of another one that takes over.
  else if (state.breaks++ > 0) complaints.report('the watch was interrupted again:', error);
  await follower.pause(delay, signal);
}

/** Reports whether the server answered, and refused; credentials (401) and load (429) are not a matter of rules. */
function isRefusal(error: unknown): boolean {
  return (
    error instanceof ApiError &&
    error.status >= 400 &&
    error.status < 500 &&
    ![401, 429].includes(error.status)
  );
}

type Complaints = ReturnType<typeof createComplaints>;

/** Logs a problem once, until it changes or is over. */
function createComplaints(logger: Logger, resource: string) {
  let complaint = '';
  return {
    report(what: string, error: unknown) {
      const message = `${what} ${resource}: ${messageOf(error)}`;
      if (message !== complaint) logger.warn({ resource }, message);
      complaint = message;
    },
    forget() {
      complaint = '';
    },
  };
}

interface RightsOptions<T extends KubeObject> {
  readonly resource: Resource<T>;
  readonly namespace?: string;
  readonly logger: Logger;
  /** See InformerOptions. */
  readonly onMissingRule?: (rule: MissingRule | null) => void;
}

/** The rights to list and watch a resource. */
export type Rights = ReturnType<typeof watchRights>;

/** Reports a right that the server refuses, and when it grants it. */
export function watchRights<T extends KubeObject>({
  resource,
  namespace,
  logger,
  onMissingRule,
}: RightsOptions<T>) {
  let missing: MissingRule | null = null;
  return {
    forbidden(error: ApiError, verb: MissingRule['verb']) {
      if (missing?.verb === verb) return;
      missing = missingRule(error, verb, resource, namespace);
      logger.warn({ resource: resource.plural, verb }, missing.message);
      onMissingRule?.(missing);
    },
    allowed() {
      if (missing === null) return;
      logger.info({ resource: resource.plural }, `allowed to list and watch ${missing.resource} now`);
      missing = null;
      onMissingRule?.(null);
    },
  };
}

function reportRefusal({ resource, logger, onRefused }: FollowLoopOptions, error: ApiError): void {
  logger.info({ resource: resource.plural }, `failed to watch: ${messageOf(error)}`);
  onRefused?.(error);
}
