/* SPDX-License-Identifier: Apache-2.0 OR GPL-2.0-only */
/* Chooses an endpoint. */
#pragma once
#include "branchless.h"
#include "ejection.h"

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

static __always_inline int is_ejected(__u32 backend, __u64 now)
{
	struct backend *found = bpf_map_lookup_elem(&backends, &backend);
	return found && found->ejected_until > now;
}

static __always_inline __u32 open_connections(__u32 backend)
{
	struct backend *found = bpf_map_lookup_elem(&backends, &backend);
	return found ? found->open : 0;
}

/* The first connection after an ejection keeps the others away until it is answered. */
static __always_inline void begin_probe(__u32 backend, __u64 now)
{
	struct backend *found = bpf_map_lookup_elem(&backends, &backend);

	if (!found || !found->ejected_until || found->ejected_until > now)
		return;
	found->ejected_until = now + PROGRAM_PROBE_MS * NS_PER_MS;
	found->probing = 1;
}

/*
 * Returns the endpoint at `start` if it is neither ejected nor `avoid`, else another one that is
 * neither. If more than half are ejected, the cause is likely to be elsewhere and the rest would be
 * overloaded, so ejections are ignored; but a caller with an endpoint to avoid gets one that is not
 * ejected if there is any.
 */
static __always_inline struct endpoint *choose(const struct frontend *frontend, const struct route *route, __u32 start,
					       __u64 now, __u32 avoid)
{
	__u32 count = route->count, balance = frontend->balance & BALANCE_MASK;
	__u32 seen = lesser(count, PROGRAM_SAMPLE), good, pick, at, usable, number;
	__u32 is_random = balance ^ MAGLEV;
	struct endpoint *first, *other;
	struct backend *found;
	struct config *settings;

	if (!count)
		return 0;
	first = endpoint_at(route, start % count);
	if (!first)
		return 0;
	if (balance == LEAST_CONNECTIONS && count > 1) {
		other = endpoint_at(route, bpf_get_prandom_u32() % count);
		if (other && open_connections(other->backend) < open_connections(first->backend) &&
		    !is_ejected(other->backend, now) && other->backend != avoid)
			first = other;
	}
	if (frontend->balance & NO_FAILOVER)
		return first;
	/* A caller whose `avoid` is unknown at compile time is rerouting: there is a failure. */
	if (__builtin_constant_p(avoid) && avoid == NO_BACKEND && !test_flag(FAILURES))
		return first;
	if (first->backend != avoid && !is_ejected(first->backend, now))
		goto found;
	settings = get_config();
	if (!settings)
		return first;
	/* 0, but unknown to the verifier, which would otherwise explore each value of `good` separately. */
	good = pick = settings->zero;
	is_random = mask_of(is_random | -is_random);
	for (__u32 i = 0; i < PROGRAM_SAMPLE; i++) {
		if (i >= seen)
			break;
		/* Backwards, so that Maglev ends with the first good one. */
		at = (start + seen - 1 - i) % count;
		other = endpoint_at(route, at);
		if (!other)
			continue;
		number = other->backend;
		usable = number ^ avoid;
		usable = mask_of(usable | -usable);
		found = bpf_map_lookup_elem(&backends, &number);
		if (found)
			usable &= ~mask_of((now - found->ejected_until) >> 32);
		good += usable & 1;
		/*
		 * All good endpoints share the ejected one's connections (reservoir sampling), except that a
		 * Maglev client's next endpoint is always the same. No branches: the verifier would follow each in
		 * every round.
		 */
		number = bpf_get_prandom_u32() % (good | (~usable & 1)) & is_random;
		usable &= ~mask_of(number | -number);
		pick = (pick & ~usable) | (at & usable);
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
