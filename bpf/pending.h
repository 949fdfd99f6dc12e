/* SPDX-License-Identifier: Apache-2.0 OR GPL-2.0-only */
/*
 * Connections that are being opened. Where four whose flows fall together are being opened at once, or two processors
 * want the same place in the same moment, one of them is not written down, and not rescued; neither is one of two flows
 * whose whole hashes are the same.
 */
#pragma once
#include "maps.h"

/* A connection that nobody has heard of for so long is not being opened any more (units: see units_of). */
#define PENDING_UNITS 16

/* Never 0. */
static __always_inline __u32 hash_of(const struct flow *flow)
{
	__u32 hash = ((__u32)flow->client_port << 16) | flow->server_port;

	for (__u32 i = 0; i < 4; i++) {
		hash = (hash ^ flow->client.word[i]) * 0x9e3779b1;
		hash = (hash ^ flow->server.word[i]) * 0x85ebca6b;
	}
	hash = (hash ^ (hash >> 16)) * 0xc2b2ae35;
	return (hash ^ (hash >> 13)) | 1;
}

static __always_inline struct pending_set *pending_set_of(__u32 hash)
{
	__u32 index = (hash >> 1) % PENDING_SETS;
	return bpf_map_lookup_elem(&pending_flows, &index);
}

/* Time in units of about a second, so that a claim of 0 is over. */
static __always_inline __u32 units_of(__u64 now)
{
	return (now >> 30) + 2 * PENDING_UNITS;
}

/*
 * All ones when the highest bit is set, else 0. The searches below have no branches: with one for each way, the verifier
 * takes seconds to follow them all. (The compiler must not see what the bit stands for, or it makes one of it.)
 */
static __always_inline __u32 mask_of(__u32 value)
{
	asm volatile("" : "+r"(value));
	return -(value >> 31);
}

/* Where a claim with this hash stands, or PENDING_WAYS. */
static __always_inline __u32 way_of(const struct pending_set *set, __u32 hash)
{
	__u32 way = PENDING_WAYS, difference, differs;

#pragma unroll
	for (__u32 i = 0; i < PENDING_WAYS; i++) {
		difference = (__u32)(set->claims[i] >> 32) ^ hash;
		differs = mask_of(difference | -difference);
		way = (way & differs) | (i & ~differs);
	}
	return way;
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
	__u32 hash = hash_of(&pending->flow), units = units_of(now), way = PENDING_WAYS, difference, take, same;
	struct pending_set *set = pending_set_of(hash);
	__u64 before = 0, claim;

	if (!set)
		return;
	/* One that is over; better an earlier connection from the same port, which nobody took away. */
#pragma unroll
	for (__u32 i = 0; i < PENDING_WAYS; i++) {
		claim = set->claims[i];
		take = mask_of(PENDING_UNITS - (units - (__u32)claim));
		way = (way & ~take) | (i & take);
		before = (before & ~(__u64)(__s64)(__s32)take) | (claim & (__u64)(__s64)(__s32)take);
	}
#pragma unroll
	for (__u32 i = 0; i < PENDING_WAYS; i++) {
		claim = set->claims[i];
		difference = (__u32)(claim >> 32) ^ hash;
		same = ~mask_of(difference | -difference);
		way = (way & ~same) | (i & same);
		before = (before & ~(__u64)(__s64)(__s32)same) | (claim & (__u64)(__s64)(__s32)same);
	}
	if (way >= PENDING_WAYS)
		return;
	claim = ((__u64)hash << 32) | units;
	if (__sync_val_compare_and_swap(&set->claims[way], before, claim) != before)
		return;
	set->pending[way] = *pending;
}

/* Null: none, or none any more. */
static __always_inline struct pending *find_pending(const struct flow *flow)
{
	__u32 hash = hash_of(flow), way;
	struct pending_set *set = pending_set_of(hash);

	if (!set)
		return 0;
	way = way_of(set, hash);
	if (way >= PENDING_WAYS || !same_flow(&set->pending[way].flow, flow))
		return 0;
	return &set->pending[way];
}

static __always_inline void keep_pending(const struct flow *flow, __u64 now)
{
	__u32 hash = hash_of(flow), way;
	struct pending_set *set = pending_set_of(hash);

	if (!set)
		return;
	way = way_of(set, hash);
	if (way < PENDING_WAYS)
		set->claims[way] = ((__u64)hash << 32) | units_of(now);
}

static __always_inline void delete_pending(const struct flow *flow)
{
	__u32 hash = hash_of(flow), way;
	struct pending_set *set = pending_set_of(hash);

	if (!set)
		return;
	way = way_of(set, hash);
	if (way < PENDING_WAYS)
		set->claims[way] = 0;
}
