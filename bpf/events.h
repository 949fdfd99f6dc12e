/* SPDX-License-Identifier: Apache-2.0 OR GPL-2.0-only */
/* What the agent hears of: failures always, every connection while somebody reads. */
#pragma once
#include "maps.h"

enum event_kind {
	CHOSEN = 1,      /* a socket of datagrams goes to this endpoint from now on */
	ESTABLISHED = 2, /* micros: from connect() to the answer */
	TIMED_OUT = 3,   /* no answer to a connection's first packet */
	RESET = 4,       /* the endpoint refused */
	SUSPECTED = 5,   /* new connections are kept away from it; micros: milliseconds of that */
	RECOVERED = 6,   /* it has answered, the first time since it failed somebody */
	RESCUED = 7,     /* the flow goes to this endpoint instead */
	CLOSED = 8,      /* micros: from connect() on; more than 71 minutes count as that */
	GIVEN_UP = 9,    /* ended before any answer */
	UNREACHABLE = 10, /* the network said that the endpoint cannot be reached */
};

struct event {
	__u64 at; /* monotonic ns */
	struct address client;
	struct address service;
	struct address endpoint;
	__be16 client_port;
	__be16 service_port;
	__be16 endpoint_port;
	__u8 protocol;
	__u8 kind;
	__u32 micros;
	__u32 zero;
};

static __always_inline int is_any(__u32 what)
{
	struct state *found = bpf_map_lookup_elem(&state, &what);
	return found && found->is_any;
}

static __always_inline void there_is(__u32 what)
{
	struct state *found = bpf_map_lookup_elem(&state, &what);
	if (found)
		found->is_any = 1;
}

static __always_inline struct config *settings_of(void)
{
	__u32 zero = 0;
	return bpf_map_lookup_elem(&config, &zero);
}

static __always_inline int has_readers(void)
{
	struct config *settings = settings_of();
	return settings && settings->readers;
}

static __always_inline __u32 micros_since(__u64 started, __u64 now)
{
	__u64 micros = (now - started) / 1000;
	return micros > 0xffffffff ? 0xffffffff : micros;
}

/* `flow` tells the client, and the endpoint unless another one is given. */
static __always_inline void tell(__u8 kind, __u64 now, const struct flow *flow, const struct address *service,
				 __be16 service_port, const struct address *endpoint, __be16 endpoint_port,
				 __u32 micros)
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
	event->kind = kind;
	event->micros = micros;
	event->zero = 0;
	bpf_ringbuf_submit(event, 0);
}
