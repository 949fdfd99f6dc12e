import { closeSync, constants, openSync } from 'node:fs';
import { connect } from 'node:net';
import type { Clock } from '../../lib/clock.ts';
import { FairleadError } from '../../lib/errors.ts';

/** Name of the Unix socket of the runtime API, in the folder of a proxy's configuration. */
export const ADMIN_SOCKET = 'admin.sock';

const ANSWER_MS = 10_000;
const MAX_ANSWER = 8 * 1024 * 1024;

/**
 * Sends one command to the runtime API of a proxy, and returns its answer. Throws FairleadError: the proxy is busy, ends, or its
 * answer is too long.
 */
export function askProxy(folder: string, command: string, clock: Clock): Promise<string> {
  return new Promise((resolve, reject) => {
    // The path of a Unix socket may have 107 bytes only.
    const fd = openSync(folder, constants.O_DIRECTORY);
    const socket = connect({ path: `/proc/self/fd/${fd}/${ADMIN_SOCKET}` });
    socket.once('close', () => closeSync(fd));
    const parts: Buffer[] = [];
    let size = 0;
    const end = (finish: () => void) => {
      cancel();
      socket.destroy();
      finish();
    };
    const fail = (message: string, cause?: unknown) =>
      end(() =>
        reject(
          new FairleadError(`the proxy did not answer ${JSON.stringify(command.slice(0, 64))}: ${message}`, {
            op: 'ask HAProxy',
            code: 'ETIMEDOUT',
            ...(cause === undefined ? {} : { cause }),
          }),
        ),
      );
    const cancel = clock.after(ANSWER_MS, () => fail(`no answer within ${ANSWER_MS / 1000} s`));
    socket.on('error', (error) => fail(error.message, error));
    socket.on('data', (chunk: Buffer) => {
      size += chunk.length;
      if (size > MAX_ANSWER) fail('its answer is too long');
      else parts.push(chunk);
    });
    socket.on('end', () => end(() => resolve(Buffer.concat(parts).toString().trimEnd())));
    socket.on('connect', () => socket.write(`${command}\n`));
  });
}
