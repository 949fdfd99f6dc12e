import { createSocket } from 'node:dgram';
import { once } from 'node:events';
import { createServer, get } from 'node:http';
import { hostname } from 'node:os';
import { messageOf } from '../lib/errors.ts';
import {
  type Command,
  numberOption,
  parseArguments,
  textOption,
  textOptions,
  usageError,
} from './command.ts';

const CALL_MS = 3000;

export const command: Command = {
  help: `Usage: fairlead echo [--port N] [--udp-port N] [--message TEXT] [--calls URL…]

A small server for examples and checks. It answers HTTP and UDP on the same port with its own name and the
client's address, so that one sees which pod answered and what address arrived there.

  GET /            "hello from NAME (you are ADDRESS)"
  GET /hostname    NAME
  GET /clientip    ADDRESS:PORT of the client
  GET /wait/MS     as /, after MS milliseconds
  UDP datagram     "NAME ADDRESS:PORT" of the client; "hostname" is answered with NAME alone

  --port N         TCP port, and UDP port unless --udp-port is given (default 8080)
  --udp-port N     UDP port
  --message TEXT   the word before "from" (default: hello)
  --calls URL      asked for every GET /, and what it says added to the answer; may be given several times
`,
  async run(argv, output) {
    const parsed = parseArguments(
      'echo',
      argv,
      {
        port: { type: 'string' },
        'udp-port': { type: 'string' },
        message: { type: 'string' },
        calls: { type: 'string', multiple: true },
      },
      { least: 0, most: 0, names: '' },
    );
    const port = numberOption('echo', parsed, 'port', 8080, 1, 65535);
    const udpPort = numberOption('echo', parsed, 'udp-port', port, 1, 65535);
    const message = textOption(parsed, 'message', 'hello');
    const calls = textOptions(parsed, 'calls');
    const bad = calls.find((url) => !URL.canParse(url) || !url.startsWith('http://'));
    if (bad !== undefined)
      throw usageError('echo', `--calls takes http://HOST[:PORT][/PATH], not ${JSON.stringify(bad)}`);
    const name = hostname();

    const server = createServer(async (request, response) => {
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
    const socket = createSocket({ type: 'udp6', ipv6Only: false });
    socket.on('message', (data, from) => {
      const answer =
        data.toString().trim() === 'hostname'
          ? name
          : `${name} ${bracketed(plain(from.address))}:${from.port}`;
      socket.send(`${answer}\n`, from.port, from.address);
    });
    server.listen(port, '::');
    socket.bind(udpPort, '::');
    await Promise.all([once(server, 'listening'), once(socket, 'listening')]);
    output.out(`${name}: HTTP on port ${port}, UDP on port ${udpPort}\n`);

    await Promise.race([once(process, 'SIGTERM'), once(process, 'SIGINT')]);
    socket.close();
    server.closeIdleConnections();
    await new Promise((resolve) => server.close(resolve));
    return 0;
  },
};

/** An IPv4 client of a dual-stack socket shows as "::ffff:10.0.0.1". */
function plain(address: string): string {
  return address.startsWith('::ffff:') ? address.slice(7) : address;
}

function bracketed(address: string): string {
  return address.includes(':') ? `[${address}]` : address;
}

/** What each of the servers says, indented under its name, or why it says nothing. */
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

/** Each time on a new connection, so that each time the Service decides who answers. */
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
    call.on('timeout', () => call.destroy(new Error(`nothing in ${CALL_MS} ms`)));
    call.on('error', reject);
  });
}
