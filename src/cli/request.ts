import { createSocket } from 'node:dgram';
import { lookup } from 'node:dns/promises';
import { Agent, get } from 'node:http';
import { isIP } from 'node:net';
import { hostPort } from '../lib/address.ts';
import { afterRunning, pause, systemClock } from '../lib/clock.ts';
import { FairleadError, messageOf } from '../lib/errors.ts';
import { defineCommand } from './command.ts';
import { flag, usageError, wholeNumber } from './options.ts';
import { FORMAT_OPTIONS, renderFacts } from './output-format.ts';
import { formatTable } from './table.ts';

interface Target {
  readonly protocol: 'http' | 'udp';
  readonly host: string;
  readonly port: number;
  readonly path: string;
}

/** 0: both, in the order of the resolver. */
type Family = 0 | 4 | 6;

export const command = defineCommand({
  name: 'request',
  summary: 'send requests to a server and count its answers',
  description: [
    'Sends requests to a server, each on a new connection (UDP: from a new port), and counts the different answers; intended for "fairlead echo". The exit status is 0 when every request was answered.',
  ],
  arguments: [
    { name: 'URL', help: 'http://HOST[:PORT][/PATH] or udp://HOST:PORT; PATH is /hostname unless given' },
  ],
  options: {
    count: wholeNumber('N', [1, 1, 100_000], 'the number of requests', { main: true }),
    concurrency: wholeNumber('N', [8, 1, 1000], 'the number of concurrent requests'),
    rate: wholeNumber('N', [0, 0, 100_000], 'the maximum number of new requests per second; 0: no limit'),
    timeout: wholeNumber('MS', [3000, 1, 600_000], 'the timeout of each request'),
    ipv4: flag('use IPv4 addresses only', { short: '4' }),
    ipv6: flag('use IPv6 addresses only', { short: '6' }),
    ...FORMAT_OPTIONS,
  },
  async run({ options, args: [url = ''] }, output) {
    const { count, concurrency, timeout, rate } = options;
    const target = readTarget(url);
    if (options.ipv4 && options.ipv6) throw usageError('request', 'use one of -4 and -6');
    const family = options.ipv4 ? 4 : options.ipv6 ? 6 : 0;

    const answers = new Map<string, number>();
    const failures = new Map<string, number>();
    let started = 0;
    const begin = systemClock.now();
    const worker = async () => {
      while (started < count) {
        const number = started++;
        if (rate > 0) await pause(systemClock, begin + (number * 1000) / rate - systemClock.now());
        try {
          const answer = await (target.protocol === 'http'
            ? askHttp(target, family, timeout)
            : askUdp(target, family, timeout));
          answers.set(answer, (answers.get(answer) ?? 0) + 1);
        } catch (error) {
          const text = messageOf(error);
          failures.set(text, (failures.get(text) ?? 0) + 1);
        }
      }
    };
    await Promise.all(Array.from({ length: Math.min(concurrency, count) }, worker));

    const facts = renderFacts(
      { count, answers: Object.fromEntries(answers), failures: Object.fromEntries(failures) },
      options,
    );
    if (facts !== null) output.out(facts);
    else if (count === 1) {
      for (const answer of answers.keys()) output.out(`${answer}\n`);
      for (const failure of failures.keys()) output.err(`fairlead: ${failure}\n`);
    } else {
      const share = (n: number) => `${((100 * n) / count).toFixed(1)} %`;
      const byCount = [...answers].sort((a, b) => b[1] - a[1]);
      const rows = [...byCount, ...[...failures].map(([failure, n]) => [`failed: ${failure}`, n] as const)];
      output.out(
        formatTable(
          rows.map(([answer, n]) => [answer, String(n), share(n)]),
          output.columns,
        ),
      );
    }
    return failures.size === 0 ? 0 : 1;
  },
});

function readTarget(text: string): Target {
  const url = URL.parse(text.includes('://') ? text : `http://${text}`);
  const protocol = url?.protocol.slice(0, -1);
  if (!url || (protocol !== 'http' && protocol !== 'udp') || url.hostname === '') {
    throw usageError(
      'request',
      `URL is http://HOST[:PORT][/PATH] or udp://HOST:PORT, not ${JSON.stringify(text)}`,
    );
  }
  if (protocol === 'udp' && url.port === '')
    throw usageError('request', `missing port in ${JSON.stringify(text)}`);
  return {
    protocol,
    host: url.hostname.replace(/^\[|\]$/g, ''),
    port: url.port === '' ? 80 : Number(url.port),
    path: url.pathname === '/' || url.pathname === '' ? '/hostname' : url.pathname + url.search,
  };
}

/**
 * Runs one request; `waitsFor` returns what it waits for when `timeout` has passed. A pause of the machine, in which no
 * answer can arrive either, does not count.
 */
async function withTimeout(
  timeout: number,
  waitsFor: () => string,
  ask: (signal: AbortSignal) => Promise<string>,
): Promise<string> {
  const ended = new AbortController();
  const cancel = afterRunning(systemClock, timeout, () =>
    ended.abort(
      new FairleadError(`no answer within ${timeout} ms: ${waitsFor()}`, {
        op: 'fairlead request',
        code: 'ETIMEDOUT',
      }),
    ),
  );
  try {
    return await ask(ended.signal);
  } finally {
    cancel();
  }
}

function askHttp(target: Target, family: Family, timeout: number): Promise<string> {
  const { host, port, path } = target;
  let address = isIP(host) ? host : null;
  let isConnected = false;
  const waitsFor = () => {
    if (address === null) return `the name ${host} is not resolved`;
    const server = hostPort({ ip: address, port });
    return isConnected ? `connected to ${server}, no response` : `not connected to ${server}`;
  };
  return withTimeout(
    timeout,
    waitsFor,
    (signal) =>
      new Promise((resolve, reject) => {
        const agent = new Agent({ keepAlive: false });
        let hasResponse = false;
        const request = get({ host, port, path, agent, family, signal }, (response) => {
          hasResponse = true;
          let body = '';
          response.setEncoding('utf8');
          response.on('data', (chunk: string) => {
            body += chunk;
          });
          response.on('end', () => resolve(body.trimEnd()));
          response.on('error', reject);
        });
        request.on('socket', (socket) => {
          socket.on('lookup', (error, found) => {
            if (!error) address = found;
          });
          socket.on('connect', () => {
            isConnected = true;
          });
        });
        request.on('error', (error) => reject(signal.aborted ? signal.reason : error));
        // Without an event before: Node.js closes the connection of a server that changes the protocol (101).
        request.on('close', () => {
          if (!hasResponse) reject(signal.aborted ? signal.reason : unanswered());
        });
      }),
  );
}

const unanswered = () =>
  new FairleadError('the connection was closed without an answer', {
    op: 'fairlead request',
    code: 'ECONNRESET',
  });

function askUdp(target: Target, family: Family, timeout: number): Promise<string> {
  const { host, port } = target;
  let address = isIP(host) ? host : null;
  const waitsFor = () =>
    address === null ? `the name ${host} is not resolved` : `nothing from ${hostPort({ ip: address, port })}`;
  return withTimeout(timeout, waitsFor, async (signal) => {
    const aborted = new Promise<never>((_resolve, reject) =>
      signal.addEventListener('abort', () => reject(signal.reason)),
    );
    const ip = address ?? (await Promise.race([lookup(host, { family }), aborted])).address;
    address = ip;
    const socket = createSocket(isIP(ip) === 6 ? 'udp6' : 'udp4');
    try {
      const answer = new Promise<string>((resolve, reject) => {
        socket.on('message', (data) => resolve(data.toString().trimEnd()));
        socket.on('error', reject);
        // Only a connected socket reports ICMP port unreachable, the answer of a Service without endpoints.
        socket.connect(port, ip, () => {
          socket.send('hostname', (error) => {
            if (error) reject(error);
          });
        });
      });
      return await Promise.race([answer, aborted]);
    } finally {
      socket.close();
    }
  });
}
