import type { Container, Probe } from '../kube/types.ts';
import type { Clock } from '../lib/clock.ts';
import type { ProbeTarget } from './probe.ts';
import type { ProbeResult } from './probe-result.ts';
import { startProber } from './prober.ts';

export interface HealthEvents {
  /** The container has started, or its readiness has changed. */
  changed(): void;
  /** The container must be stopped. */
  unhealthy(kind: 'liveness' | 'startup', probe: Probe): void;
  /** A probe failed, or passed with a warning. */
  problem(kind: 'liveness' | 'readiness' | 'startup', result: ProbeResult): void;
}

/** The results of a container's probes, run by run. */
export class ContainerHealth {
  #started = false;
  #ready = false;
  #failureMessage: string | null = null;
  #probing: AbortController | null = null;
  /** Ends only the startup and liveness probes. */
  #living: AbortController | null = null;

  get started(): boolean {
    return this.#started;
  }

  get ready(): boolean {
    return this.#ready;
  }

  /** The message of the failed probe that stops the run. */
  get failureMessage(): string | null {
    return this.#failureMessage;
  }

  /** Treats a container as ready until a probe fails: a restart of the agent does not remove its endpoints. */
  adopt(before: { readonly started?: boolean; readonly ready: boolean } | undefined): void {
    this.#started = before?.started ?? false;
    this.#ready = before?.ready ?? false;
  }

  /** Handles the start of a run. */
  begin(): void {
    this.#started = false;
    this.#ready = false;
    this.#failureMessage = null;
  }

  watch(container: Container, target: ProbeTarget, clock: Clock, events: HealthEvents): void {
    const probing = new AbortController();
    this.#probing = probing;
    this.#living = new AbortController();
    const signals = { all: probing.signal, alive: AbortSignal.any([probing.signal, this.#living.signal]) };
    startProber(container, target, clock, signals, {
      onStarted: () => {
        this.#started = true;
        events.changed();
      },
      onReady: (ready) => {
        if (this.#ready === ready) return;
        this.#ready = ready;
        events.changed();
      },
      onUnhealthy: (kind, message, probe) => {
        this.#failureMessage = message;
        events.unhealthy(kind, probe);
      },
      onProblem: events.problem,
    });
  }

  /** Handles the stop of a run: only readiness is still probed. */
  stopping(): void {
    this.#living?.abort();
  }

  /** Handles the end of a run. */
  end(): void {
    this.release();
    this.#ready = false;
    this.#started = false;
  }

  /** Ends the probes. */
  release(): void {
    this.#probing?.abort();
  }
}
