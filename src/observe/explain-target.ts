import { canonicalAddress } from '../lib/address.ts';
import { FairleadError } from '../lib/errors.ts';
import type { Protocol } from '../service/model.ts';

export type WorkloadKind = 'Deployment' | 'StatefulSet' | 'DaemonSet' | 'ReplicaSet' | 'Job';

/** FROM or TO of `explain`, parsed but not resolved. */
export interface Target {
  readonly kind: 'pod' | 'workload' | 'node' | 'outside' | 'service' | 'address' | 'dns';
  /** Namespace of a pod, workload or Service; null: not given, or not applicable. */
  readonly namespace: string | null;
  /** Name of the object, the DNS name, or canonical address text. */
  readonly name: string;
  /** Kind of a workload; else null. */
  readonly workload: WorkloadKind | null;
  /** A number, the name of a Service's port, or null. */
  readonly port: number | string | null;
  readonly protocol: Protocol | null;
  /** The original text. */
  readonly text: string;
}

const FORMS =
  'pod/NAME, deploy/NAME, svc/NAME or node/NAME (NAMESPACE/NAME for another namespace), outside, a DNS name, a URL or an address, then :PORT and /tcp, /udp or /sctp';

const WORKLOADS: Readonly<Record<string, WorkloadKind>> = {
  deploy: 'Deployment',
  deployment: 'Deployment',
  sts: 'StatefulSet',
  statefulset: 'StatefulSet',
  ds: 'DaemonSet',
  daemonset: 'DaemonSet',
  rs: 'ReplicaSet',
  replicaset: 'ReplicaSet',
  job: 'Job',
};
const PODS = new Set(['pod', 'pods', 'po']);
const SERVICES = new Set(['svc', 'service', 'services']);
const NODES = new Set(['node', 'nodes', 'no']);
/** Kinds that are written as "KIND/NAME" or "KIND/NAMESPACE/NAME". */
const isKind = (word: string) => PODS.has(word) || SERVICES.has(word) || word in WORKLOADS;
const isAnyKind = (word: string) => NODES.has(word) || isKind(word);

const EMPTY = { namespace: null, workload: null, port: null, protocol: null } as const;

/**
 * Parses FROM or TO: "pod/x", "deploy/x", "svc/x", each optionally with a namespace ("svc/ns/x"); "ns/x", a pod or else
 * a Service; "node/x", "outside", a DNS name, "http://x/path", or an address ("[fd00::1]:80" with brackets where a port
 * follows); each optionally with ":PORT" and "/PROTO". Throws FairleadError (code "bad-argument").
 */
export function parseTarget(text: string): Target {
  const trimmed = text.trim();
  const url = /^(https?):\/\/([^/?#]+)/i.exec(trimmed);
  if (url) return ofUrl(url[1]?.toLowerCase() ?? '', url[2] ?? '', text);
  const bare = literalAddress(trimmed);
  if (bare) return { ...EMPTY, kind: 'address', name: bare, text };
  const { rest, protocol } = splitProtocol(trimmed);
  const address = literalAddress(rest);
  if (address) return { ...EMPTY, kind: 'address', name: address, protocol, text };
  const { host, port } = splitPort(rest, text);
  if (isAnyKind(host.toLowerCase()) && typeof port === 'string')
    throw bad(text, 'is not a name', `did you mean ${host.toLowerCase()}/${port}?`);
  const common = { ...EMPTY, port, protocol, text };
  const literal = literalAddress(host.replace(/^\[(.*)\]$/, '$1'));
  if (literal) return { ...common, kind: 'address', name: literal };
  if (host === 'outside') return { ...common, kind: 'outside', name: '' };
  const parts = host.split('/');
  const [kind = '', second = '', third = ''] = parts;
  const first = kind.toLowerCase();
  if (parts.length > 3 || parts.some((part) => part === '')) throw bad(text, 'cannot be read');
  if (first.includes(':') && !host.startsWith('[')) {
    const problem = /^https?:$/.test(first)
      ? 'is not a URL'
      : `has the unknown protocol ${JSON.stringify(second)}`;
    throw bad(text, problem);
  }
  if (NODES.has(first) && parts.length === 2) return { ...common, kind: 'node', name: second };
  if (isKind(first) && parts.length > 1) {
    const named = parts.length === 3 ? { namespace: second, name: third } : { namespace: null, name: second };
    if (SERVICES.has(first)) return { ...common, ...named, kind: 'service' };
    if (PODS.has(first)) return { ...common, ...named, kind: 'pod' };
    return { ...common, ...named, kind: 'workload', workload: WORKLOADS[first] ?? null };
  }
  if (parts.length === 2) return { ...common, kind: 'pod', namespace: kind, name: second };
  if (/^[0-9.]+$/.test(host)) throw bad(text, 'is not an IPv4 address');
  if (parts.length === 1 && /^[a-z0-9_]([a-z0-9_.-]*[a-z0-9_.])?$/i.test(host)) {
    return { ...common, kind: 'dns', name: host.toLowerCase() };
  }
  throw bad(text, 'cannot be read');
}

/** Returns canonical text, or null. The kernel connects to "::ffff:10.0.0.1" over IPv4. */
function literalAddress(text: string): string | null {
  const address = canonicalAddress(text);
  return address?.startsWith('::ffff:') && address.includes('.') ? address.slice('::ffff:'.length) : address;
}

function ofUrl(scheme: string, authority: string, text: string): Target {
  const target = parseTarget(authority.replace(/^[^@]*@/, ''));
  if (target.kind !== 'dns' && target.kind !== 'address') throw bad(text, 'has no host name or address');
  return { ...target, port: target.port ?? (scheme === 'https' ? 443 : 80), protocol: 'TCP', text };
}

/** A pod may be called "udp": the last part is a protocol only if the text before it is complete. */
function splitProtocol(text: string): { rest: string; protocol: Protocol | null } {
  const match = /^(.*)\/(tcp|udp|sctp)$/i.exec(text);
  const rest = match?.[1] ?? '';
  const slashes = rest.split('/').length - 1;
  const first = rest.split('/')[0]?.toLowerCase() ?? '';
  const isComplete =
    /:[^/\]]+$/.test(rest) ||
    canonicalAddress(rest) !== null ||
    rest.includes('.') ||
    rest === 'outside' ||
    (isKind(first) ? slashes === 2 : slashes === 1);
  if (!match || !isComplete) return { rest: text, protocol: null };
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

function bad(text: string, problem: string, hint = `write ${FORMS}`): FairleadError {
  return new FairleadError(`${JSON.stringify(text)} ${problem}`, {
    op: 'read target',
    code: 'bad-argument',
    hint,
  });
}
