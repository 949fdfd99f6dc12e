import { once } from 'node:events';
import { chmodSync, mkdirSync, readFileSync, writeFileSync } from 'node:fs';
import { dirname, join } from 'node:path';
import { parse } from 'yaml';
import { startAgent } from '../agent/agent.ts';
import { type AgentConfiguration, readConfiguration } from '../agent/configuration.ts';
import { markReady } from '../cluster/state.ts';
import { systemClock } from '../lib/clock.ts';
import { FairleadError, messageOf } from '../lib/errors.ts';
import type { BuiltinImage } from '../runtime/options.ts';
import { allocateFromPools } from './agent-pools.ts';
import { type Command, parseArguments, textOption, usageError } from './command.ts';
import { createLogger, exitOnUnhandled, shutdownSignal } from './logging.ts';
import { KUBERNETES_VERSION } from './version.ts';

export const command: Command = {
  help: `Usage: fairlead agent --config FILE

The node agent: carries Services, and, where its configuration says so, runs the pods' network, DNS and the pods of
the node that it runs on. It follows the API server until it is stopped; what it has programmed stays.

  --config FILE   kind AgentConfiguration (fairlead.dev/v1alpha1), or kube-proxy's KubeProxyConfiguration
`,
  async run(argv) {
    const parsed = parseArguments(
      'agent',
      argv,
      { config: { type: 'string' } },
      { least: 0, most: 0, names: '' },
    );
    const file = textOption(parsed, 'config', '');
    if (file === '') throw usageError('agent', '--config FILE is missing');
    const configuration = readConfigurationFile(file);
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
        logger.error({ err: error }, `the node cannot start: ${messageOf(error)}`);
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
};

/** The configuration in a file. Throws FairleadError that names the file, or the field and what it must be. */
export function readConfigurationFile(file: string): AgentConfiguration {
  let document: unknown;
  try {
    document = parse(readFileSync(file, 'utf8'));
  } catch (error) {
    throw new FairleadError(`cannot read the configuration ${file}: ${messageOf(error)}`, {
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
