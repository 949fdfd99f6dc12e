import { readFileSync } from 'node:fs';
import { createSecureContext } from 'node:tls';
import type { Clock } from '../../lib/clock.ts';
import { FairleadError, messageOf } from '../../lib/errors.ts';
import type { Logger } from '../../lib/log.ts';
import type { ServerTls } from '../../runtime/options.ts';

/** How often files are read again; cert-manager and administrators replace them days before they expire. */
const READ_MS = 60_000;

export interface TlsFilesOptions {
  /** Path of each PEM file; absent: the text comes from elsewhere. */
  readonly files: Readonly<Partial<Record<keyof ServerTls, string>>>;
  readonly clock: Clock;
  readonly logger: Logger;
}

/** The certificate, key and client authority of a server, as far as they are in files. */
export interface TlsFiles {
  readonly current: Partial<ServerTls>;
  /** Calls the listener with later contents. A certificate that does not belong to its key is not used. */
  onChange(listener: (changed: Partial<ServerTls>) => void): void;
  close(): void;
}

/** Reads the files, and again every minute. Throws if one cannot be read now. */
export function followTlsFiles({ files, clock, logger }: TlsFilesOptions): TlsFiles {
  const listeners = new Set<(changed: Partial<ServerTls>) => void>();
  const read = (): Partial<ServerTls> => {
    const texts = Object.fromEntries(
      Object.entries(files).map(([name, file]) => [name, readFileSync(file, 'utf8')]),
    ) as Partial<ServerTls>;
    for (const [name, text] of Object.entries(texts)) {
      if (text.includes('-----BEGIN ')) continue;
      throw new FairleadError(`${files[name as keyof ServerTls]} is not a PEM file`, {
        op: 'serve the API server',
        code: 'bad-config',
      });
    }
    const { cert, key, clientCa } = texts;
    createSecureContext({
      ...(cert === undefined || key === undefined ? {} : { cert, key }),
      ...(clientCa === undefined ? {} : { ca: clientCa }),
    });
    return texts;
  };
  let current = read();
  let said = '';
  const look = () => {
    cancel = clock.after(READ_MS, look);
    try {
      const next = read();
      said = '';
      if (JSON.stringify(next) === JSON.stringify(current)) return;
      current = next;
      logger.info({ files: Object.values(files) }, "new TLS files of the node's server are in use");
      for (const listener of listeners) listener(next);
    } catch (error) {
      const problem = messageOf(error);
      // A file may be read while it is being written.
      if (problem !== said)
        logger.warn(
          { files: Object.values(files) },
          `the TLS files of the node's server cannot be used, the former stay in use: ${problem}`,
        );
      said = problem;
    }
  };
  let cancel = clock.after(READ_MS, look);
  return {
    get current() {
      return current;
    },
    onChange: (listener) => listeners.add(listener),
    close: () => cancel(),
  };
}
