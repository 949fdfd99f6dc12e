/* SPDX-License-Identifier: Apache-2.0 OR GPL-2.0-only */
/* What the programs at the uplink share with the agent: src/dataplane/ebpf/uplink-layout.ts has the same bytes. */
#pragma once
#include "maps.h"

/* Written anew, under a new number, whenever anything of it changes: no program meets half of one. */
struct uplink_frontend {
	__u32 id;
	__u32 count;
};

struct uplink_slot {
	__u32 frontend;
	__u32 index;
};

struct uplink_endpoint {
	struct address address;
	__be16 port;
	__u16 zero;
};

struct uplink_config {
	__u32 leaving; /* no flow begins any more, those that there are go on */
	__u32 zero;
	/* Sources of this cluster's pods, by family: what they may reach is decided by other rules. */
	struct address pods[2];
	struct address masks[2];
};

#define STAY 2       /* beside TO_ENDPOINT and FROM_ENDPOINT: nf_tables had this flow before, and keeps it */
#define FIN_SEEN 1   /* of the side whose packets an entry is for */
#define RST_SEEN 2

/* One for the packets of each side; what one program writes the other does not. */
struct uplink_flow {
	__u64 seen; /* last packet, in monotonic ns; from the endpoint: 0 until it has answered */
	struct address address;
	__be16 port;
	__u8 direction;
	__u8 flags;
	__u32 frontend;
};

/* Of packets in pieces only the first one has ports. */
struct uplink_piece {
	struct address source;
	struct address destination;
	__u32 identification;
	__u32 protocol;
};

MAP(BPF_MAP_TYPE_HASH, uplink_frontends, struct frontend_key, struct uplink_frontend, 1);
MAP(BPF_MAP_TYPE_HASH, uplink_endpoints, struct uplink_slot, struct uplink_endpoint, 1);
/* Where node ports answer. */
MAP(BPF_MAP_TYPE_HASH, uplink_addresses, struct address, __u32, 1);
MAP(BPF_MAP_TYPE_LRU_HASH, uplink_flows, struct flow, struct uplink_flow, 1);
MAP(BPF_MAP_TYPE_LRU_HASH, uplink_pieces, struct uplink_piece, struct address, 1);
MAP(BPF_MAP_TYPE_ARRAY, uplink_config, __u32, struct uplink_config, 1);
