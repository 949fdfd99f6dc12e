import { once } from 'node:events';
import { chmodSync, mkdirSync, readFileSync, writeFileSync } from 'node:fs';
import { dirname, join } from 'node:path';
import { parse } from 'yaml';
import { allocateFromPools } from '../agent/address-pools-part.ts';
import { startAgent } from '../agent/agent.ts';
import { type AgentConfiguration, readConfiguration } from '../agent/configuration.ts';
import { markReady } from '../cluster/state.ts';
import { systemClock } from '../lib/clock.ts';
import { FairleadError, fileProblem, messageOf } from '../lib/errors.ts';
import type { BuiltinImage } from '../runtime/options.ts';
import { defineCommand } from './command.ts';
import { createLogger, exitOnUnhandled, shutdownSignal } from './logging.ts';
import { text, usageError } from './options.ts';
import { KUBERNETES_VERSION } from './version.ts';

export const command = defineCommand({
  name: 'agent',
  summary: 'run the node agent of a real cluster',
  description: [
    'The node agent: programs Services and, where its configuration says so, runs the network of the pods, DNS, and the pods of its node. It follows the API server until it is stopped; the rules that it programmed stay.',
  ],
  arguments: [],
  options: {
    config: text(
      'FILE',
      "an AgentConfiguration (fairlead.dev/v1alpha1), or kube-proxy's KubeProxyConfiguration",
      {
        main: true,
      },
    ),
  },
  async run({ options }) {
    if (options.config === null) throw usageError('agent', 'missing --config FILE');
    const configuration = readConfigurationFile(options.config);
    const logger = createLogger('agent').child({ node: configuration.nodeName });
    exitOnUnhandled(logger);
    const signal = shutdownSignal();
    const agent = await startAgent(configuration, {
      builtinImages: builtinImages(configuration.stateDir),
      version: KUBERNETES_VERSION,
      clock: systemClock,
      random: Math.random,
      logger,
      signal,
    });
    agent.ready
      .then(() => markReady(configuration.stateDir))
      .catch((error: unknown) => {
        if (signal.aborted) return;
        logger.error({ err: error }, `failed to start the node: ${messageOf(error)}`);
        process.exit(1);
      });
    const pools = allocateFromPools(configuration, {
      clock: systemClock,
      random: Math.random,
      logger,
      signal,
    });
    if (!signal.aborted) await once(signal, 'abort');
    await pools;
    await agent.close();
    return 0;
  },
});

/** The configuration in a file. Throws FairleadError that names the file, or the field and what it must be. */
export function readConfigurationFile(file: string): AgentConfiguration {
  let document: unknown;
  try {
    document = parse(readFileSync(file, 'utf8'));
  } catch (error) {
    throw new FairleadError(`cannot read ${file}: ${fileProblem(error)}`, {
      op: 'read configuration',
      code: 'bad-config',
      object: file,
      cause: error,
    });
  }
  return readConfiguration(document);
}

/** The image `fairlead`: this program inside a container, at /opt/fairlead and on the PATH. */
function builtinImages(stateDir: string): Record<string, BuiltinImage> {
  const bundle = dirname(process.argv[1] ?? '');
  const wrapper = join(stateDir, 'bin', 'fairlead');
  mkdirSync(dirname(wrapper), { recursive: true, mode: 0o755 });
  writeFileSync(
    wrapper,
    '#!/bin/sh\nexec /opt/fairlead/node --disable-warning=ExperimentalWarning /opt/fairlead/dist/fairlead.mjs "$@"\n',
  );
  chmodSync(wrapper, 0o755);
  const mount = (source: string, destination: string) => ({ source, destination, readonly: true });
  return {
    fairlead: {
      mounts: [
        mount(bundle, '/opt/fairlead/dist'),
        mount(process.execPath, '/opt/fairlead/node'),
        mount(wrapper, '/usr/local/bin/fairlead'),
      ],
    },
  };
}
