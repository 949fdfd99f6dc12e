import { once } from 'node:events';
import { startDnsInPod } from '../agent/dns-server-part.ts';
import { DNS_SERVER_LINGER_S } from '../agent/dns-server-settings.ts';
import { familyOf } from '../lib/address.ts';
import { pause, systemClock } from '../lib/clock.ts';
import { FairleadError } from '../lib/errors.ts';
import { defineCommand } from './command.ts';
import { readConfigurationFile } from './configuration-file.ts';
import { createLogger, exitOnUnhandled, shutdownSignal } from './logging.ts';
import { text, texts, usageError, wholeNumber } from './options.ts';
import { KUBERNETES_VERSION } from './version.ts';

export const command = defineCommand({
  name: 'dns-server',
  summary: 'answer cluster DNS in a pod, for nodes whose agent does not run',
  description: [
    "Answers cluster DNS on the pod's addresses, with the settings of the agents (dns of an AgentConfiguration). The rules that the agents keep on their nodes send pods' queries to it while no agent runs there, if the pod network belongs to another CNI plugin. It writes no rules, and needs no privileges.",
  ],
  arguments: [],
  options: {
    config: text('FILE', 'the AgentConfiguration of the agents', { main: true }),
    address: texts('ADDRESS[,ADDRESS]', 'an address of this pod on which it answers', { main: true }),
    linger: wholeNumber('S', [DNS_SERVER_LINGER_S, 0, 3600], 'answer for S seconds after SIGTERM'),
  },
  async run({ options }) {
    if (options.config === null) throw usageError('dns-server', 'missing --config FILE');
    const addresses = options.address.flatMap((one) => one.split(',')).filter(Boolean);
    const wrong = addresses.find((one) => familyOf(one) === null);
    if (wrong !== undefined) throw usageError('dns-server', `--address: ${wrong} is not an IP address`);
    if (addresses.length === 0) throw usageError('dns-server', 'missing --address ADDRESS');
    const configuration = readConfigurationFile(options.config);
    const { dns } = configuration;
    if (dns === null) {
      throw new FairleadError(`${options.config}: dns is missing`, {
        op: 'read configuration',
        code: 'bad-config',
        hint: 'add dns: {addresses: [CLUSTER-IP]}',
      });
    }
    const logger = createLogger('dns-server', configuration);
    exitOnUnhandled(logger);
    const stopping = shutdownSignal();
    const ending = new AbortController();
    const starting = startDnsInPod(configuration, {
      ...{ dns, addresses, version: KUBERNETES_VERSION, logger, clock: systemClock, random: Math.random },
      signal: ending.signal,
    });
    const stopped = stopping.aborted ? Promise.resolve() : once(stopping, 'abort');
    const close = await Promise.race([starting, stopped.then(() => null)]);
    if (close === null) {
      // It has not answered yet.
      starting.catch(() => {});
      ending.abort(stopping.reason);
      return 0;
    }
    logger.info({ addresses }, 'answering cluster DNS');
    await stopped;
    await pause(systemClock, options.linger * 1000, new AbortController().signal);
    await close();
    ending.abort(stopping.reason);
    return 0;
  },
});
