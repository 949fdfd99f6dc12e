import { createSocket } from 'node:dgram';
import { once } from 'node:events';
import { createServer, get } from 'node:http';
import { hostname } from 'node:os';
import { FairleadError, messageOf } from '../lib/errors.ts';
import { literalLookup } from '../lib/literal-lookup.ts';
import { defineCommand } from './command.ts';
import { text, texts, usageError, wholeNumber } from './options.ts';

const CALL_MS = 3000;
/** Node closes idle connections after five seconds, also of clients that a busy machine keeps from sending. */
const KEEP_ALIVE_MS = 600_000;

export const command = defineCommand({
  name: 'echo',
  summary: 'run a test server that answers HTTP and UDP with its name',
  description: [
    "A small server for examples and tests. It answers HTTP and UDP on the same port with its own name and the client's address, which shows the answering pod and the source address that it sees.",
    [
      '  GET /          "hello from NAME (you are ADDRESS)"',
      '  GET /hostname  NAME',
      '  GET /clientip  ADDRESS:PORT of the client',
      '  GET /wait/MS   as /, after MS milliseconds',
      '  UDP datagram   "NAME ADDRESS:PORT" of the client; NAME for "hostname"',
    ].join('\n'),
  ],
  arguments: [],
  options: {
    port: wholeNumber('N', [8080, 1, 65535], 'TCP port, and UDP port without --udp-port'),
    'udp-port': wholeNumber('N', [0, 0, 65535], 'UDP port; 0: same as --port'),
    message: text('TEXT', 'the word before "from"', { fallback: 'hello' }),
    calls: texts('URL', 'a URL to request for every GET /; its answer is appended'),
  },
  async run({ options }, output) {
    const { port, calls } = options;
    const udpPort = options['udp-port'] || port;
    const { message } = options;
    const bad = calls.find((url) => !URL.canParse(url) || !url.startsWith('http://'));
    if (bad !== undefined)
      throw usageError('echo', `--calls takes http://HOST[:PORT][/PATH], not ${JSON.stringify(bad)}`);
    const name = hostname();

    const server = createServer({ keepAliveTimeout: KEEP_ALIVE_MS }, async (request, response) => {
      const client = plain(request.socket.remoteAddress ?? '');
      const path = request.url ?? '/';
      const wait = /^\/wait\/([0-9]{1,6})$/.exec(path);
      if (wait) await new Promise((resolve) => setTimeout(resolve, Number(wait[1])));
      const body =
        path === '/hostname'
          ? name
          : path === '/clientip'
            ? `${bracketed(client)}:${request.socket.remotePort}`
            : [`${message} from ${name} (you are ${client})`, ...(await askAll(calls))].join('\n');
      response.setHeader('content-type', 'text/plain; charset=utf-8');
      response.end(`${body}\n`);
    });
    const socket = createSocket({ type: 'udp6', ipv6Only: false, lookup: literalLookup });
    socket.on('message', (data, from) => {
      // Cannot be answered, and Node throws when it sends to port 0.
      if (from.port === 0) return;
      const answer =
        data.toString().trim() === 'hostname'
          ? name
          : `${name} ${bracketed(plain(from.address))}:${from.port}`;
      socket.send(`${answer}\n`, from.port, from.address);
    });
    // The second event comes before `bind` returns.
    const listening = Promise.all([once(server, 'listening'), once(socket, 'listening')]);
    server.listen(port);
    socket.bind(udpPort, '::');
    await listening;
    output.out(`${name}: HTTP on port ${port}, UDP on port ${udpPort}\n`);

    await Promise.race([once(process, 'SIGTERM'), once(process, 'SIGINT')]);
    socket.close();
    server.closeIdleConnections();
    await new Promise((resolve) => server.close(resolve));
    return 0;
  },
});

/** Removes the prefix of an IPv4-mapped address: a dual-stack socket shows IPv4 clients as "::ffff:10.0.0.1". */
function plain(address: string): string {
  return address.startsWith('::ffff:') ? address.slice(7) : address;
}

function bracketed(address: string): string {
  return address.includes(':') ? `[${address}]` : address;
}

/** Requests each URL; returns its answer, indented under the URL, or the reason of the failure. */
async function askAll(urls: readonly string[]): Promise<string[]> {
  const answers = await Promise.all(
    urls.map(async (url) => {
      try {
        return `${url}: ${await ask(url)}`;
      } catch (error) {
        return `${url}: no answer (${messageOf(error)})`;
      }
    }),
  );
  return answers.map((answer) => `  ${answer.trimEnd().replaceAll('\n', '\n  ')}`);
}

/** Opens a new connection for each request, so that the Service chooses an endpoint each time. */
function ask(url: string): Promise<string> {
  return new Promise((resolve, reject) => {
    const call = get(url, { agent: false, timeout: CALL_MS }, (response) => {
      let text = '';
      response.setEncoding('utf8');
      response.on('data', (chunk: string) => {
        text += chunk;
      });
      response.on('end', () => resolve(text));
      response.on('error', reject);
    });
    call.on('timeout', () =>
      call.destroy(new FairleadError(`no answer within ${CALL_MS} ms`, { op: 'call', code: 'ETIMEDOUT' })),
    );
    call.on('error', reject);
  });
}
