import { libc, systemError } from './libc.ts';

// asm-generic/ioctls.h
const FIONCLEX = 0x5450;
const FIOCLEX = 0x5451;

/** Sets whether the next program of this process, and its children, inherit a descriptor. */
export function setInherited(fd: number, isInherited: boolean): void {
  if (libc().ioctl(fd, isInherited ? FIONCLEX : FIOCLEX, new Uint8Array(8)) !== 0)
    throw systemError('change descriptor', String(fd));
}
