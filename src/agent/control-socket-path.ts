import { createHash } from 'node:crypto';
import { mkdirSync, rmSync, symlinkSync } from 'node:fs';
import { join } from 'node:path';

/** The variable with the folder of control sockets, if that is not the state folder, in which links then lead to them. */
const VARIABLE = 'FAIRLEAD_SOCKETS';

/** Returns the variable for an agent whose control socket is to be in this folder; null: in its state folder. */
export const controlSocketVariable = (folder: string | null): Readonly<Record<string, string>> =>
  folder === null ? {} : { [VARIABLE]: folder };

/** Returns the path at which commands find an agent's control socket. */
export const controlSocketPath = (stateDir: string) => join(stateDir, 'agent.sock');

/**
 * Returns the path at which the agent listens, to which that in the state folder leads. Removes what an agent has left that was
 * killed: only one uses a state folder.
 */
export function placeControlSocket(
  stateDir: string,
  environment: Readonly<Record<string, string | undefined>>,
): string {
  const folder = environment[VARIABLE] ?? null;
  removeControlSocket(stateDir, folder);
  if (folder === null) return controlSocketPath(stateDir);
  mkdirSync(folder, { recursive: true, mode: 0o700 });
  const place = placeIn(folder, stateDir);
  symlinkSync(place, controlSocketPath(stateDir));
  return place;
}

/** Removes the control socket of an agent that does not run. `folder`: that of control sockets. Idempotent. */
export function removeControlSocket(stateDir: string, folder: string | null): void {
  if (folder !== null) rmSync(placeIn(folder, stateDir), { force: true });
  rmSync(controlSocketPath(stateDir), { force: true });
}

/** The path of a Unix socket may have 107 bytes only. */
const placeIn = (folder: string, stateDir: string) =>
  join(folder, `${createHash('sha256').update(stateDir).digest('hex').slice(0, 16)}.sock`);
