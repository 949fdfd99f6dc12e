import type { ApplyReport, Drift, Mode } from '../dataplane/dataplane.ts';
import type { Outcome } from '../failover/outcome.ts';
import type { Change, Finding, ServiceMap } from '../service/model.ts';

/** The events of the proxy of a node. Changes and maps are valid during the event only. */
export type ProxyEvent =
  | Applied
  /** An update failed, or a full sync in which frontends were rejected. */
  | { readonly kind: 'failed'; readonly whole: boolean }
  /** Frontends were rejected for the first time, or for a new reason. */
  | { readonly kind: 'refused'; readonly refused: ApplyReport['failed']; readonly map: ServiceMap }
  | { readonly kind: 'findings'; readonly added: readonly Finding[] }
  | { readonly kind: 'drift'; readonly drifts: readonly Drift[] }
  /** After a mode switch, the previous mode has no flows left. */
  | { readonly kind: 'drained' }
  /** The mode observed the outcome of a connection. */
  | { readonly kind: 'outcome'; readonly outcome: Outcome }
  /** Another mode handles new connections. */
  | { readonly kind: 'mode'; readonly mode: Mode };

/** A change, or everything, was programmed. */
export interface Applied {
  readonly kind: 'applied';
  readonly change: Change;
  readonly map: ServiceMap;
  /** `ProxyOptions.version` of the programmed objects. */
  readonly version: string;
  /** A full sync, not only `change`. */
  readonly whole: boolean;
  readonly report: ApplyReport;
  readonly seconds: number;
}

type Handler<K extends ProxyEvent['kind']> = (event: Extract<ProxyEvent, { kind: K }>) => void;

/** The events of one proxy, by which its parts follow it without knowing each other. */
export interface ProxyStream {
  /** Calls the handlers of the event's kind, in the order of their subscription. */
  emit(event: ProxyEvent): void;
  on<K extends ProxyEvent['kind']>(kind: K, handler: Handler<K>): void;
}

export function createProxyStream(): ProxyStream {
  const handlers = new Map<ProxyEvent['kind'], ((event: ProxyEvent) => void)[]>();
  return {
    emit(event) {
      for (const handler of handlers.get(event.kind) ?? []) handler(event);
    },
    on(kind, handler) {
      const all = handlers.get(kind) ?? [];
      // `emit` calls a handler only with events of its kind.
      all.push(handler as (event: ProxyEvent) => void);
      handlers.set(kind, all);
    },
  };
}
