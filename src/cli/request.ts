import { createSocket } from 'node:dgram';
import { lookup } from 'node:dns/promises';
import { Agent, get } from 'node:http';
import { isIP } from 'node:net';
import { messageOf } from '../lib/errors.ts';
import { type Command, formatTable, numberOption, parseArguments, usageError } from './command.ts';

interface Target {
  readonly protocol: 'http' | 'udp';
  readonly host: string;
  readonly port: number;
  readonly path: string;
}

/** 0: whatever the name has, in the resolver's order. */
type Family = 0 | 4 | 6;

export const command: Command = {
  help: `Usage: fairlead request URL [--count N] [--concurrency N] [--timeout MS] [-4|-6] [--json]

Asks a server again and again, each time on a new connection (UDP: from a new port), and counts the different
answers; made for "fairlead echo". The exit status is 0 when every request was answered.

  URL               http://HOST[:PORT][/PATH] or udp://HOST:PORT; PATH is /hostname unless given
  --count N         how many requests (default 1; at most 100000)
  --concurrency N   how many at once (default 8)
  --timeout MS      how long to wait for an answer (default 3000)
  -4, -6            use addresses of that family only
  --json            print one JSON object
`,
  async run(argv, output) {
    const parsed = parseArguments(
      'request',
      argv,
      {
        count: { type: 'string' },
        concurrency: { type: 'string' },
        timeout: { type: 'string' },
        ipv4: { type: 'boolean', short: '4' },
        ipv6: { type: 'boolean', short: '6' },
        json: { type: 'boolean' },
      },
      { least: 1, most: 1, names: 'URL' },
    );
    const target = readTarget(parsed.positionals[0] ?? '');
    const family = parsed.values['ipv4'] ? 4 : parsed.values['ipv6'] ? 6 : 0;
    const count = numberOption('request', parsed, 'count', 1, 1, 100_000);
    const concurrency = numberOption('request', parsed, 'concurrency', 8, 1, 1000);
    const timeout = numberOption('request', parsed, 'timeout', 3000, 1, 600_000);

    const answers = new Map<string, number>();
    const failures = new Map<string, number>();
    let started = 0;
    const worker = async () => {
      while (started < count) {
        started++;
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

    if (parsed.values['json']) {
      output.out(
        `${JSON.stringify({ count, answers: Object.fromEntries(answers), failures: Object.fromEntries(failures) })}\n`,
      );
    } else if (count === 1) {
      for (const answer of answers.keys()) output.out(`${answer}\n`);
      for (const failure of failures.keys()) output.err(`fairlead: ${failure}\n`);
    } else {
      const share = (n: number) => `${((100 * n) / count).toFixed(1)} %`;
      const byCount = [...answers].sort((a, b) => b[1] - a[1]);
      output.out(formatTable(byCount.map(([answer, n]) => [answer, String(n), share(n)])));
      output.out(
        formatTable([...failures].map(([failure, n]) => [`failed: ${failure}`, String(n), share(n)])),
      );
    }
    return failures.size === 0 ? 0 : 1;
  },
};

function readTarget(text: string): Target {
  const url = URL.parse(text.includes('://') ? text : `http://${text}`);
  const protocol = url?.protocol.slice(0, -1);
  if (!url || (protocol !== 'http' && protocol !== 'udp') || url.hostname === '') {
    throw usageError('request', `${JSON.stringify(text)} is no http:// or udp:// address`);
  }
  if (protocol === 'udp' && url.port === '')
    throw usageError('request', `${JSON.stringify(text)} lacks a port`);
  return {
    protocol,
    host: url.hostname.replace(/^\[|\]$/g, ''),
    port: url.port === '' ? 80 : Number(url.port),
    path: url.pathname === '/' || url.pathname === '' ? '/hostname' : url.pathname + url.search,
  };
}

function askHttp(target: Target, family: Family, timeout: number): Promise<string> {
  return new Promise((resolve, reject) => {
    const { host, port, path } = target;
    const agent = new Agent({ keepAlive: false });
    const request = get(
      { host, port, path, agent, family, signal: AbortSignal.timeout(timeout) },
      (response) => {
        let body = '';
        response.setEncoding('utf8');
        response.on('data', (chunk: string) => {
          body += chunk;
        });
        response.on('end', () => resolve(body.trimEnd()));
        response.on('error', reject);
      },
    );
    request.on('error', (error) => {
      reject(
        error.name === 'AbortError' || error.name === 'TimeoutError' ? new Error('no answer in time') : error,
      );
    });
  });
}

async function askUdp(target: Target, family: Family, timeout: number): Promise<string> {
  const address = isIP(target.host) ? target.host : (await lookup(target.host, { family })).address;
  const socket = createSocket(isIP(address) === 6 ? 'udp6' : 'udp4');
  try {
    return await new Promise<string>((resolve, reject) => {
      const timer = setTimeout(() => reject(new Error('no answer in time')), timeout);
      const settle = (run: () => void) => {
        clearTimeout(timer);
        run();
      };
      socket.on('message', (data) => settle(() => resolve(data.toString().trimEnd())));
      socket.on('error', (error) => settle(() => reject(error)));
      // A connected socket hears of an ICMP port unreachable, which is how a Service without endpoints answers.
      socket.connect(target.port, address, () => {
        socket.send('hostname', (error) => {
          if (error) settle(() => reject(error));
        });
      });
    });
  } finally {
    socket.close();
  }
}
