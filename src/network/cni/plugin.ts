import { connect } from 'node:net';
import {
  CNI_CODE,
  CNI_COMMANDS,
  CNI_VERSIONS,
  type CniAnswer,
  CniError,
  type CniRequest,
  NEWEST_CNI_VERSION,
  readConfig,
  SOCKET_VARIABLE,
} from './specification.ts';

// The CNI plugin, which a container runtime starts for each call. It forwards the call to the node's agent,
// and imports as little as possible, since every start of a container waits for it.

/** The default of the configuration's field "socket", the agent's socket. */
const DEFAULT_SOCKET = '/var/lib/fairlead/agent/cni.sock';
/** Time to wait for a restarting agent. STATUS does not wait. */
const PATIENCE_MS = 60_000;
const PATIENCE_STATUS_MS = 1000;
const RETRY_MS = 50;

type Environment = Readonly<Record<string, string | undefined>>;

/** Executes one call; resolves to the standard output and the exit status. */
export async function run(
  environment: Environment,
  input: string,
): Promise<{ readonly output: string; readonly status: number }> {
  let cniVersion: string = NEWEST_CNI_VERSION;
  try {
    const command = CNI_COMMANDS.find((one) => one === environment['CNI_COMMAND']);
    if (!command) {
      const given = environment['CNI_COMMAND'];
      throw new CniError(
        CNI_CODE.badEnvironment,
        given ? `CNI_COMMAND ${JSON.stringify(given)} is unknown` : 'CNI_COMMAND is not set',
        `one of ${CNI_COMMANDS.join(', ')}`,
      );
    }
    const document = parse(input);
    const said = (document as { cniVersion?: unknown } | null)?.cniVersion;
    if (CNI_VERSIONS.some((version) => version === said)) cniVersion = String(said);
    if (command === 'VERSION') {
      return success({ cniVersion, supportedVersions: CNI_VERSIONS });
    }
    const config = readConfig(document);
    const request: CniRequest = {
      command,
      containerId: variable(environment, 'CNI_CONTAINERID', command, /^[a-zA-Z0-9][a-zA-Z0-9_.-]*$/),
      netns: variable(environment, 'CNI_NETNS', command, /^\//),
      ifname: variable(environment, 'CNI_IFNAME', command, /^(?!\.\.?$)[^/:\s]{1,15}$/),
      args: environment['CNI_ARGS'] ?? '',
      config: document,
    };
    const patience = command === 'STATUS' ? PATIENCE_STATUS_MS : PATIENCE_MS;
    const answer = await ask(
      config.socket ?? environment[SOCKET_VARIABLE] ?? DEFAULT_SOCKET,
      request,
      patience,
    );
    if ('result' in answer) return success(answer.result);
    const { code, msg, details } = answer.error;
    throw new CniError(code, msg, details);
  } catch (error) {
    const { code = CNI_CODE.io, details } = error as Partial<CniError>;
    const failure = {
      cniVersion,
      code: typeof code === 'number' ? code : CNI_CODE.io,
      msg: error instanceof Error ? error.message : String(error),
      ...(details ? { details } : {}),
    };
    return { output: `${JSON.stringify(failure, null, 2)}\n`, status: 1 };
  }
}

const success = (result: object | null) => ({
  output: result === null ? '' : `${JSON.stringify(result, null, 2)}\n`,
  status: 0,
});

function parse(input: string): unknown {
  try {
    return JSON.parse(input);
  } catch (error) {
    throw new CniError(
      CNI_CODE.undecodable,
      'the network configuration on standard input is not JSON',
      error instanceof Error ? error.message : undefined,
    );
  }
}

/**
 * Returns a required variable of a call (SPEC.md, section 2): GC and STATUS need none, DEL no namespace.
 */
function variable(environment: Environment, name: string, command: string, form: RegExp): string {
  const value = environment[name] ?? '';
  if (command === 'GC' || command === 'STATUS' || (command === 'DEL' && name === 'CNI_NETNS')) return value;
  if (form.test(value)) return value;
  const what = value === '' ? 'is not set' : `is ${JSON.stringify(value)}`;
  throw new CniError(CNI_CODE.badEnvironment, `${name} ${what}`, `it must match ${form.source}`);
}

/**
 * Sends the call to the agent. Waits and retries if the agent is not running or exits during the call: every call may be
 * repeated.
 */
async function ask(socketPath: string, request: CniRequest, patienceMs: number): Promise<CniAnswer> {
  for (const end = Date.now() + patienceMs; ; await new Promise((resolve) => setTimeout(resolve, RETRY_MS))) {
    try {
      return await askOnce(socketPath, request);
    } catch (error) {
      if (Date.now() < end) continue;
      const code = request.command === 'STATUS' ? CNI_CODE.unavailable : CNI_CODE.tryAgain;
      throw new CniError(
        code,
        `the agent of this node does not answer at ${socketPath}`,
        error instanceof Error ? error.message : undefined,
      );
    }
  }
}

function askOnce(socketPath: string, request: CniRequest): Promise<CniAnswer> {
  return new Promise((resolve, reject) => {
    const socket = connect(socketPath);
    let text = '';
    socket.setEncoding('utf8');
    socket.on('connect', () => socket.write(`${JSON.stringify(request)}\n`));
    socket.on('data', (chunk) => {
      text += chunk;
    });
    socket.on('error', reject);
    socket.on('close', () => {
      if (text.endsWith('\n')) resolve(JSON.parse(text) as CniAnswer);
      else reject(new Error('the agent closed the connection before it answered'));
    });
  });
}

async function main(): Promise<void> {
  let input = '';
  process.stdin.setEncoding('utf8');
  for await (const chunk of process.stdin) input += chunk;
  const { output, status } = await run(process.env, input);
  process.exitCode = status;
  process.stdout.write(output);
}

if (process.argv[1] !== undefined && import.meta.filename === process.argv[1]) await main();
