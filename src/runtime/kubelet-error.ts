import { FairleadError } from '../lib/errors.ts';

/** Reasons of pods' events and waiting containers, named as by upstream's kubelet. */
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

/** An error that a pod's status or events report, with its reason. */
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

/** Returns the reason of an error; `otherwise` for errors without a reason. */
export function reasonOf(error: unknown, otherwise: KubeletReason): KubeletReason {
  return error instanceof KubeletError ? error.reason : otherwise;
}
