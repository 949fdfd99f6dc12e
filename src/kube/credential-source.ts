import { messageOf } from '../lib/errors.ts';
import type { Credentials } from './credentials.ts';
import type { ExecutedCredentials } from './exec-credentials.ts';

/** Credentials that change while a process runs: rotated certificates and authorities, renewed tokens, exec plugins. */
export interface CredentialSource {
  /** Returns the credentials for the next request. */
  current(): Promise<Credentials>;
  /** Reports that the API server refused the credentials (401): they are read again for the next request. */
  refused(): void;
}

export interface CredentialSourceOptions {
  /** Reads the credentials from their files. Throws if a file is missing or malformed. */
  readonly read: () => Credentials;
  /** Runs the exec plugin; null: none is configured. */
  readonly execute: (() => Promise<ExecutedCredentials>) | null;
  /** "https://10.0.0.1:6443": replaces the server that `read` finds; null: keeps it. */
  readonly server: string | null;
  /** Milliseconds since 1970. */
  readonly now: () => number;
  /** Called once for each persistent problem; requests continue with the previous credentials. */
  readonly onProblem: (message: string) => void;
}

/** Interval for reading files again: the kubelet replaces tokens and certificates well before they expire. */
const READ_MS = 30_000;
/** Minimum interval between reads of files after refusals. */
const REFUSED_READ_MS = 1000;

/** Creates the source; reads immediately, so that a malformed file is an error at start. */
export function createCredentialSource(options: CredentialSourceOptions): CredentialSource {
  const { now, onProblem, execute } = options;
  let credentials = options.read();
  let readAt = now();
  let isRefused = false;
  let problem = '';
  let executed: Promise<ExecutedCredentials> | null = null;
  const attempt = <T>(work: () => T): T | null => {
    try {
      const result = work();
      problem = '';
      return result;
    } catch (error) {
      report(messageOf(error));
      return null;
    }
  };
  const report = (message: string) => {
    if (message !== problem)
      onProblem(`failed to reload credentials, the previous ones stay in use: ${message}`);
    problem = message;
  };
  const run = async (): Promise<ExecutedCredentials> => {
    executed ??= execute?.() ?? Promise.resolve({ expiresAt: null });
    const pending = executed;
    try {
      const result = await pending;
      if (result.expiresAt === null || result.expiresAt > now()) return result;
    } catch (error) {
      if (executed === pending) executed = null;
      throw error;
    }
    if (executed === pending) executed = execute?.() ?? null;
    return executed ?? { expiresAt: null };
  };
  return {
    async current() {
      const age = now() - readAt;
      if (age >= READ_MS || (isRefused && age >= REFUSED_READ_MS)) {
        credentials = attempt(options.read) ?? credentials;
        readAt = now();
        if (isRefused) executed = null;
        isRefused = false;
      }
      const { expiresAt: _, ...provided } = await run();
      return { ...credentials, ...provided, ...(options.server === null ? {} : { server: options.server }) };
    },
    refused() {
      isRefused = true;
    },
  };
}
