/* SPDX-License-Identifier: Apache-2.0 OR GPL-2.0-only */
/* Flows whose packets go to another endpoint than their socket believes. */
#pragma once
#include "choose.h"
#include "events.h"

/* How many more endpoints a connection is sent to at most. */
#define MOST_RESCUES 4
/* A flow of datagrams is over when there has been none for so long. */
#define IDLE_NS 180000000000ull

/* Sends a flow of a Service to another endpoint than `avoid` from its next packet on: its number, or NO_BACKEND. */
static __always_inline __u32 rescue(const struct flow *flow, const struct frontend_key *service, __u32 class,
				    __u32 avoid, __u64 now)
{
	struct frontend *found = bpf_map_lookup_elem(&frontends, service);
	struct rescue entry = {}, *before;
	struct endpoint *endpoint, to;
	struct flow back = *flow;
	struct frontend frontend;
	struct route route;

	if (!found)
		return NO_BACKEND;
	frontend = *found;
	route = class == NODE ? frontend.routes[NODE] : frontend.routes[POD];
	if (route.action != FORWARD)
		return NO_BACKEND;
	endpoint = choose(&frontend, &route, bpf_get_prandom_u32(), now, avoid);
	if (!endpoint)
		return NO_BACKEND;
	to = *endpoint;
	if (to.owner != frontend.id || to.backend == avoid)
		return NO_BACKEND;
	before = bpf_map_lookup_elem(&rescues, flow);
	if (before) {
		back.server = before->address;
		back.server_port = before->port;
		bpf_map_delete_elem(&rescues, &back);
	}
	back.server = to.address;
	back.server_port = to.port;
	/* Back at the first one: nothing to re-target. */
	if (to.port == flow->server_port && same_address(&to.address, &flow->server)) {
		bpf_map_delete_elem(&rescues, flow);
		return to.backend;
	}
	entry.class = class;
	/* Of a connection: until it is answered. */
	entry.until = now + IDLE_NS;
	entry.direction = FROM_ENDPOINT;
	entry.address = flow->server;
	entry.port = flow->server_port;
	bpf_map_update_elem(&rescues, &back, &entry, BPF_ANY);
	entry.direction = TO_ENDPOINT;
	entry.address = to.address;
	entry.port = to.port;
	bpf_map_update_elem(&rescues, flow, &entry, BPF_ANY);
	there_is(RESCUES);
	tell(RESCUED, now, flow, &service->address, service->port, &to.address, to.port, 0);
	return to.backend;
}

/* The same for a connection that is being opened; 1 when there was another endpoint. */
static __always_inline int rescue_pending(const struct flow *flow, struct pending *pending, __u64 now)
{
	struct frontend_key service = pending->service;
	__u32 number;

	if (pending->tries >= MOST_RESCUES)
		return 0;
	number = rescue(flow, &service, pending->class, pending->backend, now);
	if (number == NO_BACKEND)
		return 0;
	pending->backend = number;
	pending->tries++;
	return 1;
}

/* Which endpoint a flow's packets go to. */
static __always_inline void target_of(const struct flow *flow, struct address *address, __be16 *port)
{
	struct rescue *to = bpf_map_lookup_elem(&rescues, flow);
	int is_rescued = to && to->direction == TO_ENDPOINT;

	*address = is_rescued ? to->address : flow->server;
	*port = is_rescued ? to->port : flow->server_port;
}

/* Its packets are known until then, or (0) for as long as nobody says otherwise. */
static __always_inline void keep_rescue(const struct flow *flow, __u64 until)
{
	struct flow back = *flow;
	struct rescue *to = bpf_map_lookup_elem(&rescues, flow), *from;

	if (!to || to->direction != TO_ENDPOINT)
		return;
	to->until = until;
	back.server = to->address;
	back.server_port = to->port;
	from = bpf_map_lookup_elem(&rescues, &back);
	if (from)
		from->until = until;
}

static __always_inline void end_rescue(const struct flow *flow)
{
	struct flow back = *flow;
	struct rescue *to = bpf_map_lookup_elem(&rescues, flow);

	if (!to || to->direction != TO_ENDPOINT)
		return;
	back.server = to->address;
	back.server_port = to->port;
	bpf_map_delete_elem(&rescues, &back);
	bpf_map_delete_elem(&rescues, flow);
}
