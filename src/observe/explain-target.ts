import { canonicalAddress } from '../lib/address.ts';
import { FairleadError } from '../lib/errors.ts';
import type { Protocol } from '../service/model.ts';

/** FROM or TO of `explain`, parsed but not resolved. */
export interface Target {
  readonly kind: 'pod' | 'node' | 'outside' | 'service' | 'address' | 'dns';
  /** Namespace of a pod or Service, else empty. */
  readonly namespace: string;
  /** Name of the object, the DNS name, or canonical address text. */
  readonly name: string;
  /** A number, the name of a Service's port, or null. */
  readonly port: number | string | null;
  readonly protocol: Protocol | null;
  /** The original text. */
  readonly text: string;
}

const FORMS =
  'ns/pod, node/NAME, outside, svc/ns/name, a DNS name or an address, then :PORT and /tcp, /udp or /sctp';

/**
 * Reads "ns/pod", "node/NAME", "outside", "svc/ns/name", a DNS name or an address ("[fd00::1]:80" with brackets where
 * a port follows), each optionally with ":PORT" and "/PROTO". Throws FairleadError (code "bad-argument").
 */
export function parseTarget(text: string): Target {
  const trimmed = text.trim();
  const bare = canonicalAddress(trimmed);
  if (bare) return { ...EMPTY, kind: 'address', name: bare, text };
  const { rest, protocol } = splitProtocol(trimmed);
  const address = canonicalAddress(rest);
  if (address) return { ...EMPTY, kind: 'address', name: address, protocol, text };
  const { host, port } = splitPort(rest, text);
  const common = { port, protocol, text };
  const literal = canonicalAddress(host.replace(/^\[(.*)\]$/, '$1'));
  if (literal) return { ...EMPTY, ...common, kind: 'address', name: literal };
  if (host === 'outside') return { ...EMPTY, ...common, kind: 'outside' };
  const [first = '', second, third, ...more] = host.split('/');
  if (more.length > 0 || host === '' || host.split('/').some((part) => part === '')) {
    throw bad(text, 'is not valid');
  }
  if (first === 'node' && second !== undefined && third === undefined) {
    return { ...EMPTY, ...common, kind: 'node', name: second };
  }
  if (first === 'svc' || first === 'service') {
    if (second === undefined) throw bad(text, 'names no Service');
    const [namespace, name] = third === undefined ? ['default', second] : [second, third];
    return { ...common, kind: 'service', namespace, name };
  }
  if (first === 'pod' && third !== undefined && second !== undefined) {
    return { ...common, kind: 'pod', namespace: second, name: third };
  }
  if (third !== undefined) throw bad(text, 'has too many parts');
  if (second !== undefined) return { ...common, kind: 'pod', namespace: first, name: second };
  return { ...EMPTY, ...common, kind: 'dns', name: first };
}

const EMPTY = { namespace: '', name: '', port: null, protocol: null };

/** A pod may be called "udp": the last part is a protocol only if the text before it is complete. */
function splitProtocol(text: string): { rest: string; protocol: Protocol | null } {
  const match = /^(.*)\/(tcp|udp|sctp)$/i.exec(text);
  const rest = match?.[1] ?? '';
  const slashes = rest.split('/').length - 1;
  const whole =
    /:[^/\]]+$/.test(rest) ||
    canonicalAddress(rest) !== null ||
    rest.includes('.') ||
    rest === 'outside' ||
    (/^(svc|service)\//.test(rest) ? slashes === 2 : slashes === 1);
  if (!match || !whole) return { rest: text, protocol: null };
  return { rest, protocol: match[2]?.toUpperCase() as Protocol };
}

function splitPort(rest: string, text: string): { host: string; port: number | string | null } {
  const match = /^(.*):([^:/\]]*)$/.exec(rest);
  if (!match) return { host: rest, port: null };
  const [, host = '', port = ''] = match;
  if (host.includes(':') && !host.startsWith('[')) {
    throw bad(text, 'has an IPv6 address and a port without brackets, or is not an address');
  }
  if (!/^[0-9]+$/.test(port)) {
    if (!/^[a-z0-9-]+$/.test(port)) throw bad(text, `has the invalid port ${JSON.stringify(port)}`);
    return { host, port };
  }
  const number = Number(port);
  if (number < 1 || number > 65535) throw bad(text, `has port ${port}, which is not from 1 to 65535`);
  return { host, port: number };
}

function bad(text: string, problem: string): FairleadError {
  return new FairleadError(`${JSON.stringify(text)} ${problem}`, {
    op: 'read target',
    code: 'bad-argument',
    hint: `write ${FORMS}`,
  });
}
