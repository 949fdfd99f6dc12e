import { setInherited } from '../../kernel/close-on-exec.ts';

/** Listening sockets on the loopback of the user, which the program before this one opened outside of its namespaces. */
export interface PassedListener {
  /** The port that the command asks for: 0 for any, "api" for the API server's. */
  readonly wanted: number | 'api';
  readonly port: number;
  readonly descriptors: readonly number[];
}

type Environment = Record<string, string | undefined>;

/** The variable with the sockets of a process, as JSON. */
const VARIABLE = 'FAIRLEAD_LISTENERS';

/** Returns the sockets that this process has inherited. */
export function passedListeners(environment: Environment = process.env): readonly PassedListener[] {
  const text = environment[VARIABLE];
  return text === undefined ? [] : (JSON.parse(text) as PassedListener[]);
}

/** Returns the inherited sockets for a port; null: there are none. */
export function passedListener(
  wanted: PassedListener['wanted'],
  environment: Environment = process.env,
): PassedListener | null {
  return passedListeners(environment).find((one) => one.wanted === wanted) ?? null;
}

/** Keeps the inherited sockets from being inherited further. */
export function keepPassedListeners(environment: Environment = process.env): void {
  for (const { descriptors } of passedListeners(environment))
    for (const fd of descriptors) setInherited(fd, false);
}

/** Returns the environment without inherited sockets, for a child that does not get them. */
export function withoutPassedListeners(environment: Environment): Environment {
  const { [VARIABLE]: _, ...others } = environment;
  return others;
}

/** Returns the variable for a child whose descriptors from `first` on are these sockets, in their order. */
export function passedEnvironment(listeners: readonly PassedListener[], first?: number): Environment {
  let next = first;
  const renumbered = listeners.map((one) => ({
    ...one,
    descriptors: one.descriptors.map((fd) => (next === undefined ? fd : next++)),
  }));
  return listeners.length === 0 ? {} : { [VARIABLE]: JSON.stringify(renumbered) };
}
