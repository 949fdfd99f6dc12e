import { existsSync, mkdirSync, readdirSync, rmSync } from 'node:fs';
import { join } from 'node:path';
import { readOptionalFile } from '../kernel/optional-file.ts';
import type { ProcessIdentity } from '../kernel/process-identity.ts';
import { replaceFile } from '../kernel/replace-file.ts';
import type { Container } from '../kube/types.ts';
import type { ProcessUser } from './image-user.ts';
import type { Termination } from './lifecycle.ts';

/** A container's record on disk: agents adopt the containers of earlier ones. */
export interface ContainerRecord {
  readonly id: string;
  readonly attempt: number;
  readonly process: ProcessIdentity | null;
  /** The program was started; if not, the run starts again. */
  readonly begun: boolean;
  readonly startedAt: string | null;
  readonly image: string;
  readonly imageId: string;
  readonly user: ProcessUser | null;
  readonly resources: Container['resources'];
  readonly stopSignal: NodeJS.Signals;
  readonly last: Termination | null;
  /** The end of the run, if it has ended. */
  readonly ended: Termination | null;
}

/**
 * The folder of a pod's container on disk: its record and a folder for each run; `logs` contains the log of each run.
 */
export class ContainerFolder {
  readonly #path: string;
  readonly logs: string;

  constructor(path: string, logs: string) {
    this.#path = path;
    // A container started by an earlier version of the agent still writes there.
    const earlier = join(path, 'logs');
    this.logs = existsSync(earlier) ? earlier : logs;
    mkdirSync(path, { recursive: true, mode: 0o700 });
    mkdirSync(this.logs, { recursive: true, mode: 0o700 });
  }

  log(attempt: number): string {
    return join(this.logs, `${attempt}.log`);
  }

  removeLog(attempt: number): void {
    rmSync(this.log(attempt), { force: true });
  }

  /** Returns the folder of a run, the bundle of the OCI runtime. */
  bundle(attempt: number): string {
    const folder = join(this.#path, `run-${attempt}`);
    mkdirSync(folder, { recursive: true, mode: 0o700 });
    return folder;
  }

  /** Returns the runs with a folder. */
  bundles(): { readonly attempt: number; readonly bundle: string }[] {
    // In a retry of the removal, the pod's folder may already be gone.
    const entries = existsSync(this.#path) ? readdirSync(this.#path) : [];
    return entries.flatMap((entry) => {
      const attempt = /^run-([0-9]+)$/.exec(entry)?.[1];
      return attempt === undefined ? [] : [{ attempt: Number(attempt), bundle: join(this.#path, entry) }];
    });
  }

  read(): ContainerRecord | null {
    const text = readOptionalFile(join(this.#path, 'state.json'));
    return text === null ? null : (JSON.parse(text) as ContainerRecord);
  }

  write(record: ContainerRecord): void {
    replaceFile(join(this.#path, 'state.json'), JSON.stringify(record));
  }
}
