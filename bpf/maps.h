/* SPDX-License-Identifier: Apache-2.0 OR GPL-2.0-only */
/*
 * The maps, which the programs share with the agent. tools/build-bpf.mjs reads sizes, offsets, enums and capacities from
 * the object's BTF and writes them to src/dataplane/ebpf/generated/layout.ts, so that enums are used as types of fields
 * and keys: the compiler describes only types that a map leads to.
 *
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
	PASS = 0,    /* left to nf_tables: unknown here, or the source address has to be rewritten */
	FORWARD = 1,
	REFUSE = 2,
};

/*
 * A run of slots: consecutive elements of the map `endpoints`. A new set of endpoints is written to a new run before the
 * route is replaced, so that no program reads a half-written one.
 */
struct route {
	enum action action;
	__u32 first;
	__u32 count;
};

enum source_class { POD = 0, NODE = 1 };

/*
 * How an endpoint is chosen. NO_FAILOVER may be added: the Service wants its endpoints tried even
 * after failures.
 */
enum balance {
	RANDOM = 0,
	LEAST_CONNECTIONS = 1,
	MAGLEV = 2,
	BALANCE_MASK = 0xff,
	NO_FAILOVER = 0x100,
};

struct frontend {
	__u32 id;
	__u32 affinity_seconds;
	enum balance balance;
	struct route routes[2]; /* by enum source_class */
};

struct endpoint {
	struct address address;
	__be16 port;
	__u16 zero;
	__u32 owner;   /* id of the frontend: shows that a slot was reused for another frontend */
	__u32 backend; /* index into backends */
};

struct config {
	__u64 node_cookie;      /* of the node's own network namespace; processes of any other are pods */
	__u32 syn_timeout;      /* in jiffies; 0: the kernel's */
	__u32 ejection;         /* 0 or 1: endpoints that fail are ejected */
	__u32 reroute;          /* not 0: programs at the devices can reroute flows */
	__u32 removed_backends; /* not 0: the map of that name has entries */
	__u32 subscribers;      /* not 0: the agent wants events of every connection, not only of failures */
	__u32 zero;
};

/* ---- State of the programs ---- */

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

/*
 * An endpoint of a run, for UDP and for frontends with affinity: shows whether the earlier endpoint of a
 * socket or client still serves.
 */
struct member {
	__u32 first; /* of the run */
	struct address address;
	__be16 port;
	__u16 zero;
};

enum member_kind {
	IN_RUN = 0, /* the run has a slot with this endpoint */
	SPARED = 1, /* it still serves, but only flows that already use it */
};

struct membership {
	__u32 backend; /* index into backends */
	enum member_kind kind;
};

enum peer_flag {
	PEER_NODE = 1,        /* the socket belongs to a process of the node */
	PEER_NO_FAILOVER = 2,
	PEER_REROUTED = 4,    /* its packets go to another endpoint */
	PEER_REPORTED = 8,    /* an event of it was emitted */
	PEER_COUNTED = 16,    /* counted among its endpoint's open connections (least-connections) */
};

/*
 * The Service that a connected socket's process sees, and the endpoint that the socket is connected
 * to.
 */
struct peer {
	__u64 started;
	struct address service;
	struct address endpoint;
	__be16 service_port;
	__be16 endpoint_port;
	__u32 backend;
	__u32 counted; /* the backend's generation + 1 while counted among its open connections, or 0 */
	enum peer_flag flags;
}; /* 56 bytes: one more word would move every socket's storage to the next size class, half as large again */

struct udp_session {
	struct address service;
	struct address endpoint;
	__be16 service_port;
	__be16 endpoint_port;
};

#define UDP_SESSIONS 8
/* The last Services that an unconnected UDP socket sent to: one session for each Service and for each endpoint. */
struct udp_sessions {
	struct udp_session session[UDP_SESSIONS];
	__u32 next;
	__u32 reported; /* one bit for each session whose event was emitted */
};

/* A connection, or a flow of datagrams, from the view of its client's socket. */
struct flow {
	struct address client;
	struct address server;
	__be16 client_port;
	__be16 server_port;
	__u8 protocol;
	__u8 zero[3];
};

/* A pending connection to a Service: connect() was called, but there is no answer yet. */
struct pending {
	struct flow flow;
	struct frontend_key service;
	__u32 backend;
	enum source_class source_class;
	__u32 reroutes;         /* how often it was rerouted */
	__u32 ignored_timeouts; /* further timeouts that do not count against the endpoint */
};

#define PENDING_WAYS 4
#define PENDING_SETS 1024
/*
 * A set-associative table: pending connections whose flows have the same hash modulo PENDING_SETS.
 * Every connection through a Service is entered here and removed soon after; an LRU hash map would
 * take three times as long.
 */
struct pending_set {
	__u64 tags[PENDING_WAYS]; /* 0: free; else the flow's whole hash, and the time of the last change (time_units) */
	struct pending pending[PENDING_WAYS];
};

/* Replacement address of a rerouted flow's packets. */
struct reroute {
	struct address address;
	__be16 port;
	__u8 direction;
	__u8 source_class; /* of the client: at which side of a device its packets are seen */
	/*
	 * 0, or the endpoint has answered: the sequence number of its SYN-ACK, with the lowest bit set. Until then, its
	 * packets may belong to a direct connection between the client and the endpoint that happens to have the same port.
	 */
	__u32 answered;
	__u64 until; /* monotonic ns; 0: as long as the connection lives */
};
#define TO_ENDPOINT 0   /* replace the destination */
#define FROM_ENDPOINT 1 /* restore the source */

/* An endpoint that was removed from its Service while sockets were connected to it. */
struct removed_backend_key {
	struct address address;
	__be16 port;
	__u8 protocol;
	__u8 zero;
};

/* Failures and open connections of an endpoint: see ejection.h. */
struct backend {
	__u64 ejected_until; /* monotonic ns; 0: has answered since */
	__u64 failed_at;     /* when the first timeout of the window was seen */
	__u64 failed_socket; /* which socket saw it */
	__u32 ejections;     /* in a row */
	__u32 open;
	__u32 generation; /* tells endpoints apart that have the same number one after the other */
	__u32 probing;    /* one connection is testing whether it is back */
};

/* Set if the map has entries, so that the common case costs one array access. */
enum flag {
	REROUTES = 0,	    /* in the map of that name: the number of flows that were ever rerouted */
	FAILURES = 1,	    /* in `backends` */
	REROUTES_ENDED = 2, /* the value of REROUTES up to which the agent found all reroutes ended */
};

struct flag_value {
	__u32 is_set;
	__u32 zero;
};

#define MAP(kind, map_name, key_type, value_type, entries, flags) \
	struct {                                                  \
		__uint(type, kind);                               \
		__type(key, key_type);                            \
		__type(value, value_type);                        \
		__uint(max_entries, entries);                     \
		__uint(map_flags, flags);                         \
	} map_name SEC(".maps")

#define STORAGE(map_name, value_type) MAP(BPF_MAP_TYPE_SK_STORAGE, map_name, int, value_type, 0, BPF_F_NO_PREALLOC)

/* The agent chooses the capacity: these maps grow with the cluster. */
#define GROWS 1

MAP(BPF_MAP_TYPE_HASH, frontends, struct frontend_key, struct frontend, GROWS, BPF_F_NO_PREALLOC);
MAP(BPF_MAP_TYPE_ARRAY, endpoints, __u32, struct endpoint, GROWS, BPF_F_MMAPABLE);
MAP(BPF_MAP_TYPE_ARRAY, backends, __u32, struct backend, GROWS, BPF_F_MMAPABLE);
MAP(BPF_MAP_TYPE_HASH, members, struct member, struct membership, GROWS, BPF_F_NO_PREALLOC);
MAP(BPF_MAP_TYPE_ARRAY, config, __u32, struct config, 1, 0);
MAP(BPF_MAP_TYPE_LRU_HASH, affinities, struct affinity_key, struct affinity, 65536, 0);
STORAGE(peers, struct peer);
STORAGE(udp_sessions, struct udp_sessions);
MAP(BPF_MAP_TYPE_ARRAY, pending_sets, __u32, struct pending_set, PENDING_SETS, 0);
MAP(BPF_MAP_TYPE_LRU_HASH, reroutes, struct flow, struct reroute, 32768, 0); /* two for each flow */
MAP(BPF_MAP_TYPE_LRU_HASH, removed_backends, struct removed_backend_key, __u32, 4096, 0);
MAP(BPF_MAP_TYPE_ARRAY, flags, enum flag, struct flag_value, 3, 0);
