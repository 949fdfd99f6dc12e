import type { ExplainedBackend, ExplainedMatch, ExplainedRequest } from '../gateway/explain-request.ts';
import type { HeaderChanges, RouteRef, ValueMatch } from '../gateway/route-map.ts';
import type { Unaccepted } from '../gateway/unaccepted.ts';
import { hostPort } from '../lib/address.ts';
import type { Explanation } from './explanation.ts';

/** Renders what a gateway does with a request, one fact a line, for a terminal; ends with a line feed. */
export function renderRequest(explained: ExplainedRequest): string {
  const { method, url, gateway, address, port, listener, route, match, backends } = explained;
  const place = address === null ? `port ${port}` : hostPort({ ip: address, port });
  const rows: readonly (readonly [string, string | null])[] = [
    ['listener', listener],
    ['route', route && routeText(route)],
    ['match', match && matchText(match)],
    ['answer', answerText(explained)],
    ...filterRows(explained),
    ...backends.map((one): [string, string] => ['backend', backendText(one)]),
    ...backends.flatMap(({ request, response }) => [
      ['request', changesText(request)] as const,
      ['response', changesText(response)] as const,
    ]),
    ...settingRows(explained),
    ...explained.unaccepted.map((one): [string, string] => ['refused', unacceptedText(one)]),
    ...explained.notes.map((note): [string, string] => ['note', note]),
  ];
  const lines = rows.flatMap(([label, text]) => (text === null ? [] : `  ${label.padEnd(LABEL)}${text}`));
  return `${[`${method} ${url} → ${gateway} (${place})`, ...lines].join('\n')}\n`;
}

const LABEL = 10;

function routeText({ kind, namespace, name, rule }: RouteRef): string {
  const part = rule < 0 ? 'default backend' : `rule ${rule}`;
  return `${kind} ${namespace}/${name}, ${part}`;
}

function matchText({ hostname, path, method, headers, query }: ExplainedMatch): string {
  const values = (label: string) => (one: ValueMatch) =>
    `${label} ${one.name} ${one.kind === 'regex' ? 'matches' : 'is'} ${JSON.stringify(one.value)}`;
  return [
    hostname === '' ? 'every host' : `host ${hostname}`,
    path.kind === 'regex' ? `path matches ${JSON.stringify(path.regex)}` : `path ${path.kind} ${path.path}`,
    ...(method === null ? [] : [`method ${method}`]),
    ...headers.map(values('header')),
    ...query.map(values('parameter')),
  ].join(', ');
}

function answerText({ result, status, reason, location }: ExplainedRequest): string | null {
  switch (result) {
    case 'forwarded':
      return null;
    case 'redirected':
      return `${status} to ${location}`;
    case 'answered':
      return `${status} by the gateway: ${reason}`;
    case 'closed':
      return `none, the connection is closed: ${reason}`;
    case 'passed':
      return `of the backend: ${reason}`;
  }
}

function filterRows({ filters }: ExplainedRequest): readonly (readonly [string, string | null])[] {
  const { host, target, request, response, cors, mirrors, bodyLimit } = filters;
  const rewrites = [
    ...(host === null ? [] : [`host ${host}`]),
    ...(target === null ? [] : [`path ${target}`]),
  ];
  return [
    ['rewrite', rewrites.length === 0 ? null : rewrites.join(', ')],
    ['request', changesText(request)],
    ['response', changesText(response)],
    ['CORS', cors && `origins ${cors.join(', ') || 'none'}`],
    ...mirrors.map(({ backend, share }) => ['mirror', `${backend}, ${percent(share)}`] as const),
    ['body', bodyLimit === null ? null : `at most ${bodyLimit} bytes`],
  ];
}

function changesText({ set, add, remove }: HeaderChanges): string | null {
  const parts = [
    ...remove.map((name) => `remove ${name}`),
    ...set.map(({ name, value }) => `set ${name}: ${JSON.stringify(value)}`),
    ...add.map(({ name, value }) => `add ${name}: ${JSON.stringify(value)}`),
  ];
  return parts.length === 0 ? null : parts.join(', ');
}

const PROTOCOLS: Readonly<Record<string, string>> = { h2c: 'HTTP/2', websocket: 'WebSocket' };

function backendText({ service, port, protocol, tls, share, reason }: ExplainedBackend): string {
  if (service === null) return `none, ${percent(share)}: ${reason ?? 'cannot be used'}`;
  const how = [...(PROTOCOLS[protocol ?? ''] ? [PROTOCOLS[protocol ?? '']] : []), ...(tls ? ['TLS'] : [])];
  return [`Service ${service}:${port}`, percent(share), ...how].join(', ');
}

/** Shares are rounded to a tenth. */
const percent = (share: number): string => `${Math.round(share * 1000) / 10} %`;

function settingRows({
  timeouts,
  retry,
  affinity,
}: ExplainedRequest): readonly (readonly [string, string | null])[] {
  const times = Object.entries(timeouts ?? {}).flatMap(([name, ms]) =>
    ms === null ? [] : `${name} ${seconds(ms)}`,
  );
  const tried = retry && `${retry.attempts} times after ${seconds(retry.backoffMs)}`;
  const codes = retry && retry.statuses.length > 0 ? `, also on ${retry.statuses.join(', ')}` : '';
  return [
    ['timeouts', times.length === 0 ? null : times.join(', ')],
    ['retry', tried && `${tried}${codes}`],
    ['session', affinity && `by the cookie ${affinity.cookie}`],
  ];
}

const seconds = (ms: number): string => (ms % 1000 === 0 ? `${ms / 1000} s` : `${ms} ms`);

function unacceptedText({ object, condition, reason, field, message }: Unaccepted): string {
  const place = field === null ? '' : ` at ${field}`;
  return `${object}${place}: ${message} (${condition === null ? '' : `${condition} `}${reason})`;
}

/** Renders an explanation whose packet is rendered already: around it, what a gateway does and the command for its own connection. */
export function aroundPacket(
  { gateway }: Pick<Explanation, 'gateway'>,
  packet: string,
  wrap: (text: string) => string,
): string {
  if (!gateway) return packet;
  const next = gateway.next === null ? '' : `then, from the proxy to the backend: ${gateway.next}\n`;
  return `${wrap(renderRequest(gateway))}\n${packet}${next}`;
}
