import { randomBytes } from 'node:crypto';
import { once } from 'node:events';
import { listenOnLoopback } from '../cluster/loopback-listeners.ts';
import { systemClock } from '../lib/clock.ts';
import { serveClusterPage } from '../ui/cluster-page.ts';
import { defineCommand } from './command.ts';
import { LESSONS_OPTION, ownLessonsIn } from './lessons-option.ts';
import { shutdownSignal } from './logging.ts';
import { NAME_OPTION } from './name-option.ts';
import { wholeNumber } from './options.ts';

const TOKEN_BYTES = 24;
const MAX_PORT = 65535;

export const command = defineCommand({
  name: 'ui',
  summary: 'serve a page that shows the cluster and its traffic, until Ctrl-C',
  description: [
    'Serves a page on 127.0.0.1 of this machine, and prints its address: a map of the clients, Services and endpoints with the traffic between them as it happens. The address contains a token, which is new each time; every request needs it.',
  ],
  arguments: [],
  options: {
    port: wholeNumber('PORT', [0, 0, MAX_PORT], 'the port of this machine; 0: any free port', { main: true }),
    lessons: LESSONS_OPTION,
    name: NAME_OPTION,
  },
  examples: ['ui', 'ui --port 8800', 'ui --lessons ./our-lessons'],
  asUser: ({ options }) => ({
    cluster: options.name,
    listen: () => [{ wanted: options.port, ...listenOnLoopback(options.port) }],
  }),
  async run({ options }, output) {
    const failed = new AbortController();
    const signal = AbortSignal.any([shutdownSignal(), failed.signal]);
    const server = await serveClusterPage({
      name: options.name,
      port: options.port,
      token: randomBytes(TOKEN_BYTES).toString('base64url'),
      command: process.env['FAIRLEAD_COMMAND'] ?? 'fairlead',
      clock: systemClock,
      random: Math.random,
      ownLessons: ownLessonsIn(options.lessons),
      signal,
    }).catch((error: unknown) => {
      // Sockets that it has opened already would keep this process.
      failed.abort();
      throw error;
    });
    output.out(`${server.url}\n`);
    output.err('open this address in a browser of this machine; Ctrl-C ends the page\n');
    if (!signal.aborted) await once(signal, 'abort');
    await server.close();
    return 0;
  },
});
