import { Agent, request as httpsRequest } from 'node:https';
import { checkedTarget, type MayDial } from '../../../kube/dial-check.ts';
import { trustPublicAuthorities } from '../../../kube/public-authorities.ts';
import { messageOf } from '../../../lib/errors.ts';
import { type OnError, sendTwice } from '../../kept-connection.ts';
import { isObject, type JsonObject, textAt } from '../../object.ts';
import type { ServiceResolver } from '../../service-resolver.ts';
import type { Webhook } from './webhook.ts';

/** Sends reviews to webhooks. */
export interface WebhookClient {
  /** Resolves to the decoded response. Throws Error with the reason if the webhook cannot be called. */
  post(hook: Pick<Webhook, 'clientConfig' | 'timeoutSeconds'>, review: JsonObject): Promise<unknown>;
  close(): void;
}

const MAX_ANSWER_BYTES = 8 * 1024 * 1024;

/**
 * `mayDial` is asked for addresses of Services, which users of their namespace write. The URL of a configuration may name the
 * API server's own loopback, as upstream: only administrators write it.
 */
export function createWebhookClient(resolve: ServiceResolver, mayDial: MayDial): WebhookClient {
  const agent = new Agent({ keepAlive: true, keepAliveMsecs: 30_000, maxSockets: 100 });
  return {
    async post(hook, review) {
      const target = targetOf(hook.clientConfig);
      const url = `${target.url}?timeout=${hook.timeoutSeconds}s`;
      try {
        const service = target.service;
        const found = service ? resolve(service.namespace, service.name, service.port) : null;
        const address = found && { ...found, ...checkedTarget(found.host, mayDial) };
        const body = JSON.stringify(review);
        return await sendTwice((through, onError) =>
          send(through === 'kept' ? agent : false, target, address, hook.timeoutSeconds, body, onError),
        );
      } catch (error) {
        throw new Error(`failed to call webhook: Post ${JSON.stringify(url)}: ${messageOf(error)}`);
      }
    },
    close: () => agent.destroy(),
  };
}

interface Target {
  readonly url: string;
  readonly service: { readonly namespace: string; readonly name: string; readonly port: number } | null;
  /** PEM; null: the certificate authorities that Node trusts by default. */
  readonly authority: string | null;
}

function targetOf(config: JsonObject): Target {
  const bundle = textAt(config, 'caBundle');
  const authority = bundle === '' ? null : Buffer.from(bundle, 'base64').toString('utf8');
  const { service } = config;
  if (!isObject(service)) return { url: textAt(config, 'url'), service: null, authority };
  const port = typeof service['port'] === 'number' ? service['port'] : 443;
  const [namespace, name] = [textAt(service, 'namespace'), textAt(service, 'name')];
  const path = textAt(service, 'path');
  const url = `https://${name}.${namespace}.svc:${port}${path === '' || path.startsWith('/') ? path : `/${path}`}`;
  return { url, service: { namespace, name, port }, authority };
}

/** `agent` false: over a connection of its own. */
function send(
  agent: Agent | false,
  { url, authority }: Target,
  address: (ReturnType<typeof checkedTarget> & { readonly port: number }) | null,
  timeoutSeconds: number,
  body: string,
  onError: OnError,
): Promise<unknown> {
  if (authority === null) trustPublicAuthorities();
  const { hostname, port, pathname } = new URL(url);
  return new Promise((resolve, reject) => {
    const outgoing = httpsRequest(
      {
        agent,
        method: 'POST',
        ...(address ?? { host: hostname, port: port || 443 }),
        servername: hostname,
        path: `${pathname}?timeout=${timeoutSeconds}s`,
        headers: {
          host: hostname,
          'content-type': 'application/json',
          accept: 'application/json',
          'content-length': Buffer.byteLength(body),
        },
        ...(authority === null ? {} : { ca: authority }),
        signal: AbortSignal.timeout(timeoutSeconds * 1000),
      },
      async (response) => {
        try {
          const chunks: Buffer[] = [];
          let size = 0;
          for await (const chunk of response as AsyncIterable<Buffer>) {
            size += chunk.length;
            if (size > MAX_ANSWER_BYTES)
              throw new Error(`the answer is longer than ${MAX_ANSWER_BYTES} bytes`);
            chunks.push(chunk);
          }
          const text = Buffer.concat(chunks).toString('utf8');
          const status = response.statusCode ?? 0;
          if (status < 200 || status > 299)
            throw new Error(`the server answered ${status}: ${text.slice(0, 200)}`);
          resolve(JSON.parse(text));
        } catch (error) {
          reject(timedOut(error));
        }
      },
    );
    outgoing.on('error', (error) => reject(timedOut(onError(outgoing, error))));
    outgoing.end(body);
  });
}

/** Rewords a timeout as Go does; clients look for that text. */
function timedOut(error: unknown): unknown {
  const isTimeout = error instanceof Error && (error.name === 'AbortError' || error.name === 'TimeoutError');
  return isTimeout ? new Error('context deadline exceeded') : error;
}
