import { FairleadError } from '../lib/errors.ts';
import { type Command, type Output, processOutput } from './command.ts';
import { renderError } from './error-text.ts';

interface Entry {
  readonly name: string;
  readonly summary: string;
  /** Started by other commands, not by people: left out of the help. */
  readonly internal?: boolean;
  readonly load: () => Promise<{ command: Command }>;
}

const COMMANDS: readonly Entry[] = [
  { name: 'up', summary: 'start a local cluster', load: () => import('./up.ts') },
  { name: 'down', summary: 'stop it and leave nothing behind', load: () => import('./down.ts') },
  {
    name: 'status',
    summary: 'nodes, Services, what is unhealthy and why',
    load: () => import('./status.ts'),
  },
  {
    name: 'kubeconfig',
    summary: "print the path of a cluster's kubeconfig",
    load: () => import('./kubeconfig.ts'),
  },
  { name: 'exec', summary: 'run a command in a pod, a node or outside', load: () => import('./exec.ts') },
  {
    name: 'explain',
    summary: 'what would happen to a packet, and why',
    load: () => import('./explain.ts'),
  },
  {
    name: 'check',
    summary: 'send packets of every kind and compare with what must happen',
    load: () => import('./check.ts'),
  },
  {
    name: 'flows',
    summary: 'connections through Services, as they happen',
    load: () => import('./flows.ts'),
  },
  {
    name: 'mode',
    summary: 'carry Services by another mode, without a gap',
    load: () => import('./mode.ts'),
  },
  { name: 'image', summary: 'load, pull, list and remove images of pods', load: () => import('./image.ts') },
  { name: 'agent', summary: 'the node agent', load: () => import('./agent.ts') },
  {
    name: 'cleanup',
    summary: 'remove all that an agent wrote on this node',
    load: () => import('./cleanup.ts'),
  },
  { name: 'echo', summary: 'a small server that says who it is', load: () => import('./echo.ts') },
  {
    name: 'request',
    summary: 'ask a server many times, count the answers',
    load: () => import('./request.ts'),
  },
  { name: 'control-plane', summary: '', internal: true, load: () => import('./control-plane.ts') },
];

/** Runs one command line (without "fairlead" itself); resolves to the exit status. */
export async function main(argv: readonly string[], output: Output): Promise<number> {
  const [name = '--help', ...rest] = argv;
  if (name === '--help' || name === '-h' || name === 'help') {
    output.out(overview());
    return 0;
  }
  if (name === '--version' || name === 'version') {
    const { version } = await import('./version.ts');
    output.out(`fairlead ${version}\n`);
    return 0;
  }
  const entry = COMMANDS.find((candidate) => candidate.name === name);
  if (!entry) {
    output.err(`fairlead: there is no command ${JSON.stringify(name)}; see: fairlead --help\n`);
    return 2;
  }
  const { command } = await entry.load();
  const end = rest.indexOf('--');
  if ((end < 0 ? rest : rest.slice(0, end)).some((argument) => argument === '--help' || argument === '-h')) {
    output.out(command.help);
    return 0;
  }
  try {
    return await command.run(rest, output);
  } catch (error) {
    output.err(renderError(error));
    return error instanceof FairleadError && error.code === 'usage' ? 2 : 1;
  }
}

function overview(): string {
  const shown = COMMANDS.filter((entry) => !entry.internal);
  const width = Math.max(...shown.map((entry) => entry.name.length));
  const lines = shown.map((entry) => `  ${entry.name.padEnd(width)}  ${entry.summary}`);
  return `Fairlead: Kubernetes networking on this machine, and on a cluster's nodes.

Usage: fairlead COMMAND [ARGUMENT…]

${lines.join('\n')}

Every command explains itself with --help. Start with: fairlead up -f examples/hello.yaml
`;
}

if (process.argv[1] && import.meta.filename === process.argv[1]) {
  process.exitCode = await main(process.argv.slice(2), processOutput);
}
