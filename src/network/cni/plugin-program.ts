import { FairleadError } from '../../lib/errors.ts';
import { PROGRAMS } from './generated/plugin-programs.ts';

/** Before the path of the agent's socket in the program (cni/plugin.c); also says whose program it is. */
const SOCKET_MARK = 'fairlead-cni-socket=';
/** Bytes of a path of a UNIX socket, without the zero at its end (linux/un.h). */
const MAX_PATH_BYTES = 107;

/**
 * Returns the CNI plugin for a socket: a static program of some 4 kB, which hands calls over. Throws FairleadError for an
 * architecture that has none, or a path that is too long.
 */
export function pluginProgram(socket: string, arch: string = process.arch): Buffer {
  const text = arch === 'x64' || arch === 'arm64' ? PROGRAMS[arch] : undefined;
  if (text === undefined) {
    throw new FairleadError(`there is no CNI plugin for the architecture ${arch}`, {
      op: 'install CNI plugin',
      code: 'EOPNOTSUPP',
      object: arch,
      hint: 'use nodes with the architecture amd64 or arm64, or disable network.cni',
    });
  }
  const path = Buffer.from(socket);
  // It stands in a JSON string of the program's answers.
  if (path.length > MAX_PATH_BYTES || /["\\\p{Cc}]/u.test(socket))
    throw new FairleadError(
      `the path ${JSON.stringify(socket)} cannot be a socket's: at most ${MAX_PATH_BYTES} bytes`,
      {
        op: 'install CNI plugin',
        code: 'bad-config',
        object: socket,
        hint: 'choose a shorter path, without quotes, backslashes and control characters',
      },
    );
  const program = Buffer.from(text, 'base64');
  path.copy(program, program.indexOf(SOCKET_MARK) + SOCKET_MARK.length);
  return program;
}

/** Reports whether a file's content is the CNI plugin of this or another version. */
export const isPluginProgram = (content: Buffer): boolean => content.includes(SOCKET_MARK);
