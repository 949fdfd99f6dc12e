import { get as httpGet, type IncomingMessage } from 'node:http';
import { get as httpsGet } from 'node:https';
import type { Probe } from '../kube/types.ts';
import { hostPort } from '../lib/address.ts';
import { messageOf } from '../lib/errors.ts';
import { setOwnMember } from '../lib/own-member.ts';
import type { ProbeResult } from './probe-result.ts';

/** As Go's client: the eleventh request is not sent. */
const MAX_REQUESTS = 10;
/** Of the body, in the message about a redirect that is not followed. */
const MAX_BODY_BYTES = 10 << 10;
const REDIRECTS = new Set([301, 302, 303, 307, 308]);

interface Place {
  readonly secure: boolean;
  readonly host: string;
  readonly port: number;
  readonly path: string;
}

interface Answer {
  readonly status: number;
  readonly location: string | undefined;
  /** Of redirects only. */
  readonly body: string;
}

/**
 * Sends the GET of a probe. Redirects on the same host are followed, as the kubelet does (pkg/probe/http); another ends a
 * probe, which passes with a warning.
 */
export async function probeHttp(
  action: NonNullable<Probe['httpGet']>,
  target: { readonly host: string; readonly port: number },
  timeoutMs: number,
): Promise<ProbeResult> {
  const headers: Record<string, string> = {
    'user-agent': 'kube-probe/1.36',
    accept: '*/*',
    connection: 'close',
  };
  for (const { name, value } of action.httpHeaders ?? []) setOwnMember(headers, name.toLowerCase(), value);
  const signal = AbortSignal.timeout(timeoutMs);
  let place: Place = {
    secure: action.scheme === 'HTTPS',
    ...target,
    path: action.path ?? '/',
  };
  const first = urlOf(place);
  try {
    for (let sent = 1; ; sent++) {
      const { status, location, body } = await get(place, headers, signal);
      if (status < 200 || status >= 400)
        return { ok: false, message: `HTTP probe failed with statuscode: ${status}` };
      if (status < 300) return { ok: true, message: '' };
      const next = REDIRECTS.has(status) && location ? placeOf(location, place) : null;
      if (next?.host !== place.host)
        return { ok: true, hasWarning: true, message: `Probe terminated redirects, Response body: ${body}` };
      if (sent === MAX_REQUESTS)
        return { ok: false, message: `Get "${urlOf(next)}": stopped after ${MAX_REQUESTS} redirects` };
      place = next;
    }
  } catch (error) {
    const message = signal.aborted ? `Get "${first}": no answer in ${timeoutMs} ms` : messageOf(error);
    return { ok: false, message };
  }
}

const urlOf = ({ secure, host, port, path }: Place): string =>
  `${secure ? 'https' : 'http'}://${hostPort({ ip: host, port })}${path}`;

/** Resolves the target of a redirect; null if it is not a URL of HTTP. */
function placeOf(location: string, from: Place): Place | null {
  const url = URL.parse(location, urlOf(from));
  if (url?.protocol !== 'http:' && url?.protocol !== 'https:') return null;
  const secure = url.protocol === 'https:';
  return {
    secure,
    host: url.hostname.replace(/^\[|\]$/g, ''),
    port: url.port === '' ? (secure ? 443 : 80) : Number(url.port),
    path: `${url.pathname}${url.search}`,
  };
}

function get(place: Place, headers: Readonly<Record<string, string>>, signal: AbortSignal): Promise<Answer> {
  const { secure, ...options } = place;
  return new Promise((resolve, reject) => {
    const answer = (response: IncomingMessage) => {
      const { statusCode: status = 0, headers: received } = response;
      const done = (body: string) => resolve({ status, location: received.location, body });
      if (status < 300 || status >= 400) {
        response.on('error', () => {});
        response.resume();
        done('');
        return;
      }
      const chunks: Buffer[] = [];
      const text = () => Buffer.concat(chunks).subarray(0, MAX_BODY_BYTES).toString();
      let bytes = 0;
      response.on('error', reject);
      response.on('end', () => done(text()));
      response.on('data', (chunk: Buffer) => {
        chunks.push(chunk);
        bytes += chunk.length;
        if (bytes < MAX_BODY_BYTES) return;
        done(text());
        response.destroy();
      });
    };
    const all = { ...options, headers, agent: false, signal };
    const request = secure ? httpsGet({ ...all, rejectUnauthorized: false }, answer) : httpGet(all, answer);
    request.on('error', reject);
  });
}
