// Flags of mount(2) and umount2(2): linux/mount.h, linux/fs.h.

/** Device nodes have no effect. */
export const MS_NODEV = 0x4;
export const MS_BIND = 0x1000;
export const MS_REC = 0x4000;
export const MS_SHARED = 1 << 20;
/** Unmounts what is in use, too: it is gone for new users at once. */
export const MNT_DETACH = 2;
