import type { ServerResponse } from 'node:http';
import type { Clock } from '../../lib/clock.ts';
import { hasCode } from '../../lib/errors.ts';
import { type LogOptions, readLog } from '../container-logs.ts';
import { requestError } from './request-path.ts';
import type { ServedContainer } from './served-pod.ts';

export type LogQuery = Pick<
  LogOptions,
  'follow' | 'tailLines' | 'sinceTime' | 'timestamps' | 'limitBytes' | 'stream'
> & { readonly previous: boolean };

/**
 * Parses the options of a request for logs (v1.PodLogOptions). Throws FairleadError "Invalid" that names the option.
 */
export function parseLogQuery(query: URLSearchParams, clock: Pick<Clock, 'now'>): LogQuery {
  const whole = (name: string, min: number): number | null => {
    const text = query.get(name);
    if (text === null || text === '') return null;
    const value = Number(text);
    if (!Number.isSafeInteger(value) || value < min) {
      throw requestError(
        'Invalid',
        `${name}: must be a whole number, at least ${min}: ${JSON.stringify(text)}`,
      );
    }
    return value;
  };
  const flag = (name: string) => ['true', '1'].includes(query.get(name) ?? '');
  const sinceSeconds = whole('sinceSeconds', 1);
  const sinceText = query.get('sinceTime') ?? '';
  if (sinceSeconds !== null && sinceText !== '') {
    throw requestError('Invalid', 'at most one of sinceTime or sinceSeconds may be specified');
  }
  const sinceTime =
    sinceSeconds !== null
      ? new Date(clock.now() - sinceSeconds * 1000)
      : sinceText === ''
        ? null
        : new Date(sinceText);
  if (sinceTime && Number.isNaN(sinceTime.getTime())) {
    throw requestError('Invalid', `sinceTime: must be an RFC 3339 time: ${JSON.stringify(sinceText)}`);
  }
  const stream = query.get('stream') ?? '';
  if (!['', 'All', 'Stdout', 'Stderr'].includes(stream)) {
    throw requestError('Invalid', `stream: must be All, Stdout or Stderr: ${JSON.stringify(stream)}`);
  }
  const tailLines = whole('tailLines', 0);
  if (tailLines !== null && (stream === 'Stdout' || stream === 'Stderr')) {
    throw requestError('Invalid', '`tailLines` and specific `stream` are mutually exclusive for now');
  }
  return {
    follow: flag('follow'),
    previous: flag('previous'),
    timestamps: flag('timestamps'),
    tailLines,
    limitBytes: whole('limitBytes', 1),
    sinceTime,
    stream: stream === 'Stdout' ? 'stdout' : stream === 'Stderr' ? 'stderr' : null,
  };
}

/**
 * Sends a container's log; with `follow`, until the container ends or the client disconnects. Throws before the
 * response starts.
 */
export function sendLog(
  container: ServedContainer,
  { previous, ...options }: LogQuery,
  response: ServerResponse,
  signal: AbortSignal,
): void {
  const gone = new AbortController();
  response.on('close', () => gone.abort());
  const file = container.logFile(previous);
  const { id } = container;
  const log = readLog(file, {
    ...options,
    ended: () => previous || container.id !== id || !container.isRunning,
    signal: AbortSignal.any([gone.signal, signal]),
  });
  response.writeHead(200, { 'content-type': 'text/plain; charset=utf-8' });
  response.flushHeaders();
  log.on('error', (error) => {
    if (hasCode(error, 'ENOENT')) response.end(`unable to retrieve container logs for crun://${id}\n`);
    else response.destroy(error);
  });
  log.pipe(response);
}
