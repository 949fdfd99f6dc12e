import { type Clock, pause } from '../../lib/clock.ts';
import { describeError, FairleadError } from '../../lib/errors.ts';
import type { Logger } from '../../lib/log.ts';
import { createSigningKey, type KeyedCertificate } from '../../lib/pki.ts';
import { type CertificateStore, type HeldCertificate, readPair } from './certificate-store.ts';
import { backoffMs, type CertificateTerms, type Renewal, renewalOf } from './renewal.ts';

export interface CertificateKeeperOptions {
  /** "client certificate", for the log. */
  readonly what: string;
  readonly store: CertificateStore;
  /** Returns what the certificate must be for; null: that is not known yet. */
  readonly terms: () => CertificateTerms | null;
  /** Called once for each persistent problem; null: a certificate was issued after one. */
  readonly onProblem: (problem: string | null) => void;
  /** Has a key certified: PEM. Throws if that is refused. */
  readonly obtain: (terms: CertificateTerms, key: string, signal: AbortSignal) => Promise<string>;
  readonly clock: Clock;
  /** 0 ≤ n < 1; spreads the nodes. */
  readonly random: () => number;
  readonly logger: Logger;
  readonly signal: AbortSignal;
}

/** A certificate of this node that is renewed in time. */
export interface CertificateKeeper {
  /** Returns the certificate; null: none was issued yet. */
  current(): HeldCertificate | null;
  /** Calls the listener with each later certificate. */
  onRenewal(listener: (pair: KeyedCertificate) => void): void;
  /** Checks the certificate again: the result of `terms` may have changed. */
  recheck(): void;
}

/** Timers of Node.js hold 24 days; a suspended machine must notice soon how late it is. */
const MAX_PAUSE_MS = 3_600_000;
const REASONS: Readonly<Record<Renewal['reason'], string>> = {
  missing: 'there is none',
  expired: 'it has expired',
  subject: 'it is for another node',
  names: "the node's names or addresses have changed",
  age: 'most of its life is over',
};

/** Keeps a certificate valid until the signal aborts: requests the first one, and others as `renewalOf` says. */
export function keepCertificate(options: CertificateKeeperOptions): CertificateKeeper {
  const { what, store, terms, clock, random, logger, signal } = options;
  const listeners = new Set<(pair: KeyedCertificate) => void>();
  let held = store.read();
  let known = '';
  let change = new AbortController();

  const renew = async (wanted: CertificateTerms, { reason }: Renewal, ended: AbortSignal) => {
    logger.info({}, `requesting a ${what}: ${REASONS[reason]}`);
    const key = createSigningKey();
    const cert = await options.obtain(wanted, key, ended);
    const issued = readPair(cert, key);
    if (issued === null) throw unfit(what, 'it is not of the requested key');
    store.write(issued);
    held = issued;
    logger.info({}, `new ${what}, valid until ${new Date(held.until).toISOString()}`);
    for (const listener of listeners) listener(held);
  };
  const run = async () => {
    let share = random();
    let failures = 0;
    let reported = '';
    while (!signal.aborted) {
      const ended = AbortSignal.any([signal, change.signal]);
      const wanted = terms();
      known = JSON.stringify(wanted);
      const renewal = wanted === null ? null : renewalOf(held, wanted, share, clock.now());
      if (wanted === null || renewal === null || renewal.at > clock.now()) {
        const ms = renewal === null ? MAX_PAUSE_MS : renewal.at - clock.now();
        await pause(clock, Math.min(ms, MAX_PAUSE_MS), ended);
        continue;
      }
      try {
        await renew(wanted, renewal, ended);
        share = random();
        const next = renewalOf(held, wanted, share, clock.now());
        // Requested again at once, it would be the same.
        if (next.at <= clock.now()) throw unfit(what, REASONS[next.reason]);
        failures = 0;
        if (reported !== '') options.onProblem(null);
        reported = '';
      } catch (error) {
        if (ended.aborted) continue;
        const problem = problemOf(what, held, error, clock.now());
        if (problem !== reported) options.onProblem(problem);
        reported = problem;
        await pause(clock, backoffMs(++failures, random()), ended);
      }
    }
  };
  void run();
  return {
    current: () => held,
    onRenewal: (listener) => listeners.add(listener),
    recheck() {
      if (JSON.stringify(terms()) === known) return;
      change.abort();
      change = new AbortController();
    },
  };
}

const unfit = (what: string, why: string) =>
  new FairleadError(`the issued ${what} cannot be used: ${why}`, {
    op: 'request certificate',
    code: 'no-certificate',
    hint: 'check the duration and the policy of the signer',
  });

function problemOf(what: string, held: HeldCertificate | null, error: unknown, now: number): string {
  const state =
    held === null
      ? 'there is none'
      : `the present one ${held.until <= now ? 'expired' : 'is valid until'} ${new Date(held.until).toISOString()}`;
  return `failed to get a ${what}, trying again (${state}): ${describeError(error)}`;
}
