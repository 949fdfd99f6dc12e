import type { Refusal } from '../view.ts';

/** An error of the server, with its fix. */
export class ServerRefusal extends Error {
  readonly hint: string | null;

  constructor({ message, hint }: Refusal) {
    super(message);
    this.hint = hint ?? null;
  }
}

/** Asks the server for an operation: "POST explain", until the signal aborts. Throws ServerRefusal with its message. */
export async function askServer<T>(operation: string, body?: unknown, signal?: AbortSignal): Promise<T> {
  const [method = 'GET', path = ''] = operation.split(' ');
  let response: Response;
  try {
    response = await fetch(`api/${path}`, {
      method,
      ...(signal ? { signal } : {}),
      ...(body === undefined
        ? {}
        : { body: JSON.stringify(body), headers: { 'content-type': 'application/json' } }),
    });
  } catch {
    throw new ServerRefusal({
      message: '“fairlead ui” does not answer',
      hint: 'is the command still running? Start it again, and open the address that it prints',
    });
  }
  const answer = (await response.json()) as T | Refusal;
  if (!response.ok) throw new ServerRefusal(answer as Refusal);
  return answer as T;
}
