/* SPDX-License-Identifier: Apache-2.0 OR GPL-2.0-only */
/* Choice of an endpoint. */
#pragma once
#include "events.h"

/* How many endpoints are looked at when the first one is under suspicion. */
#define SAMPLE 8
/* So long everybody else waits for the connection that finds out whether a suspect is back. */
#define PROBE_NS 1000000000ull
#define NO_BACKEND (~0u)

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

/* The first connection to an endpoint whose time of suspicion is over keeps the others away until it is answered. */
static __always_inline void begin_probe(__u32 backend, __u64 now)
{
	struct backend *state = bpf_map_lookup_elem(&backends, &backend);

	if (!state || !state->suspect_until || state->suspect_until > now)
		return;
	state->suspect_until = now + PROBE_NS;
	state->probing = 1;
}

/*
 * One of the route's endpoints from `start` on, none under suspicion and not `avoid`. Suspicion counts for half of the
 * endpoints at most: where more are suspect, something else is wrong, or the rest would be overrun, and they are chosen
 * as if none were; but who avoids one knows better, and is sent to one without suspicion if there is any.
 */
static __always_inline struct endpoint *choose(const struct frontend *frontend, const struct route *route, __u32 start,
					       __u64 now, __u32 avoid)
{
	__u32 count = route->count, balance = frontend->balance & BALANCE_MASK;
	__u32 seen = count < SAMPLE ? count : SAMPLE, good, pick, at, zero = 0;
	struct endpoint *first, *other;
	struct state *programs;

	if (!count)
		return 0;
	first = endpoint_at(route, start % count);
	if (!first)
		return 0;
	if (balance == LEAST_CONNECTIONS && count > 1) {
		other = endpoint_at(route, bpf_get_prandom_u32() % count);
		if (other && open_connections(other->backend) < open_connections(first->backend) &&
		    !is_suspect(other->backend, now) && other->backend != avoid)
			first = other;
	}
	if (frontend->balance & NO_FAILOVER)
		return first;
	/* Who avoids one, and cannot be told at compile time, has met a failure. */
	if (__builtin_constant_p(avoid) && avoid == NO_BACKEND && !is_any(FAILURES))
		return first;
	if (first->backend != avoid && !is_suspect(first->backend, now))
		goto found;
	programs = bpf_map_lookup_elem(&state, &zero);
	if (!programs)
		return first;
	/* 0, but unknown to the verifier, which would follow every number of good ones by itself. */
	good = pick = programs->zero;
	for (__u32 i = 0; i < SAMPLE; i++) {
		if (i >= seen)
			break;
		/* From the last to the first. */
		at = (start + seen - 1 - i) % count;
		other = endpoint_at(route, at);
		if (!other || other->backend == avoid || is_suspect(other->backend, now))
			continue;
		good++;
		/*
		 * Each with the same chance: all share what would have been the suspect's. But a Maglev client's next one
		 * is always the same. (No comparison of `good` here: the verifier would know it from there on.)
		 */
		if (balance == MAGLEV || bpf_get_prandom_u32() % good == 0)
			pick = at;
	}
	if (!good || (avoid == NO_BACKEND && good * 2 < seen)) {
		if (first->backend != avoid)
			return first;
		return endpoint_at(route, (start + 1) % count);
	}
	other = endpoint_at(route, pick);
	if (!other)
		return first;
	first = other;
found:
	begin_probe(first->backend, now);
	return first;
}
