import { hostPort, type SocketAddress } from '../lib/address.ts';
import type { DnsLine, FlowLine } from './flow-line.ts';

/** An entry with the node that reported it, and the names of addresses. */
export interface ShownFlow {
  readonly node: string;
  readonly entry: FlowLine | DnsLine;
  /** "namespace/name" of a pod, "node/NAME", "outside", or null. */
  readonly nameOf: (ip: string) => string | null;
}

/** From this width on, the wide form is used. */
const WIDE_COLUMNS = 140;

/** Renders an entry as one line without its end. `columns`: of the terminal; null: as wide as needed. */
export function flowText(shown: ShownFlow, columns: number | null): string {
  return columns === null || columns >= WIDE_COLUMNS ? wideText(shown) : narrowText(shown, columns);
}

function wideText({ node, entry, nameOf }: ShownFlow): string {
  const end = (one: SocketAddress) => {
    const name = nameOf(one.ip);
    // A client that was refused before it had a port.
    const address = one.port === 0 ? one.ip : hostPort(one);
    return name ? `${name} ${address}` : address;
  };
  const head = [entry.time.slice(11, 23), node, entry.kind.padEnd(11)];
  const took = timeText(entry.micros);
  if (entry.type === 'dns') {
    const path = `${end(entry.client)} → ${end(entry.server)}`;
    return [...head, 'DNS', path, `${entry.name} ${entry.types.join('+')}: ${resultOf(entry)}`, took]
      .filter((part) => part !== '')
      .join('  ');
  }
  const { service, endpoint, reason, protocol } = entry;
  const asked = service && (service.name ? `${service.name} ${hostPort(service)}` : hostPort(service));
  const reached = endpoint && (entry.asked ? `${entry.asked} ${hostPort(endpoint)}` : end(endpoint));
  const path = [end(entry.client), asked, reached].filter((part) => part !== null);
  return [...head, protocol, path.join(' → '), took, reason ? `(${reason})` : '']
    .filter((part) => part !== '')
    .join('  ');
}

/** How much of the path of a failed flow is always shown. */
const MIN_PATH = 24;
const VERDICT_WIDTH = 'unreachable'.length;

function narrowText({ entry, nameOf }: ShownFlow, columns: number): string {
  const name = (ip: string) => shortName(nameOf(ip)) ?? ip;
  const head = `${entry.time.slice(11, 19)} ${(entry.verdict ?? entry.kind).padEnd(VERDICT_WIDTH)} `;
  const took = timeText(entry.micros);
  const end = took === '' ? '' : ` ${took}`;
  if (entry.type === 'dns') {
    const before = `${name(entry.client.ip)} asks `;
    const after = `: ${resultOf(entry)}`;
    const room = columns - head.length - end.length;
    // The result matters more than the end of the name, which is often the cluster's domain.
    const asked = cut(entry.name, Math.max(MIN_PATH, room - before.length - after.length));
    return `${head}${cut(before + asked + after, room)}${end}`;
  }
  const { service, endpoint, reason } = entry;
  const port = (service ?? endpoint)?.port;
  const asked = service && `${shortName(service.name?.replace(/:.*/, '') ?? null) ?? service.ip}:${port}`;
  const reached = endpoint && (service ? name(endpoint.ip) : `${entry.asked ?? name(endpoint.ip)}:${port}`);
  const path = [name(entry.client.ip), asked, reached].filter((part) => part !== null).join(' → ');
  const tail = reason ? ` (${reason})` : end;
  const room = columns - head.length;
  // Of a failure, the reason matters more than the end of the path.
  if (reason) return `${head}${cut(cut(path, Math.max(MIN_PATH, room - tail.length)) + tail, room)}`;
  return `${head}${cut(path, room - tail.length)}${tail}`;
}

/** The result of a lookup: its addresses, or why there are none; how many names were tried before. */
function resultOf({ answers, rcode, tried, reason = null }: DnsLine): string {
  if (reason !== null) return `no answer (${reason})`;
  const found = answers.length > 0 ? answers.join(' ') : rcode === 'NOERROR' ? 'no such record' : rcode;
  const before = tried.length > 0 ? ` after ${tried.length} other name${tried.length === 1 ? '' : 's'}` : '';
  return `${found ?? 'no answer'}${before}`;
}

/** Names of the namespace default are shown without it. */
const shortName = (name: string | null): string | null => name?.replace(/^default\//, '') ?? null;

const cut = (text: string, width: number): string =>
  text.length <= width ? text : `${text.slice(0, Math.max(0, width - 1))}…`;

function timeText(micros: number): string {
  return micros > 0 ? `${(micros / 1000).toFixed(micros < 10_000 ? 2 : 0)} ms` : '';
}
