import { existsSync, mkdirSync, readdirSync, rmSync } from 'node:fs';
import { join } from 'node:path';
import { readOptionalFile } from '../kernel/optional-file.ts';
import { replaceFile } from '../kernel/replace-file.ts';
import type { Container } from '../kube/types.ts';
import type { ProcessUser } from './image-user.ts';
import type { Termination } from './lifecycle.ts';
import type { ProcessIdentity } from './process-identity.ts';

/** A container as it is kept on disk: agents take over the containers of earlier ones. */
export interface ContainerRecord {
  readonly id: string;
  readonly attempt: number;
  readonly process: ProcessIdentity | null;
  /** Its program had been started; if not, the run starts again. */
  readonly begun: boolean;
  readonly startedAt: string | null;
  readonly image: string;
  readonly imageId: string;
  readonly user: ProcessUser | null;
  readonly resources: Container['resources'];
  readonly stopSignal: NodeJS.Signals;
  readonly last: Termination | null;
  /** The end of the run, once it is over. */
  readonly ended: Termination | null;
}

/** Where a container of a pod lives on disk: a folder for every run and its record; `logs` holds the log of every run. */
export class ContainerFolder {
  readonly #path: string;
  readonly logs: string;

  constructor(path: string, logs: string) {
    this.#path = path;
    // A container that an agent of an earlier version has started goes on writing there.
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

  /** The folder of a run, which the OCI runtime calls its bundle. */
  bundle(attempt: number): string {
    const folder = join(this.#path, `run-${attempt}`);
    mkdirSync(folder, { recursive: true, mode: 0o700 });
    return folder;
  }

  /** The runs that have a folder. */
  bundles(): { readonly attempt: number; readonly bundle: string }[] {
    // The pod's folder may have gone already, when its end is tried again.
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
