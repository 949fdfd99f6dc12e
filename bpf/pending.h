/* SPDX-License-Identifier: Apache-2.0 OR GPL-2.0-only */
/*
 * Connections that are being opened. Where four whose flows fall together are being opened at once, or two processors
 * want the same place in the same moment, one of them is not written down, and not rescued; neither is one of two flows
 * whose whole hashes are the same.
 */
#pragma once
#include "maps.h"

/* A connection that nobody has heard of for so long is not being opened any more (units: see claim_of). */
#define PENDING_UNITS 16

static __always_inline __u32 hash_of(const struct flow *flow)
{
	__u32 hash = ((__u32)flow->client_port << 16) | flow->server_port;

	for (__u32 i = 0; i < 4; i++) {
		hash = (hash ^ flow->client.word[i]) * 0x9e3779b1;
		hash = (hash ^ flow->server.word[i]) * 0x85ebca6b;
	}
	hash = (hash ^ (hash >> 16)) * 0xc2b2ae35;
	return hash ^ (hash >> 13);
}

static __always_inline struct pending_set *pending_set_of(__u32 hash)
{
	__u32 index = hash % PENDING_SETS;
	return bpf_map_lookup_elem(&pending_flows, &index);
}

/* Time in units of about a second. */
static __always_inline __u64 claim_of(__u32 hash, __u64 now)
{
	return ((__u64)hash << 32) | (__u32)((now >> 30) + 1);
}

static __always_inline int is_over(__u64 claim, __u64 now)
{
	return (__u32)((now >> 30) + 1) - (__u32)claim > PENDING_UNITS;
}

static __always_inline int same_flow(const struct flow *a, const struct flow *b)
{
	__u32 difference = (a->client_port ^ b->client_port) | (a->server_port ^ b->server_port);

	for (__u32 i = 0; i < 4; i++)
		difference |= (a->client.word[i] ^ b->client.word[i]) | (a->server.word[i] ^ b->server.word[i]);
	return !difference;
}

static __always_inline void add_pending(const struct pending *pending, __u64 now)
{
	__u32 hash = hash_of(&pending->flow), way = PENDING_WAYS;
	struct pending_set *set = pending_set_of(hash);
	__u64 before = 0, claim;

	if (!set)
		return;
	for (__u32 i = 0; i < PENDING_WAYS; i++) {
		claim = set->claims[i];
		/* An earlier one from the same port, which nobody took away. */
		if (claim && claim >> 32 == hash) {
			way = i;
			before = claim;
			break;
		}
		if (way == PENDING_WAYS && (!claim || is_over(claim, now))) {
			way = i;
			before = claim;
		}
	}
	if (way >= PENDING_WAYS)
		return;
	claim = claim_of(hash, now);
	if (__sync_val_compare_and_swap(&set->claims[way], before, claim) != before)
		return;
	set->pending[way] = *pending;
}

/* Null: none, or none any more. */
static __always_inline struct pending *find_pending(const struct flow *flow)
{
	__u32 hash = hash_of(flow);
	struct pending_set *set = pending_set_of(hash);

	if (!set)
		return 0;
	for (__u32 i = 0; i < PENDING_WAYS; i++) {
		if (set->claims[i] && set->claims[i] >> 32 == hash && same_flow(&set->pending[i].flow, flow))
			return &set->pending[i];
	}
	return 0;
}

static __always_inline void keep_pending(const struct flow *flow, __u64 now)
{
	__u32 hash = hash_of(flow);
	struct pending_set *set = pending_set_of(hash);

	if (!set)
		return;
	for (__u32 i = 0; i < PENDING_WAYS; i++) {
		if (set->claims[i] && set->claims[i] >> 32 == hash)
			set->claims[i] = claim_of(hash, now);
	}
}

static __always_inline void delete_pending(const struct flow *flow)
{
	__u32 hash = hash_of(flow);
	struct pending_set *set = pending_set_of(hash);

	if (!set)
		return;
	for (__u32 i = 0; i < PENDING_WAYS; i++) {
		if (set->claims[i] && set->claims[i] >> 32 == hash)
			set->claims[i] = 0;
	}
}
