/* SPDX-License-Identifier: Apache-2.0 OR GPL-2.0-only */
/*
 * Rerouted flows: their packets go to an endpoint other than the one that the socket is connected
 * to.
 */
#pragma once
#include "choose.h"
#include "events.h"

/* A rerouted flow of datagrams ends after this time without a datagram. */
#define IDLE_NS 180000000000ull

/*
 * Sends a flow of a Service to an endpoint other than `avoid`, starting with its next packet.
 * Returns the endpoint's index in `backends`, or NO_BACKEND.
 */
static __always_inline __u32 reroute(const struct flow *flow, const struct frontend_key *service,
				     enum source_class source_class, __u32 avoid, __u64 now)
{
	struct frontend *found = bpf_map_lookup_elem(&frontends, service);
	struct reroute entry = {}, *before;
	struct endpoint *endpoint, to;
	struct flow back = *flow;
	struct frontend frontend;
	struct route route;

	if (!found)
		return NO_BACKEND;
	frontend = *found;
	route = source_class == NODE ? frontend.routes[NODE] : frontend.routes[POD];
	if (route.action != FORWARD)
		return NO_BACKEND;
	endpoint = choose(&frontend, &route, bpf_get_prandom_u32(), now, avoid);
	if (!endpoint)
		return NO_BACKEND;
	to = *endpoint;
	if (to.owner != frontend.id || to.backend == avoid)
		return NO_BACKEND;
	before = bpf_map_lookup_elem(&reroutes, flow);
	if (before) {
		back.server = before->address;
		back.server_port = before->port;
		bpf_map_delete_elem(&reroutes, &back);
	}
	back.server = to.address;
	back.server_port = to.port;
	/* Back at the first endpoint: no rewriting needed. */
	if (to.port == flow->server_port && same_address(&to.address, &flow->server)) {
		bpf_map_delete_elem(&reroutes, flow);
		return to.backend;
	}
	entry.source_class = source_class;
	/* A connection's expiry is removed when it is answered. */
	entry.until = now + IDLE_NS;
	entry.direction = FROM_ENDPOINT;
	entry.address = flow->server;
	entry.port = flow->server_port;
	bpf_map_update_elem(&reroutes, &back, &entry, BPF_ANY);
	entry.direction = TO_ENDPOINT;
	entry.address = to.address;
	entry.port = to.port;
	bpf_map_update_elem(&reroutes, flow, &entry, BPF_ANY);
	count_reroute();
	emit_event(REROUTED, now, flow, &service->address, service->port, &to.address, to.port, 0);
	return to.backend;
}

/* Does the same for a pending connection. Returns 1 if there was another endpoint. */
static __always_inline int reroute_pending(const struct flow *flow, struct pending *pending, __u64 now)
{
	struct frontend_key service = pending->service;
	__u32 number;

	if (pending->reroutes >= MAX_REROUTES)
		return 0;
	number = reroute(flow, &service, pending->source_class, pending->backend, now);
	if (number == NO_BACKEND)
		return 0;
	pending->backend = number;
	pending->reroutes++;
	return 1;
}

/* Finds the endpoint that a flow's packets go to. */
static __always_inline void target_of(const struct flow *flow, struct address *address, __be16 *port)
{
	struct reroute *to = bpf_map_lookup_elem(&reroutes, flow);
	int is_rerouted = to && to->direction == TO_ENDPOINT;

	*address = is_rerouted ? to->address : flow->server;
	*port = is_rerouted ? to->port : flow->server_port;
}

/* Returns `reroute.answered` of the endpoint that a rerouted flow's packets go to. */
static __always_inline __u32 answer_of(const struct flow *flow)
{
	struct reroute *to = bpf_map_lookup_elem(&reroutes, flow), *from;
	struct flow back = *flow;

	if (!to || to->direction != TO_ENDPOINT)
		return 0;
	back.server = to->address;
	back.server_port = to->port;
	from = bpf_map_lookup_elem(&reroutes, &back);
	return from ? from->answered : 0;
}

/* Sets the expiry of both directions of a rerouted flow; 0: never. */
static __always_inline void set_reroute_expiry(const struct flow *flow, __u64 until)
{
	struct flow back = *flow;
	struct reroute *to = bpf_map_lookup_elem(&reroutes, flow), *from;

	if (!to || to->direction != TO_ENDPOINT)
		return;
	to->until = until;
	back.server = to->address;
	back.server_port = to->port;
	from = bpf_map_lookup_elem(&reroutes, &back);
	if (from)
		from->until = until;
}

static __always_inline void delete_reroute(const struct flow *flow)
{
	struct flow back = *flow;
	struct reroute *to = bpf_map_lookup_elem(&reroutes, flow);

	if (!to || to->direction != TO_ENDPOINT)
		return;
	back.server = to->address;
	back.server_port = to->port;
	bpf_map_delete_elem(&reroutes, &back);
	bpf_map_delete_elem(&reroutes, flow);
}
