// linux/rtnetlink.h, linux/if_link.h, linux/if_addr.h, linux/neighbour.h, linux/fib_rules.h, linux/if.h

export const RTM_NEWLINK = 16;
export const RTM_DELLINK = 17;
export const RTM_GETLINK = 18;
export const RTM_SETLINK = 19;
export const RTM_NEWADDR = 20;
export const RTM_DELADDR = 21;
export const RTM_GETADDR = 22;
export const RTM_NEWROUTE = 24;
export const RTM_DELROUTE = 25;
export const RTM_GETROUTE = 26;
export const RTM_NEWNEIGH = 28;
export const RTM_DELNEIGH = 29;
export const RTM_GETNEIGH = 30;
export const RTM_NEWRULE = 32;
export const RTM_DELRULE = 33;
export const RTM_GETRULE = 34;
export const RTM_NEWNETCONF = 80;

export const AF_UNSPEC = 0;
export const AF_INET = 2;
export const AF_BRIDGE = 7;
export const AF_INET6 = 10;

/** Multicast groups (enum rtnetlink_groups). */
export const RTNLGRP = {
  link: 1,
  neigh: 3,
  ipv4Address: 5,
  ipv4Route: 7,
  ipv6Address: 9,
  ipv6Route: 11,
  ipv4Netconf: 24,
  ipv6Netconf: 25,
} as const;

export const IFF_UP = 0x1;
export const IFF_LOWER_UP = 0x10000;

export const IFLA_ADDRESS = 1;
export const IFLA_IFNAME = 3;
export const IFLA_MTU = 4;
export const IFLA_LINK = 5;
export const IFLA_MASTER = 10;
export const IFLA_PROTINFO = 12;
export const IFLA_OPERSTATE = 16;
export const IFLA_IFALIAS = 20;
export const IFLA_LINKINFO = 18;
export const IFLA_NET_NS_PID = 19;
export const IFLA_AF_SPEC = 26;
export const IFLA_GROUP = 27;
export const IFLA_NET_NS_FD = 28;

export const IFLA_INFO_KIND = 1;
export const IFLA_INFO_DATA = 2;

export const VETH_INFO_PEER = 1;

export const IFLA_BR_STP_STATE = 5;
export const IFLA_BR_VLAN_FILTERING = 7;
export const IFLA_BR_MCAST_SNOOPING = 23;

export const IFLA_BRPORT_MODE = 4;
export const IFLA_BRPORT_LEARNING = 8;
export const IFLA_BRPORT_UNICAST_FLOOD = 9;
export const IFLA_BRPORT_MCAST_FLOOD = 27;
export const IFLA_BRPORT_BCAST_FLOOD = 30;
export const IFLA_BRPORT_NEIGH_SUPPRESS = 32;
export const IFLA_BRPORT_ISOLATED = 33;

export const IFLA_VXLAN_ID = 1;
export const IFLA_VXLAN_LINK = 3;
export const IFLA_VXLAN_LOCAL = 4;
export const IFLA_VXLAN_LEARNING = 7;
export const IFLA_VXLAN_PORT = 15;
export const IFLA_VXLAN_LOCAL6 = 17;
export const IFLA_VXLAN_UDP_CSUM = 18;
export const IFLA_VXLAN_UDP_ZERO_CSUM6_TX = 19;
export const IFLA_VXLAN_UDP_ZERO_CSUM6_RX = 20;

export const IFLA_INET6_ADDR_GEN_MODE = 8;
export const IN6_ADDR_GEN_MODE_NONE = 1;

export const IFA_ADDRESS = 1;
export const IFA_LOCAL = 2;
export const IFA_BROADCAST = 4;
export const IFA_CACHEINFO = 6;
export const IFA_FLAGS = 8;
export const IFA_RT_PRIORITY = 9;
export const IFA_F_NODAD = 0x2;
export const IFA_F_TENTATIVE = 0x40;
export const IFA_F_PERMANENT = 0x80;
export const IFA_F_NOPREFIXROUTE = 0x200;

export const RTA_DST = 1;
export const RTA_OIF = 4;
export const RTA_GATEWAY = 5;
export const RTA_PRIORITY = 6;
export const RTA_PREFSRC = 7;
export const RTA_METRICS = 8;
export const RTA_TABLE = 15;
export const RTAX_MTU = 2;
export const RTNH_F_ONLINK = 4;
export const RT_TABLE_MAIN = 254;

export const NDA_DST = 1;
export const NDA_LLADDR = 2;
export const NDA_VLAN = 5;
export const NDA_PORT = 6;
export const NDA_VNI = 7;
export const NDA_MASTER = 9;
export const NUD_REACHABLE = 0x02;
export const NUD_NOARP = 0x40;
export const NUD_PERMANENT = 0x80;
export const NTF_SELF = 0x02;
export const NTF_MASTER = 0x04;

export const FRA_DST = 1;
export const FRA_SRC = 2;
export const FRA_IIFNAME = 3;
export const FRA_PRIORITY = 6;
export const FRA_FWMARK = 10;
export const FRA_SUPPRESS_PREFIXLEN = 14;
export const FRA_TABLE = 15;
export const FRA_FWMASK = 16;
export const FRA_OIFNAME = 17;
