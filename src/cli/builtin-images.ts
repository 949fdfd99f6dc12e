import { chmodSync, mkdirSync } from 'node:fs';
import { dirname, join } from 'node:path';
import { replaceFile } from '../kernel/replace-file.ts';
import type { BuiltinImage } from '../runtime/options.ts';

const WRAPPER =
  '#!/bin/sh\nexec /opt/fairlead/node --v8-pool-size=1 --disable-warning=ExperimentalWarning /opt/fairlead/dist/fairlead.mjs "$@"\n';

/**
 * Returns the built-in image `fairlead`: this program inside a container, at /opt/fairlead and on the PATH. `program`: the
 * path of its bundle.
 */
export function builtinImages(stateDir: string, program: string): Record<string, BuiltinImage> {
  const bundle = dirname(program);
  const wrapper = join(stateDir, 'bin', 'fairlead');
  mkdirSync(dirname(wrapper), { recursive: true, mode: 0o755 });
  // A pod may be executing it: the kernel refuses to execute a file that is open for writing.
  replaceFile(wrapper, WRAPPER);
  chmodSync(wrapper, 0o755);
  const mount = (source: string, destination: string) => ({ source, destination, readonly: true });
  return {
    fairlead: {
      mounts: [
        mount(bundle, '/opt/fairlead/dist'),
        mount(process.execPath, '/opt/fairlead/node'),
        mount(wrapper, '/usr/local/bin/fairlead'),
      ],
    },
  };
}
