import { FairleadError, messageOf } from '../lib/errors.ts';

/** What pods' events and waiting containers give as reasons, as upstream's kubelet names them. */
export type KubeletReason =
  | 'CreateContainerConfigError'
  | 'RunContainerError'
  | 'FailedCreatePodSandBox'
  | 'FailedMount'
  | 'NodePorts'
  | 'InvalidImageName'
  | 'ErrImagePull'
  | 'ErrImageNeverPull'
  | 'ImageInspectError';

/** An error that a pod's status or events tell users about, with its reason. */
export class KubeletError extends FairleadError {
  readonly reason: KubeletReason;

  constructor(
    reason: KubeletReason,
    message: string,
    details: {
      readonly op: string;
      readonly hint?: string;
      readonly object?: string;
      readonly cause?: unknown;
    },
  ) {
    super(message, { ...details, code: reason });
    this.reason = reason;
  }
}

/** The reason of an error; `otherwise` for those that have none of their own. */
export function reasonOf(error: unknown, otherwise: KubeletReason): KubeletReason {
  return error instanceof KubeletError ? error.reason : otherwise;
}

/** An error's message with its hint, for people who see nothing else of it. */
export function describeError(error: unknown): string {
  const hint = error instanceof FairleadError ? error.hint : undefined;
  return hint ? `${messageOf(error)} (${hint})` : messageOf(error);
}
