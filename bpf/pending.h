/* SPDX-License-Identifier: Apache-2.0 OR GPL-2.0-only */
/*
 * The table of pending connections. A connection is not entered, and therefore not rerouted until its next timeout, if
 * its set is full, if another processor takes the same way of the set at the same moment, or if another flow has the
 * same complete hash.
 */
#pragma once
#include "branchless.h"
#include "maps.h"

/* An entry without a change for this long is stale (units: see time_units). */
#define PENDING_UNITS 16

/* Returns the hash of a flow, never 0. */
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
	return bpf_map_lookup_elem(&pending_sets, &index);
}

/* Time in units of about a second, never so small that a tag of 0 would be fresh. */
static __always_inline __u32 time_units(__u64 now)
{
	return (now >> 30) + 2 * PENDING_UNITS;
}

_Static_assert((PENDING_WAYS & (PENDING_WAYS - 1)) == 0, "in_bounds needs a power of two");

/*
 * Returns a way below PENDING_WAYS as the index of an array. Up to Linux 6.1 at least, the verifier does not know the bound
 * of the 64-bit register of an address after a comparison of its lower half, which the compiler uses for a __u32. The asm
 * keeps the compiler from dropping the mask.
 */
static __always_inline __u64 in_bounds(__u32 way)
{
	__u64 index = way;

	asm volatile("%0 &= %1" : "+r"(index) : "i"(PENDING_WAYS - 1));
	return index;
}

/* Finds the way whose tag has this hash, else PENDING_WAYS. */
static __always_inline __u32 find_way(const struct pending_set *set, __u32 hash)
{
	__u32 way = PENDING_WAYS, difference, differs;

#pragma unroll
	for (__u32 i = 0; i < PENDING_WAYS; i++) {
		difference = (__u32)(set->tags[i] >> 32) ^ hash;
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
	__u32 hash = hash_of(&pending->flow), units = time_units(now), way = PENDING_WAYS, difference, take, same;
	struct pending_set *set = pending_set_of(hash);
	__u64 before = 0, tag, index;

	if (!set)
		return;
	/*
	 * A free or stale way, or preferably that of an earlier connection from the same port that was
	 * never removed.
	 */
#pragma unroll
	for (__u32 i = 0; i < PENDING_WAYS; i++) {
		tag = set->tags[i];
		take = mask_of(PENDING_UNITS - (units - (__u32)tag));
		way = (way & ~take) | (i & take);
		before = (before & ~(__u64)(__s64)(__s32)take) | (tag & (__u64)(__s64)(__s32)take);
	}
#pragma unroll
	for (__u32 i = 0; i < PENDING_WAYS; i++) {
		tag = set->tags[i];
		difference = (__u32)(tag >> 32) ^ hash;
		same = ~mask_of(difference | -difference);
		way = (way & ~same) | (i & same);
		before = (before & ~(__u64)(__s64)(__s32)same) | (tag & (__u64)(__s64)(__s32)same);
	}
	if (way >= PENDING_WAYS)
		return;
	tag = ((__u64)hash << 32) | units;
	index = in_bounds(way);
	if (__sync_val_compare_and_swap(&set->tags[index], before, tag) != before)
		return;
	set->pending[index] = *pending;
}

/* Returns the entry of a flow. Null: not entered, or removed. */
static __always_inline struct pending *find_pending(const struct flow *flow)
{
	__u32 hash = hash_of(flow), way;
	struct pending_set *set = pending_set_of(hash);
	__u64 index;

	if (!set)
		return 0;
	way = find_way(set, hash);
	if (way >= PENDING_WAYS)
		return 0;
	index = in_bounds(way);
	return same_flow(&set->pending[index].flow, flow) ? &set->pending[index] : 0;
}

static __always_inline void refresh_pending(const struct flow *flow, __u64 now)
{
	__u32 hash = hash_of(flow), way;
	struct pending_set *set = pending_set_of(hash);

	if (!set)
		return;
	way = find_way(set, hash);
	if (way < PENDING_WAYS)
		set->tags[in_bounds(way)] = ((__u64)hash << 32) | time_units(now);
}

static __always_inline void delete_pending(const struct flow *flow)
{
	__u32 hash = hash_of(flow), way;
	struct pending_set *set = pending_set_of(hash);

	if (!set)
		return;
	way = find_way(set, hash);
	if (way < PENDING_WAYS)
		set->tags[in_bounds(way)] = 0;
}
