import { FairleadError } from '../lib/errors.ts';

export function badRequest(message: string): FairleadError {
  return new FairleadError(message, { op: 'ask the agent', code: 'bad-request' });
}
