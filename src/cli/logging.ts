import { type Logger as PinoLogger, pino } from 'pino';
import { FairleadError } from '../lib/errors.ts';
import type { Logger } from '../lib/log.ts';
import { descriptorOutput } from './log-output.ts';

/**
 * Creates a logger of JSON lines on standard output, which neither blocks nor ends the process if they
 * cannot be written; FAIRLEAD_LOG sets the level (default: info, or debug with `verbose`).
 */
export function createLogger(name: string, { verbose = false } = {}): Logger {
  const output = descriptorOutput(1);
  process.on('exit', () => output.flush());
  // Warnings of Node.js go to standard error, which may be on the same full disk.
  process.stderr.on('error', () => {});
  const log: PinoLogger = pino(
    {
      name,
      level: process.env['FAIRLEAD_LOG'] ?? (verbose ? 'debug' : 'info'),
      base: { pid: process.pid },
    },
    output,
  );
  return wrap(log);
}

function wrap(log: PinoLogger): Logger {
  return {
    debug: (fields, message) => log.debug(fields, message),
    info: (fields, message) => log.info(fields, message),
    warn: (fields, message) => log.warn(fields, message),
    error: (fields, message) => log.error(fields, message),
    child: (fields) => wrap(log.child(fields)),
  };
}

/** Aborts on SIGTERM and SIGINT; a second signal ends the process at once. */
export function shutdownSignal(): AbortSignal {
  const controller = new AbortController();
  for (const name of ['SIGTERM', 'SIGINT'] as const) {
    process.on(name, () => {
      if (controller.signal.aborted) process.exit(1);
      controller.abort(new FairleadError(`stopped by ${name}`, { op: 'run', code: 'interrupted' }));
    });
  }
  return controller.signal;
}

/** The log is written in the background: the last lines get this much time. */
const LAST_LINES_MS = 100;

/** Logs an uncaught error or rejection and exits. */
export function exitOnUnhandled(logger: Logger): void {
  const fatal = (error: unknown) => {
    logger.error({ err: error }, 'unexpected failure');
    process.exitCode = 1;
    setTimeout(() => process.exit(1), LAST_LINES_MS);
  };
  process.on('unhandledRejection', fatal);
  process.on('uncaughtException', fatal);
}
