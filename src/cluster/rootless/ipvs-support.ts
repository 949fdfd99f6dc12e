import { resolveGenericFamily } from '../../kernel/genetlink.ts';
import { NETLINK_GENERIC, NetlinkSocket } from '../../kernel/netlink/socket.ts';
import { hasCode } from '../../lib/errors.ts';

/** Reports whether the kernel has IPVS, and loads its module if the machine has it: any user's look-up does. */
export function hasIpvs(): boolean {
  const socket = new NetlinkSocket({ protocol: NETLINK_GENERIC });
  try {
    resolveGenericFamily(socket, 'IPVS');
    return true;
  } catch (error) {
    if (hasCode(error, 'ENOENT')) return false;
    throw error;
  } finally {
    socket.close();
  }
}
