import type { Container, Probe } from '../kube/types.ts';
import type { Clock } from '../lib/clock.ts';
import { type ProbeTarget, runProbe } from './probe.ts';
import type { ProbeResult } from './probe-result.ts';

export interface ProberSignals {
  /** Ends all probes. */
  readonly all: AbortSignal;
  /** Ends the startup and liveness probes; readiness is probed until the container has ended. */
  readonly alive: AbortSignal;
}

export interface ProberEvents {
  onStarted(): void;
  onReady(ready: boolean): void;
  /** Liveness or startup has failed by its threshold: the container must be killed. */
  onUnhealthy(kind: 'liveness' | 'startup', message: string, probe: Probe): void;
  /** Called for every probe that fails, or passes with a warning, for an event. */
  onProblem(kind: 'liveness' | 'readiness' | 'startup', result: ProbeResult): void;
}

/** The initial period of the readiness probe until a container is ready for the first time, growing to the probe's period. */
const FIRST_READY_MS = 20;

/**
 * Probes one running container: startup first, then liveness and readiness concurrently. Ends with the signal.
 */
export function startProber(
  container: Container,
  target: ProbeTarget,
  clock: Clock,
  signals: ProberSignals,
  events: ProberEvents,
): void {
  const afterStartup = () => {
    events.onStarted();
    if (container.livenessProbe) {
      const probe = container.livenessProbe;
      loop('liveness', probe, (healthy, message) => {
        if (!healthy) events.onUnhealthy('liveness', message, probe);
        return healthy;
      });
    }
    if (container.readinessProbe) {
      loop('readiness', container.readinessProbe, (ready) => {
        events.onReady(ready);
        return true;
      });
    } else events.onReady(true);
  };
  /** `settled` is called when the probe's verdict changes by its thresholds; it returns whether to continue. */
  const loop = (
    kind: 'liveness' | 'readiness' | 'startup',
    probe: Probe,
    settled: (good: boolean, message: string) => boolean,
  ): void => {
    const signal = kind === 'readiness' ? signals.all : signals.alive;
    const period = (probe.periodSeconds ?? 10) * 1000;
    let successes = 0;
    let failures = 0;
    let verdict: boolean | null = kind === 'readiness' ? false : null;
    let eager = kind === 'readiness' && !probe.initialDelaySeconds ? FIRST_READY_MS : period;
    const run = async () => {
      const result = await runProbe(probe, target, (probe.timeoutSeconds ?? 1) * 1000);
      if (signal.aborted) return;
      if (result.ok) {
        if (result.hasWarning) events.onProblem(kind, result);
        successes++;
        failures = 0;
        if (verdict !== true && successes >= (probe.successThreshold ?? 1)) {
          verdict = true;
          eager = period;
          if (!settled(true, result.message)) return;
        }
      } else {
        failures++;
        successes = 0;
        if (eager >= period) events.onProblem(kind, result);
        if (verdict !== false && failures >= (probe.failureThreshold ?? 3)) {
          verdict = false;
          if (!settled(false, result.message)) return;
        }
      }
      const wait = Math.min(period, eager);
      if (eager < period) eager *= 1.6;
      later(wait);
    };
    const later = (ms: number) => {
      const cancel = clock.after(ms, () => {
        signal.removeEventListener('abort', cancel);
        void run();
      });
      signal.addEventListener('abort', cancel, { once: true });
    };
    later((probe.initialDelaySeconds ?? 0) * 1000);
  };
  if (container.startupProbe) {
    const probe = container.startupProbe;
    loop('startup', probe, (good, message) => {
      if (good) afterStartup();
      else events.onUnhealthy('startup', message, probe);
      return false;
    });
  } else afterStartup();
}
