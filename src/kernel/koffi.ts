import { createRequire } from 'node:module';

export type Koffi = typeof import('koffi');

/**
 * Loads koffi's native part, whose functions are all that is used: its JavaScript finds that part, adds deprecated functions,
 * and takes most of the time of loading it.
 */
export function loadKoffi(): Koffi {
  const require = createRequire(import.meta.url);
  const { arch } = process;
  try {
    return require(`@koromix/koffi-linux-${arch}/linux_${arch}/koffi.node`) as Koffi;
  } catch {
    // Another C library, or installed in another place: koffi finds it, or says why not.
    return require('koffi') as Koffi;
  }
}
