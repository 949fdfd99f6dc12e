/* SPDX-License-Identifier: Apache-2.0 OR GPL-2.0-only */
/*
 * Which endpoints new connections are kept away from: those that refused, and those that left two sockets without an
 * answer, some time apart and without having answered anybody between. A machine that stands still for a moment makes
 * many timeouts at once, but then answers come: that is no reason.
 */
#pragma once
#include "events.h"

#define APART_NS 50000000ull
#define TOGETHER_NS 5000000000ull
#define MOST_DOUBLINGS 6

/* 1 when the endpoint was not under suspicion before. */
static __always_inline int suspect(struct backend *backend, __u64 now, __u32 eject_ms, __u32 *micros)
{
	__u32 doublings = backend->failures < MOST_DOUBLINGS ? backend->failures : MOST_DOUBLINGS;

	/* Failures that were on their way when the first was seen are the same failure. */
	if (backend->suspect_until > now && !backend->probing)
		return 0;
	backend->suspect_until = now + ((__u64)eject_ms * 1000000ull << doublings);
	backend->failures++;
	backend->probing = 0;
	*micros = eject_ms << doublings;
	return 1;
}

static __always_inline void note_failure(__u8 kind, __u32 number, __u64 socket, __u64 now, __u32 eject_ms,
					 const struct flow *flow, const struct address *service, __be16 service_port,
					 const struct address *endpoint, __be16 endpoint_port)
{
	struct backend *backend = bpf_map_lookup_elem(&backends, &number);
	__u32 millis = 0;

	tell(kind, now, flow, service, service_port, endpoint, endpoint_port, 0);
	if (!backend || !eject_ms)
		return;
	there_is(FAILURES);
	/* What the network says may be said to one client only. */
	if (kind != RESET && !backend->failures) {
		if (!backend->failed_at || now - backend->failed_at > TOGETHER_NS) {
			backend->failed_at = now;
			backend->failed_client = socket;
			return;
		}
		if (backend->failed_client == socket || now - backend->failed_at < APART_NS)
			return;
	}
	if (suspect(backend, now, eject_ms, &millis))
		tell(SUSPECTED, now, flow, service, service_port, endpoint, endpoint_port, millis);
}

static __always_inline void note_success(struct backend *backend, __u64 now, const struct flow *flow,
					 const struct peer *peer, const struct address *endpoint, __be16 endpoint_port)
{
	backend->suspect_until = 0;
	backend->failed_at = 0;
	backend->failures = 0;
	backend->probing = 0;
	tell(RECOVERED, now, flow, &peer->service, peer->service_port, endpoint, endpoint_port, 0);
}
