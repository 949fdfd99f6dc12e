/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the programs share with the agent: src/dataplane/ebpf/layout.ts writes and reads the same bytes.
 * Addresses have 16 bytes in network order, IPv4 as ::ffff:a.b.c.d; ports are in network order too.
 */
#pragma once
#include <linux/bpf.h>
#include <linux/types.h>
#include <bpf/bpf_endian.h>
#include <bpf/bpf_helpers.h>

#define TCP 6
#define UDP 17

struct address {
	__u32 word[4];
};

/* ---- Services: read by the programs, written by the agent ---- */

struct frontend_key {
	struct address address;
	__be16 port;
	__u8 protocol;
	__u8 zero;
};

enum action {
	PASS = 0,    /* nf_tables decides: not known here, or needs the source rewritten */
	FORWARD = 1,
	REFUSE = 2,
};

/* A run of endpoint slots. A new set of endpoints is written to a new run before the route is replaced, so that no
 * program ever meets half of one. */
struct route {
	__u32 action;
	__u32 first;
	__u32 count;
};

enum class { POD = 0, NODE = 1 };
enum balance { RANDOM = 0, LEAST_CONNECTIONS = 1, MAGLEV = 2 };

struct frontend {
	__u32 id;
	__u32 affinity_seconds;
	__u32 balance;
	struct route routes[2]; /* by enum class */
};

struct endpoint {
	struct address address;
	__be16 port;
	__u16 zero;
	__u32 owner;   /* the frontend that this slot belongs to: a slot taken over by another one is told by it */
	__u32 backend; /* index into backends */
};

struct config {
	__u64 node_cookie;     /* of the node's own network namespace: processes there are the node's, all others pods */
	__u32 syn_timeout;     /* in jiffies; 0: the kernel's */
	__u32 eject_ms;        /* how long a first suspicion keeps connections away */
	__u32 rescue;          /* connections under way are re-targeted by the programs at the devices */
	__u32 zero;
};

/* ---- What the programs remember ---- */

struct affinity_key {
	__u64 client; /* cookie of the client's network namespace: a pod, or the node */
	__u32 frontend;
	__u32 zero;
};

struct affinity {
	__u64 at;
	struct address address;
	__be16 port;
	__u16 zero;
	__u32 also_zero;
};

/* Which endpoints a run of slots has, for frontends with affinity: a client's endpoint may be gone. */
struct member {
	__u32 first; /* of the run */
	struct address address;
	__be16 port;
	__u16 zero;
};

/* The endpoint in whose place a connected socket sees the Service. */
struct peer {
	struct address service;
	struct address endpoint;
	__be16 service_port;
	__be16 endpoint_port;
	__u32 backend;
	__u32 frontend;
	__u32 counted; /* among the backend's open connections */
};

struct talk {
	struct address service;
	struct address endpoint;
	__be16 service_port;
	__be16 endpoint_port;
};

#define TALKS 8
/* The last Services that an unconnected UDP socket sent to. */
struct talks {
	struct talk talk[TALKS];
	__u32 next;
};

/* How an endpoint's connections fare. */
struct backend {
	__u64 suspect_until; /* monotonic ns */
	__u64 failed_at;     /* first of the timeouts that count together */
	__u64 failed_client; /* socket that saw it */
	__u32 failures;
	__u32 open;
	__u32 generation; /* of the number: another endpoint has it later */
	__u32 zero;
};

#define MAP(kind, map_name, key_type, value_type, entries)  \
	struct {                                            \
		__uint(type, kind);                         \
		__type(key, key_type);                      \
		__type(value, value_type);                  \
		__uint(max_entries, entries);               \
	} map_name SEC(".maps")

#define STORAGE(map_name, value_type)                        \
	struct {                                            \
		__uint(type, BPF_MAP_TYPE_SK_STORAGE);      \
		__uint(map_flags, BPF_F_NO_PREALLOC);       \
		__type(key, int);                           \
		__type(value, value_type);                  \
	} map_name SEC(".maps")

/* The agent makes the maps, with capacities of its own: what counts here are the names. */
MAP(BPF_MAP_TYPE_HASH, frontends, struct frontend_key, struct frontend, 1);
MAP(BPF_MAP_TYPE_ARRAY, endpoints, __u32, struct endpoint, 1);
MAP(BPF_MAP_TYPE_ARRAY, backends, __u32, struct backend, 1);
MAP(BPF_MAP_TYPE_ARRAY, config, __u32, struct config, 1);
MAP(BPF_MAP_TYPE_LRU_HASH, affinities, struct affinity_key, struct affinity, 1);
MAP(BPF_MAP_TYPE_HASH, members, struct member, __u32, 1); /* to the index into backends */
STORAGE(peers, struct peer);
STORAGE(udp_talks, struct talks);
