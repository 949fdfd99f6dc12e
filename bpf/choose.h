/* SPDX-License-Identifier: Apache-2.0 */
/* Choice of an endpoint. */
#pragma once
#include "maps.h"

/* How many endpoints are tried before a suspect is taken after all. */
#define TRIES 8

static __always_inline int same_address(const struct address *a, const struct address *b)
{
	/* Without branches: the verifier follows every one, in every round of a loop. */
	return !((a->word[3] ^ b->word[3]) | (a->word[2] ^ b->word[2]) | (a->word[1] ^ b->word[1]) |
		 (a->word[0] ^ b->word[0]));
}

static __always_inline struct endpoint *endpoint_at(const struct route *route, __u32 index)
{
	__u32 slot = route->first + index;
	return bpf_map_lookup_elem(&endpoints, &slot);
}

static __always_inline int is_suspect(__u32 backend, __u64 now)
{
	struct backend *state = bpf_map_lookup_elem(&backends, &backend);
	return state && state->suspect_until > now;
}

static __always_inline __u32 open_connections(__u32 backend)
{
	struct backend *state = bpf_map_lookup_elem(&backends, &backend);
	return state ? state->open : 0;
}

/* One of the route's endpoints from `start` on, none under suspicion if there is a choice, and not `avoid`. */
static __always_inline struct endpoint *choose(const struct frontend *frontend, const struct route *route, __u32 start,
					       __u64 now, __u32 avoid)
{
	__u32 count = route->count;
	struct endpoint *first, *other;

	if (!count)
		return 0;
	first = endpoint_at(route, start % count);
	if (!first)
		return 0;
	if (frontend->balance == LEAST_CONNECTIONS && count > 1) {
		other = endpoint_at(route, bpf_get_prandom_u32() % count);
		if (other && open_connections(other->backend) < open_connections(first->backend) &&
		    !is_suspect(other->backend, now) && other->backend != avoid)
			first = other;
	}
	if (first->backend != avoid && !is_suspect(first->backend, now))
		return first;
	for (int i = 1; i < TRIES; i++) {
		if (i >= count && frontend->balance != MAGLEV)
			break;
		/* A Maglev table repeats its endpoints: neighbours are as good as random. */
		other = endpoint_at(route, (start + i) % count);
		if (other && other->backend != avoid && !is_suspect(other->backend, now))
			return other;
	}
	return first;
}
