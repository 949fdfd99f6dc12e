import type { ApiResponse } from '../transport.ts';

/** Returns the response of an API server that answers with an object. */
export function jsonAnswer(
  status: number,
  body: unknown,
  headers: Readonly<Record<string, string>> = {},
): ApiResponse {
  return {
    status,
    headers,
    body: (async function* () {
      yield Buffer.from(JSON.stringify(body));
    })(),
  };
}
