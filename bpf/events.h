/* SPDX-License-Identifier: Apache-2.0 OR GPL-2.0-only */
/*
 * Events for the agent: failures always, other events of connections only while it subscribes to
 * them.
 */
#pragma once
#include "maps.h"

enum event_kind {
	CHOSEN = 1,       /* the socket's datagrams go to this endpoint from now on */
	ESTABLISHED = 2,  /* micros: from connect() to the answer */
	TIMED_OUT = 3,    /* no answer to a connection's first packet */
	RESET = 4,        /* the endpoint refused */
	EJECTED = 5,      /* new connections avoid the endpoint; micros: for how many milliseconds */
	RECOVERED = 6,    /* the endpoint's first answer after failures */
	REROUTED = 7,     /* the flow goes to this endpoint instead */
	CLOSED = 8,       /* micros: since connect(), at most 71 minutes */
	GIVEN_UP = 9,     /* ended before any answer */
	UNREACHABLE = 10, /* an ICMP error said that the endpoint cannot be reached */
	REJECTED = 11,    /* by the Service's rules, at the socket */
};

struct event {
	__u64 at; /* monotonic ns */
	struct address client; /* REJECTED: begins with the cookie of its network namespace; the socket has no address yet */
	struct address service;
	struct address endpoint;
	__be16 client_port;
	__be16 service_port;
	__be16 endpoint_port;
	__u8 protocol;
	__u8 zero;
	__u32 micros;
	enum event_kind kind;
};

/* A ring buffer of 256 KiB: about 3,200 events. */
struct {
	__uint(type, BPF_MAP_TYPE_RINGBUF);
	__type(value, struct event);
	__uint(max_entries, 262144);
} events SEC(".maps");

static __always_inline int test_flag(enum flag flag)
{
	struct flag_value *found = bpf_map_lookup_elem(&flags, &flag);
	return found && found->is_set;
}

static __always_inline void set_flag(enum flag flag)
{
	struct flag_value *found = bpf_map_lookup_elem(&flags, &flag);
	if (found)
		found->is_set = 1;
}

/*
 * Returns 1 if there may be rerouted flows. The programs count reroutes, the agent writes the count at which it found all of
 * them ended: with one flag for both, it would clear that of a reroute that began while it searched.
 */
static __always_inline int has_reroutes(const struct flag_value *count)
{
	enum flag flag = REROUTES_ENDED;
	struct flag_value *ended;

	if (!count || !count->is_set)
		return 0;
	ended = bpf_map_lookup_elem(&flags, &flag);
	/* Maps of an earlier version have no such element. */
	return !ended || ended->is_set != count->is_set;
}

static __always_inline int test_reroutes(void)
{
	enum flag flag = REROUTES;
	return has_reroutes(bpf_map_lookup_elem(&flags, &flag));
}

/* Must be called after the entries were made. */
static __always_inline void count_reroute(void)
{
	enum flag flag = REROUTES;
	struct flag_value *found = bpf_map_lookup_elem(&flags, &flag);
	if (found)
		__sync_fetch_and_add(&found->is_set, 1);
}

static __always_inline struct config *get_config(void)
{
	__u32 zero = 0;
	return bpf_map_lookup_elem(&config, &zero);
}

static __always_inline int has_subscribers(void)
{
	struct config *settings = get_config();
	return settings && settings->subscribers;
}

static __always_inline __u32 micros_since(__u64 started, __u64 now)
{
	__u64 micros = (now - started) / 1000;
	return micros > 0xffffffff ? 0xffffffff : micros;
}

/* Emits an event. The client is that of `flow`. */
static __always_inline void emit_event(enum event_kind kind, __u64 now, const struct flow *flow,
				       const struct address *service, __be16 service_port,
				       const struct address *endpoint, __be16 endpoint_port, __u32 micros)
{
	struct event *event = bpf_ringbuf_reserve(&events, sizeof(*event), 0);

	if (!event)
		return;
	event->at = now;
	event->client = flow->client;
	event->service = *service;
	event->endpoint = *endpoint;
	event->client_port = flow->client_port;
	event->service_port = service_port;
	event->endpoint_port = endpoint_port;
	event->protocol = flow->protocol;
	event->zero = 0;
	event->micros = micros;
	event->kind = kind;
	bpf_ringbuf_submit(event, 0);
}

/* Emits an event of a connection that is refused before its socket has an address. */
static __always_inline void emit_rejected(__u64 netns_cookie, const struct frontend_key *service)
{
	struct flow flow = { .protocol = service->protocol };
	struct address none = {};

	flow.client.word[0] = (__u32)netns_cookie;
	flow.client.word[1] = (__u32)(netns_cookie >> 32);
	emit_event(REJECTED, bpf_ktime_get_ns(), &flow, &service->address, service->port, &none, 0, 0);
}
