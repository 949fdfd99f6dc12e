import { COUNT, FLAG, type JsonSchema, list, object, orNull, TEXT } from '../lib/json-schema.ts';

const one = (...values: readonly unknown[]): JsonSchema => ({ enum: values });
const SHARE: JsonSchema = { type: 'number', minimum: 0, maximum: 1 };

/** Returns the schema of ExplainedRequest (src/gateway/explain-request.ts). */
export function requestSchema(): JsonSchema {
  const header = object({ name: TEXT, value: TEXT });
  const changes = object({ set: list(header), add: list(header), remove: list(TEXT) });
  const value = object({ name: TEXT, kind: one('exact', 'regex'), value: TEXT });
  return object({
    method: one('GET'),
    url: TEXT,
    gateway: TEXT,
    address: orNull(TEXT),
    port: COUNT,
    others: list(TEXT),
    listener: orNull(TEXT),
    route: orNull(
      object({
        kind: one('HTTPRoute', 'GRPCRoute', 'TLSRoute', 'TCPRoute', 'UDPRoute', 'Ingress'),
        namespace: TEXT,
        name: TEXT,
        rule: { type: 'integer', minimum: -1 },
      }),
    ),
    match: orNull(
      object({
        hostname: TEXT,
        path: object({ kind: one('exact', 'prefix', 'regex'), path: TEXT, regex: TEXT }, ['path', 'regex']),
        method: orNull(TEXT),
        headers: list(value),
        query: list(value),
      }),
    ),
    result: one('forwarded', 'redirected', 'answered', 'closed', 'passed'),
    status: orNull(COUNT),
    reason: orNull(TEXT),
    location: orNull(TEXT),
    filters: object({
      host: orNull(TEXT),
      target: orNull(TEXT),
      request: changes,
      response: changes,
      cors: orNull(list(TEXT)),
      mirrors: list(object({ backend: TEXT, share: SHARE })),
      bodyLimit: orNull(COUNT),
    }),
    backends: list(
      object({
        service: orNull(TEXT),
        port: orNull(COUNT),
        protocol: orNull(one('http1', 'h2c', 'websocket', 'tcp', 'udp')),
        tls: FLAG,
        share: SHARE,
        reason: orNull(TEXT),
        request: changes,
        response: changes,
      }),
    ),
    timeouts: orNull(object({ request: orNull(COUNT), backend: orNull(COUNT), connect: orNull(COUNT) })),
    retry: orNull(object({ attempts: COUNT, statuses: list(COUNT), backoffMs: COUNT })),
    affinity: orNull(object({ cookie: TEXT, lifetime: orNull(COUNT) })),
    unaccepted: list(
      object({ object: TEXT, condition: orNull(TEXT), reason: TEXT, field: orNull(TEXT), message: TEXT }),
    ),
    notes: list(TEXT),
    next: orNull(TEXT),
  });
}
