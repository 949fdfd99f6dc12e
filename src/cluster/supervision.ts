import type { ProcessIdentity } from '../kernel/process-identity.ts';
import type { ProcessRecord } from '../kernel/process-record.ts';

/** The name of the control plane's process; the agents have their nodes' names. */
export const CONTROL_PLANE = 'control-plane';
/** The name of the process that serves published ports; it runs only if there are any. */
export const PUBLISHED_PORTS = 'published-ports';
/** The name of the process that connects pods with external networks; it runs only with `up --egress`. */
export const EGRESS = 'egress';

/** Returns the name of the process that runs a node's pods; the node's agent supervises it. */
export const podRuntimeName = (node: string): string => `${node}/pod-runtime`;

/** The contents of processes.json, which only the supervisor writes. */
export interface Supervision {
  readonly supervisor: ProcessIdentity | null;
  /** Takes over when the supervisor exits. */
  readonly standby: ProcessIdentity | null;
  readonly processes: Readonly<Record<string, ProcessRecord>>;
}

export const NO_SUPERVISION: Supervision = { supervisor: null, standby: null, processes: {} };
