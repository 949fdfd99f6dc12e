import { closeSync } from 'node:fs';
import { CHECKED_DSCP, setSocketDscp } from '../../kernel/dscp.ts';
import { bindUdpIn, type NetnsRef, openTcpIn } from '../../kernel/netns.ts';
import { setSocketMark } from '../../kernel/socket-mark.ts';
import type { IPFamily } from '../../lib/address.ts';

/** The namespace of the proxy's sockets, and the mark of their packets. */
export interface SocketOptions {
  /** Default: the namespace of this thread. */
  readonly netns: NetnsRef | undefined;
  /** The node's masquerade mark, by which the rules recognize and accept the proxy's connections. */
  readonly mark: number;
  /**
   * Whether the network policies are checked before: a mark tells this to the endpoint's node, which does
   * not see the client.
   */
  readonly isPolicyChecked: boolean;
}

/** Opens an unconnected TCP socket for a connection to an endpoint. */
export function openTcp(family: IPFamily, options: SocketOptions): number {
  return marked(openTcpIn(options.netns ?? null, family), family, options);
}

/** Opens a UDP socket with a separate port, for a client's datagrams to an endpoint. */
export function openUdp(family: IPFamily, options: SocketOptions): number {
  return marked(bindUdpIn(options.netns ?? null, family === 'ipv4' ? '0.0.0.0' : '::', 0), family, options);
}

function marked(fd: number, family: IPFamily, { mark, isPolicyChecked }: SocketOptions): number {
  try {
    setSocketMark(fd, mark);
    if (isPolicyChecked) setSocketDscp(fd, family, CHECKED_DSCP);
    return fd;
  } catch (error) {
    closeSync(fd);
    throw error;
  }
}
