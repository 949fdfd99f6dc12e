import type { ServerResponse } from 'node:http';
import type { FlowEvent, FlowEventKind } from '../dataplane/flow-event.ts';
import { familyOf } from '../lib/address.ts';
import type { Clock } from '../lib/clock.ts';
import type { PortRef, ServiceMap } from '../service/model.ts';
import { frontendKey } from '../service/service-compiler.ts';
import type { FlowWatch } from './flow-watch.ts';

/** A flow event on the control socket, one JSON object per line. */
export interface FlowLine {
  /** ISO time, by this machine's clock. */
  readonly time: string;
  readonly kind: FlowEventKind;
  readonly protocol: string;
  readonly client: { readonly ip: string; readonly port: number };
  readonly service: {
    readonly ip: string;
    readonly port: number;
    /** "namespace/name:port name"; null: no Service has this address now. */
    readonly name: string | null;
  };
  readonly endpoint: { readonly ip: string; readonly port: number };
  readonly micros: number;
}

/** A line with the number of events that were dropped before it because the reader was too slow. */
export interface FlowsLost {
  readonly lost: number;
}

/** The maximum number of buffered bytes for a reader. */
const MAX_WAITING = 1 << 20;

/** Writes events to a response until its reader disconnects. */
export function streamFlows(
  response: ServerResponse,
  flows: FlowWatch,
  map: () => ServiceMap | null,
  clock: Clock,
): void {
  let lost = 0;
  const write = (line: FlowLine | FlowsLost) => response.write(`${JSON.stringify(line)}\n`);
  response.writeHead(200, { 'content-type': 'application/x-ndjson' });
  response.flushHeaders();
  const watch = flows.watch((event) => {
    if (response.writableLength > MAX_WAITING) {
      lost++;
      return;
    }
    if (lost > 0) write({ lost });
    lost = 0;
    write(lineOf(event, map(), clock));
  });
  response.on('close', () => watch.close());
}

function lineOf(event: FlowEvent, map: ServiceMap | null, clock: Clock): FlowLine {
  const { kind, protocol, client, service, endpoint, micros } = event;
  const agoMs = Number(process.hrtime.bigint() - event.at) / 1e6;
  const owner = map && ownerOf(event, map);
  return {
    time: new Date(clock.now() - Math.max(0, agoMs)).toISOString(),
    kind,
    protocol,
    client,
    service: { ...service, name: owner && nameOf(owner) },
    endpoint,
    micros,
  };
}

function ownerOf({ service, protocol }: FlowEvent, { frontends }: ServiceMap): PortRef | null {
  const family = familyOf(service.ip);
  if (family === null) return null;
  const keys = [service.ip, null].map((address) => frontendKey(family, address, protocol, service.port));
  for (const key of keys) {
    const frontend = frontends.get(key);
    if (frontend) return frontend.owner;
  }
  return null;
}

const nameOf = ({ namespace, name, portName }: PortRef): string =>
  `${namespace}/${name}${portName === '' ? '' : `:${portName}`}`;
