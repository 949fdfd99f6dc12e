/* SPDX-License-Identifier: Apache-2.0 OR GPL-2.0-only */
/*
 * Outlier ejection: new connections avoid an endpoint that refused one, or that left several
 * sockets without an answer some time apart, with no answer to any in between. A machine that
 * pauses causes many timeouts at once, followed by answers, which must not eject.
 * src/failover/ejection-rules.ts has the whole policy, including the agent's part.
 */
#pragma once
#include "ejection-rules.h"
#include "events.h"

#define NS_PER_MS 1000000ull

/*
 * Returns the duration of the ejection from now on, in milliseconds; 0 if the endpoint was ejected
 * already.
 */
static __always_inline __u32 eject(struct backend *backend, __u64 now)
{
	__u32 millis = FIRST_EJECTION_MS;

	/* Failures of connections that were pending at the ejection contain no new information. */
	if (backend->ejected_until > now && !backend->probing)
		return 0;
	/* More doublings than the maximum has bits would shift everything out. */
	millis <<= backend->ejections < 16 ? backend->ejections : 16;
	if (millis > MAX_EJECTION_MS)
		millis = MAX_EJECTION_MS;
	backend->ejected_until = now + millis * NS_PER_MS;
	backend->ejections++;
	backend->probing = 0;
	return millis;
}

static __always_inline void record_failure(enum event_kind kind, __u32 number, __u64 socket, __u64 now,
					   const struct config *settings, const struct flow *flow,
					   const struct address *service, __be16 service_port,
					   const struct address *endpoint, __be16 endpoint_port)
{
	struct backend *backend;
	__u32 millis;

	/*
	 * Without ejection no backend has this number. Another branch here would double the verifier's
	 * work.
	 */
	number |= settings->ejection - 1;
	backend = bpf_map_lookup_elem(&backends, &number);
	emit_event(kind, now, flow, service, service_port, endpoint, endpoint_port, 0);
	if (!backend)
		return;
	set_flag(FAILURES);
	/*
	 * PROGRAM_TIMEOUTS: the first is stored, the second ejects. An ICMP error may concern only one
	 * client, so it counts like a timeout.
	 */
	if (kind != RESET && !backend->ejections) {
		if (!backend->failed_at || now - backend->failed_at > FAILURE_WINDOW_MS * NS_PER_MS) {
			backend->failed_at = now;
			backend->failed_socket = socket;
			return;
		}
		if (backend->failed_socket == socket || now - backend->failed_at < MIN_FAILURE_DISTANCE_MS * NS_PER_MS)
			return;
	}
	millis = eject(backend, now);
	if (millis)
		emit_event(EJECTED, now, flow, service, service_port, endpoint, endpoint_port, millis);
}

static __always_inline void record_success(struct backend *backend, __u64 now, const struct flow *flow,
					   const struct peer *peer, const struct address *endpoint,
					   __be16 endpoint_port)
{
	backend->ejected_until = 0;
	backend->failed_at = 0;
	backend->ejections = 0;
	backend->probing = 0;
	emit_event(RECOVERED, now, flow, &peer->service, peer->service_port, endpoint, endpoint_port, 0);
}
