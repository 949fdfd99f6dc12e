/** A condition of a status, without the time of its last change, which the writer of statuses knows. */
export interface Condition {
  readonly type: string;
  readonly status: 'True' | 'False';
  readonly reason: string;
  readonly message: string;
  readonly observedGeneration: number;
}

/** What a condition says: `holds` is its status. */
export interface Verdict {
  readonly holds: boolean;
  readonly reason: string;
  readonly message: string;
}

const LONGEST_MESSAGE = 1024;

export const verdict = (holds: boolean, reason: string, message: string): Verdict => ({
  holds,
  reason,
  message,
});

export function condition(type: string, { holds, reason, message }: Verdict, generation: number): Condition {
  const shown = message.length > LONGEST_MESSAGE ? `${message.slice(0, LONGEST_MESSAGE - 1)}…` : message;
  return { type, status: holds ? 'True' : 'False', reason, message: shown, observedGeneration: generation };
}
