import type { FlowEvent, FlowEventKind, OnFlowEvent } from '../dataplane/flow-event.ts';
import { watchFlows } from '../kernel/conntrack/events.ts';
import { FLOW_STATUS, type Flow } from '../kernel/conntrack/flow.ts';
import type { NetnsRef } from '../kernel/netns.ts';
import { PROTOCOL_NUMBER } from '../kernel/protocol-numbers.ts';
import { nextSample, SAMPLING_MS } from '../lib/sampling.ts';
import type { Protocol } from '../service/model.ts';

export interface TrackedFlowsOptions {
  /** Default: the namespace of this process. */
  readonly netns?: NetnsRef | undefined;
  /** Nanoseconds of the monotonic clock. */
  readonly monotonic: () => bigint;
  readonly onEvent: OnFlowEvent;
  /** The kernel dropped events. */
  readonly onOverrun?: () => void;
  /** From now on only 1 in `share` flows is reported, because there are too many; 1: all again. */
  readonly onSample?: (share: number) => void;
}

/** The maximum number of open flows with durations; the others are reported without. */
const MAX_FLOWS = 65_536;
/** enum tcp_conntrack; in these states the entry outlives its connection for two minutes. */
const TCP_STATE = { timeWait: 7, close: 8 } as const;
const PROTOCOLS = new Map(
  Object.entries(PROTOCOL_NUMBER).map(([name, number]) => [number, name as Protocol]),
);

/**
 * The entry of a refused connection is removed within this time; those of unanswered ones usually later: by the kernel's
 * timeout, or by failover.
 */
const RESET_MICROS = 250_000;

/** A flow that was seen from its first packet. */
interface Begun {
  readonly at: bigint;
  state: 'waiting' | 'answered' | 'over';
}

/**
 * Reports the events of flows that this node translates: those through Services, in the modes that translate packets.
 * Flows that began earlier are reported only when they end.
 */
export function watchTrackedFlows({ netns, monotonic, onEvent, onOverrun, onSample }: TrackedFlowsOptions): {
  close(): void;
} {
  const flows = new Map<number, Begun>();

  let count = 0;
  let share = 1;
  const events = watchFlows(
    ['new', 'update', 'destroy'],
    (change, flow) => {
      const at = monotonic();
      const protocol = PROTOCOLS.get(flow.original.protocol);
      if (!protocol) return;
      const begun = flows.get(flow.id);
      const report = (kind: FlowEventKind, micros: number) =>
        onEvent(eventOf(kind, flow, protocol, micros, at));
      const age = () => (begun ? Number((at - begun.at) / 1000n) : 0);
      switch (change) {
        case 'new':
          if (flows.size < MAX_FLOWS) flows.set(flow.id, { at, state: 'waiting' });
          if (protocol === 'UDP') report('chosen', 0);
          return;
        case 'update':
          if (!begun || protocol === 'UDP' || !isAnswered(flow)) return;
          if (begun.state === 'waiting') {
            begun.state = flow.tcpState === TCP_STATE.close ? 'over' : 'answered';
            report(begun.state === 'over' ? 'reset' : 'established', age());
          } else if (begun.state === 'answered' && isOver(flow)) {
            begun.state = 'over';
            report('closed', age());
          }
          return;
        case 'destroy':
          flows.delete(flow.id);
          // The entry of a connection that ended unseen outlives it; kernels before 5.11 do not tell its state here.
          if (begun ? begun.state !== 'over' : !isOver(flow))
            report(isAnswered(flow) ? 'closed' : unanswered(flow, protocol, age()), age());
      }
    },
    () => onOverrun?.(),
    {
      netns,
      // IPVS sets no status bit for translated flows: compare the addresses.
      wanted({ original, reply }) {
        count++;
        return original.destination !== reply.source || original.destinationPort !== reply.sourcePort;
      },
    },
  );
  let adapted = performance.now();
  const timer = setInterval(() => {
    const before = adapted;
    adapted = performance.now();
    const next = nextSample(share, count, adapted - before);
    count = 0;
    if (next === share) return;
    share = next;
    events.sample(share);
    // The ends of flows that are no longer reported would never come.
    flows.clear();
    onSample?.(share);
  }, SAMPLING_MS);
  timer.unref();
  return {
    close() {
      clearInterval(timer);
      events.close();
    },
  };
}

const isOver = ({ tcpState }: Flow): boolean =>
  tcpState === TCP_STATE.timeWait || tcpState === TCP_STATE.close;

/** A RST closes the entry before the kernel removes it. Kernels before 5.11 do not tell the state: then the age decides. */
function unanswered({ tcpState }: Flow, protocol: Protocol, micros: number): FlowEventKind {
  if (protocol === 'UDP') return 'given-up';
  const isReset = tcpState === null ? micros < RESET_MICROS : tcpState === TCP_STATE.close;
  return isReset ? 'reset' : 'timeout';
}

const isAnswered = ({ status }: Flow): boolean => (status & FLOW_STATUS.seenReply) !== 0;

function eventOf(
  kind: FlowEventKind,
  { original, reply }: Flow,
  protocol: Protocol,
  micros: number,
  at: bigint,
): FlowEvent {
  return {
    kind,
    protocol,
    client: { ip: original.source, port: original.sourcePort },
    service: { ip: original.destination, port: original.destinationPort },
    endpoint: { ip: reply.source, port: reply.sourcePort },
    proxy: null,
    micros,
    at,
  };
}
