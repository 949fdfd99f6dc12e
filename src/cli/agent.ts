import { once } from 'node:events';
import { writeFileSync } from 'node:fs';
import { availableParallelism } from 'node:os';
import { stringify } from 'yaml';
import { startAgent } from '../agent/agent.ts';
import type { AgentConfiguration } from '../agent/agent-configuration.ts';
import { removeAll } from '../agent/cleanup.ts';
import { joining, readConfiguration } from '../agent/configuration.ts';
import { DEBUG_VERBOSITY } from '../agent/kube-proxy-configuration.ts';
import { readMachinePulls } from '../agent/pod-runtime/machine-pulls.ts';
import type { RuntimeProgram } from '../agent/pod-runtime/runtime-process.ts';
import { requireRoot } from '../cluster/requirements.ts';
import { markReady } from '../cluster/state.ts';
import { systemClock } from '../lib/clock.ts';
import { messageOf } from '../lib/errors.ts';
import type { Logger } from '../lib/log.ts';
import { applyConntrackSettings } from '../proxy/conntrack-settings.ts';
import { printSteps } from './cleanup.ts';
import { defineCommand } from './command.ts';
import { readConfigurationFile } from './configuration-file.ts';
import { hasKubeProxyFlag, KUBE_PROXY_OPTIONS, readKubeProxyFlags } from './kube-proxy-flags.ts';
import { createLogger, exitOnUnhandled, shutdownSignal } from './logging.ts';
import { withoutMemoryFlags } from './memory-flags.ts';
import { choice, flag, text, usageError } from './options.ts';
import { KUBERNETES_VERSION, version } from './version.ts';

/** Flags of Node.js for the pod runtime: see NODE_FLAGS of src/cluster/processes.ts. */
const RUNTIME_FLAGS = ['--max-semi-space-size=4', '--min-semi-space-size=4'];

export const command = defineCommand({
  name: 'agent',
  summary: 'run the node agent of a real cluster',
  description: [
    'The node agent: programs Services and, if configured, provides the pod network, network policies, DNS, and runs the pods of its node. It watches the API server until it is stopped; the rules that it programmed stay.',
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
    'bootstrap-kubeconfig': text(
      'FILE',
      'a kubeconfig with a bootstrap token, to join the cluster as a node; overrides --config',
    ),
    beside: flag(
      'program Services although kube-proxy or another proxy runs on this node, and keep its rules',
    ),
    'hostname-override': text('NAME', 'the name of the Node object of this machine; overrides --config'),
    master: text('URL', 'the API server; overrides the kubeconfig'),
    v: text('N', 'verbosity; 4 or higher logs what is programmed into the kernel', { short: 'v' }),
    version: choice('BOOL', ['true', 'false', 'raw'], 'false', 'print the version and exit', {
      implied: 'true',
    }),
    cleanup: choice('BOOL', ['true', 'false'], 'false', 'run the command cleanup and exit', {
      implied: 'true',
    }),
    'init-only': choice(
      'BOOL',
      ['true', 'false'],
      'false',
      'apply the connection tracking settings and exit',
      { implied: 'true' },
    ),
    'write-config-to': text('FILE', 'write the configuration with its defaults and exit'),
    ...KUBE_PROXY_OPTIONS,
  },
  async run({ options, given }, output) {
    if (options.version !== 'false') {
      output.out(`fairlead ${version} (Kubernetes ${KUBERNETES_VERSION})\n`);
      return 0;
    }
    const configuration = readCommandLine(options, given);
    if (configuration === null) {
      throw usageError('agent', "missing --config FILE, or kube-proxy's flags such as --kubeconfig FILE");
    }
    const target = options['write-config-to'];
    if (typeof target === 'string') {
      writeFileSync(target, stringify(Object.values(configuration.configz)[0]));
      return 0;
    }
    const logger = createLogger('agent', configuration).child({ node: configuration.nodeName });
    if (options['init-only'] === 'true') {
      for (const warning of configuration.warnings) logger.warn({}, warning);
      if (configuration.proxy) {
        applyConntrackSettings(configuration.proxy.conntrack, availableParallelism(), logger);
      }
      return 0;
    }
    if (options.cleanup === 'true') {
      requireRoot('agent --cleanup');
      return printSteps(await removeAll(configuration, logger), output);
    }
    exitOnUnhandled(logger);
    const stopping = shutdownSignal();
    const ending = new AbortController();
    const { signal } = ending;
    if (Object.keys(configuration.loadBalancer?.pools ?? {}).length > 0) {
      logger.info(
        {},
        'loadBalancer.pools: `fairlead address-controller` assigns the addresses; the agent announces them',
      );
    }
    setOomScore(configuration.oomScoreAdj, logger);
    const end = () => ending.abort(stopping.reason);
    stopping.addEventListener('abort', end);
    const starting = startAgent(configuration, {
      runtimeProgram: runtimeProgram(configuration.verbose),
      pulls: readMachinePulls(process.env),
      version: KUBERNETES_VERSION,
      flags: Object.fromEntries(
        Object.entries(options)
          .filter(([name]) => !name.endsWith('password'))
          .map(([name, value]) => [name, String(value ?? '')]),
      ),
      beside: options.beside === true,
      clock: systemClock,
      random: Math.random,
      logger,
      signal,
    });
    const agent = await starting.catch((error: unknown) => {
      // A node that waits for the approval of its certificate can be stopped.
      if (signal.aborted) return null;
      throw error;
    });
    if (agent === null) return 0;
    agent.ready
      .then(() => markReady(configuration.stateDir, logger))
      .catch((error: unknown) => {
        if (signal.aborted) return;
        logger.error({ err: error }, `failed to start the node: ${messageOf(error)}`);
        process.exit(1);
      });
    stopping.removeEventListener('abort', end);
    if (!stopping.aborted) await once(stopping, 'abort');
    await agent.drain();
    end();
    await agent.close();
    return 0;
  },
});

/** Returns the configuration from --config and kube-proxy's flags; null: neither was given. */
function readCommandLine(
  options: Readonly<Record<string, unknown>>,
  given: ReadonlySet<string>,
): AgentConfiguration | null {
  const file = typeof options['config'] === 'string' ? options['config'] : null;
  const isKubeProxy = hasKubeProxyFlag(given) || given.has('master') || given.has('hostname-override');
  if (file === null && !isKubeProxy) return null;
  const flags = readKubeProxyFlags(options, given, file !== null);
  const configuration = file === null ? readConfiguration(flags.document) : readConfigurationFile(file);
  const nodeName =
    typeof options['hostname-override'] === 'string' ? options['hostname-override'].trim() : '';
  const bootstrap = options['bootstrap-kubeconfig'];
  if (typeof bootstrap === 'string' && configuration.pods === null)
    throw usageError(
      'agent',
      '--bootstrap-kubeconfig needs --config with pods: only such an agent is a node',
    );
  const bootstrapKubeconfig = typeof bootstrap === 'string' ? bootstrap : configuration.bootstrapKubeconfig;
  const verbosity = typeof options['v'] === 'string' ? options['v'] : '0';
  if (!/^[0-9]+$/.test(verbosity)) throw usageError('agent', `-v takes an integer, not ${verbosity}`);
  return {
    ...configuration,
    bootstrapKubeconfig,
    ...joining({ ...configuration, bootstrapKubeconfig }),
    ...(nodeName === '' ? {} : { nodeName: nodeName.toLowerCase() }),
    ...(typeof options['master'] === 'string' ? { server: options['master'], servers: [] } : {}),
    verbose: configuration.verbose || Number(verbosity) >= DEBUG_VERBOSITY,
    warnings: [...flags.warnings, ...configuration.warnings],
  };
}

/** Returns the command of the pod runtime: this program, with its own bounds of memory. */
function runtimeProgram(isVerbose: boolean): RuntimeProgram {
  const kept = withoutMemoryFlags(process.execArgv);
  return {
    file: process.execPath,
    words: (heapMiB) => [
      ...kept,
      `--max-old-space-size=${heapMiB}`,
      ...RUNTIME_FLAGS,
      process.argv[1] ?? '',
      'pod-runtime',
      ...(isVerbose ? ['--verbose'] : []),
    ],
  };
}

/** Sets the OOM score of the agent, like kube-proxy's oomScoreAdj; null: unchanged. */
function setOomScore(score: number | null, logger: Logger): void {
  if (score === null) return;
  try {
    writeFileSync('/proc/self/oom_score_adj', String(score));
  } catch (error) {
    logger.warn({}, `failed to set oomScoreAdj ${score}: ${messageOf(error)}`);
  }
}
