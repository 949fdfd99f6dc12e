/* SPDX-License-Identifier: Apache-2.0 OR GPL-2.0-only */
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
/* Beside the balance: this Service wants its endpoints tried whatever happened to them. */
#define BALANCE_MASK 0xff
#define NO_FAILOVER 0x100

struct frontend {
	__u32 id;
	__u32 affinity_seconds;
	__u32 balance; /* and NO_FAILOVER */
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
	__u32 rescue;          /* the programs at the devices are there to re-target connections */
	__u32 departed;        /* not 0: the map of that name has entries */
	__u32 readers;         /* not 0: somebody reads of every connection, not only of failures */
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
	__u64 started;
	struct address service;
	struct address endpoint;
	__be16 service_port;
	__be16 endpoint_port;
	__u32 backend;
	__u32 counted; /* among the backend's open connections: its generation + 1, or 0 */
	__u32 flags;
}; /* 56 bytes: with one more word, every connection's would take half as much memory again */

#define PEER_NODE 1        /* of a process of the node */
#define PEER_NO_FAILOVER 2
#define PEER_RESCUED 4     /* its packets are re-targeted */
#define PEER_TOLD 8        /* the agent has heard of it */
#define PEER_COUNTED 16    /* among its endpoint's open connections, which the Service is balanced by */

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
	__u32 told; /* by bit: of which the agent has heard */
};

/* A connection, or a flow of datagrams, as its client's socket sees it. */
struct flow {
	struct address client;
	struct address server;
	__be16 client_port;
	__be16 server_port;
	__u8 protocol;
	__u8 zero[3];
};

/* A connection that is being opened through a Service. */
struct pending {
	struct flow flow;
	struct frontend_key service;
	__u32 backend;
	__u32 class;
	__u32 tries;
	__u32 patience; /* timeouts that say nothing about the endpoint */
};

#define PENDING_WAYS 4
/*
 * Connections whose flows have the same hash, as far as that counts. Every connection through a Service is written here
 * and taken away a moment later, for which a hash map that forgets the oldest would take three times as long.
 */
struct pending_set {
	__u64 claims[PENDING_WAYS]; /* 0: free; else the flow's whole hash, and since when (units_of) */
	struct pending pending[PENDING_WAYS];
};
#define PENDING_SETS 1024

/* Where the packets of a flow go instead, or come from. */
struct rescue {
	struct address address;
	__be16 port;
	__u8 direction;
	__u8 class; /* of the client: at which side of a device its packets are met */
	/* The endpoint has answered. Before, its packets may belong to a connection that the client has to it itself,
	 * by chance from the same port. */
	__u32 answered;
	__u64 until; /* monotonic ns; 0: as long as the connection lives */
};
#define TO_ENDPOINT 0   /* the destination is replaced */
#define FROM_ENDPOINT 1 /* the source is put back */

/* An endpoint that left while sockets were connected to it. */
struct departed_key {
	struct address address;
	__be16 port;
	__u8 protocol;
	__u8 zero;
};

/* How an endpoint's connections fare. */
struct backend {
	__u64 suspect_until; /* monotonic ns */
	__u64 failed_at;     /* first of the timeouts that count together */
	__u64 failed_client; /* socket that saw it */
	__u32 failures;      /* suspicions in a row */
	__u32 open;
	__u32 generation; /* of the number: another endpoint has it later */
	__u32 probing;    /* one connection finds out whether it is back */
};

/* Whether there is anything to look up: two elements, each with one of these. */
struct state {
	__u32 is_any;
	__u32 zero;
};
#define RESCUES 0  /* flows that are rescued: packets have to be looked up */
#define FAILURES 1 /* endpoints that have failed: whoever chooses one, and whoever is answered, has to look */

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
MAP(BPF_MAP_TYPE_ARRAY, pending_flows, __u32, struct pending_set, 1);
MAP(BPF_MAP_TYPE_LRU_HASH, rescues, struct flow, struct rescue, 1);
MAP(BPF_MAP_TYPE_LRU_HASH, departed, struct departed_key, __u32, 1);
MAP(BPF_MAP_TYPE_ARRAY, state, __u32, struct state, 1);

struct {
	__uint(type, BPF_MAP_TYPE_RINGBUF);
	__uint(max_entries, 4096);
} events SEC(".maps");
