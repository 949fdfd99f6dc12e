import { PROGRAMMED_PATH } from '../proxy/status-servers.ts';
import { askStatus } from './status-answer.ts';

/** A resourceVersion; etcd's have up to 19 digits. */
const VERSION = /^[0-9]{1,40}$/;

/** Asks a node's agent which version of the EndpointSlices its kernel has. Returns null if no agent answers with a version. */
export async function askProgrammed(address: string, port: number): Promise<string | null> {
  const answer = await askStatus(port, PROGRAMMED_PATH, address);
  return answer?.isAgents ? readProgrammed(answer.body) : null;
}

/** Reads the body of an answer, which any process of that node may have written. */
export function readProgrammed(body: string): string | null {
  let value: unknown;
  try {
    value = JSON.parse(body);
  } catch {
    return null;
  }
  const { endpointSlices } = (value ?? {}) as Readonly<Record<string, unknown>>;
  return typeof endpointSlices === 'string' && VERSION.test(endpointSlices) ? endpointSlices : null;
}
