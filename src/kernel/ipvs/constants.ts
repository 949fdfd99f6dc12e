// linux/ip_vs.h

export const IPVS_FAMILY = 'IPVS';

/** Commands of the generic netlink family. */
export const IPVS_CMD = {
  newService: 1,
  setService: 2,
  deleteService: 3,
  getService: 4,
  newDestination: 5,
  setDestination: 6,
  deleteDestination: 7,
  getDestination: 8,
  setConfig: 12,
  getConfig: 13,
} as const;

/** Attributes of every command. */
export const IPVS_CMD_ATTR = {
  service: 1,
  destination: 2,
  timeoutTcp: 4,
  timeoutTcpFin: 5,
  timeoutUdp: 6,
} as const;

export const IPVS_SVC_ATTR = {
  family: 1,
  protocol: 2,
  address: 3,
  port: 4,
  mark: 5,
  scheduler: 6,
  flags: 7,
  timeout: 8,
  netmask: 9,
} as const;

export const IPVS_DEST_ATTR = {
  address: 1,
  port: 2,
  forwarding: 3,
  weight: 4,
  upperThreshold: 5,
  lowerThreshold: 6,
  activeConnections: 7,
  inactiveConnections: 8,
  persistentConnections: 9,
  family: 11,
} as const;

/** Flags of a virtual server. The scheduler defines the meaning of `scheduler1` and `scheduler2`. */
export const SERVER_FLAG = {
  persistent: 0x1,
  hashed: 0x2,
  onePacket: 0x4,
  /** sh, mh: choose another real server if the chosen one accepts no connections. */
  scheduler1: 0x8,
  /** sh, mh: include the source port in the hash. */
  scheduler2: 0x10,
  scheduler3: 0x20,
} as const;

/** How packets reach a real server; `masquerade` is address translation. */
export const FORWARDING = { masquerade: 0, local: 1, tunnel: 2, direct: 3 } as const;

export const AF_INET = 2;
export const AF_INET6 = 10;
