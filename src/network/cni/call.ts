import {
  CNI_CODE,
  CNI_COMMANDS,
  CNI_VERSIONS,
  CniError,
  type CniFailure,
  type CniRequest,
  NEWEST_CNI_VERSION,
  readConfig,
} from './specification.ts';

/** A call as the plugin hands it over: the variables CNI_… of its process, and its standard input. */
export interface CniCall {
  readonly environment: Readonly<Record<string, string>>;
  readonly input: string;
}

/** Reads a call from the plugin's bytes (cni/plugin.c); null if they are not a call. */
export function parseCall(bytes: Buffer): CniCall | null {
  const environment: Record<string, string> = {};
  for (let at = 0; ; ) {
    const end = bytes.indexOf(0, at);
    if (end < 0) return null;
    if (end === at) return { environment, input: bytes.toString('utf8', end + 1) };
    const [, name = '', value = ''] = /^([^=]*)=(.*)$/s.exec(bytes.toString('utf8', at, end)) ?? [];
    environment[name] = value;
    at = end + 1;
  }
}

/** The output of the plugin, and its status. */
export interface CniAnswer {
  readonly output: string;
  readonly status: number;
}

/** Encodes an answer for the plugin. */
export const encodeAnswer = ({ output, status }: CniAnswer): string => `${status}${output}\0`;

/**
 * Answers a call: checks its variables and its configuration, and executes the request. `failureOf` turns what that
 * throws into CNI's form.
 */
export async function answerCall(
  { environment, input }: CniCall,
  carryOut: (request: CniRequest) => Promise<object | null>,
  failureOf: (error: unknown, command: string) => CniFailure,
): Promise<CniAnswer> {
  let cniVersion: string = NEWEST_CNI_VERSION;
  const given = environment['CNI_COMMAND'] ?? '';
  try {
    const command = CNI_COMMANDS.find((one) => one === given);
    if (!command) {
      throw new CniError(
        CNI_CODE.badEnvironment,
        given === '' ? 'CNI_COMMAND is not set' : `CNI_COMMAND ${JSON.stringify(given)} is unknown`,
        `one of ${CNI_COMMANDS.join(', ')}`,
      );
    }
    const document = command === 'VERSION' && input.trim() === '' ? {} : parse(input);
    const requested = (document as { cniVersion?: unknown } | null)?.cniVersion;
    if (CNI_VERSIONS.some((version) => version === requested)) cniVersion = String(requested);
    if (command === 'VERSION') return success({ cniVersion, supportedVersions: CNI_VERSIONS });
    const request: CniRequest = {
      command,
      containerId: variable(environment, 'CNI_CONTAINERID', command, /^[a-zA-Z0-9][a-zA-Z0-9_.-]*$/),
      netns: variable(environment, 'CNI_NETNS', command, /^\//),
      ifname: variable(environment, 'CNI_IFNAME', command, /^(?!\.\.?$)[^/:\s]{1,15}$/),
      args: environment['CNI_ARGS'] ?? '',
      config: readConfig(document),
    };
    return success(await carryOut(request));
  } catch (error) {
    const failure = { cniVersion, ...failureOf(error, given) };
    return { output: `${JSON.stringify(failure, null, 2)}\n`, status: 1 };
  }
}

const success = (result: object | null): CniAnswer => ({
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

/** Returns a required variable of a call (SPEC.md, section 2): GC and STATUS need none, DEL no namespace. */
function variable(environment: CniCall['environment'], name: string, command: string, form: RegExp): string {
  const value = environment[name] ?? '';
  if (command === 'GC' || command === 'STATUS' || (command === 'DEL' && name === 'CNI_NETNS')) return value;
  if (form.test(value)) return value;
  const what = value === '' ? 'is not set' : `is ${JSON.stringify(value)}`;
  throw new CniError(CNI_CODE.badEnvironment, `${name} ${what}`, `it must match ${form.source}`);
}
