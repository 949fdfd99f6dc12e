// SPDX-License-Identifier: Apache-2.0 OR GPL-2.0-only
/*
 * Load balancing at the socket: a connect() or sendto() to a Service's address goes to one of its
 * endpoints, while getpeername() and recvmsg() keep showing the Service's address. Packets of such
 * flows are never translated.
 *
 * Calls that these programs pass go to the Service's address, and nf_tables translates their
 * packets.
 */
#include "choose.h"

#define ECONNREFUSED 111

enum result { LET_PASS, TRANSLATED, REFUSED };

/* Packets from a loopback address need their source rewritten, which nf_tables does. */
static __always_inline int has_loopback_source(struct bpf_sock *sk)
{
	if (!sk)
		return 0;
	if (sk->family == 2)
		return (sk->src_ip4 & bpf_htonl(0xff000000)) == bpf_htonl(0x7f000000);
	return (sk->src_ip6[0] | sk->src_ip6[1] | sk->src_ip6[2]) == 0 && sk->src_ip6[3] == bpf_htonl(1);
}

/* Returns 0 without memory for the socket's sessions. */
static __always_inline int save_udp_session(struct bpf_sock *sk, const struct frontend_key *service,
					    const struct endpoint *endpoint)
{
	struct udp_sessions *sessions;
	struct udp_session *session;
	__u32 at;

	if (!sk)
		return 0;
	sessions = bpf_sk_storage_get(&udp_sessions, sk, 0, BPF_SK_STORAGE_GET_F_CREATE);
	if (!sessions)
		return 0;
	at = UDP_SESSIONS;
	for (__u32 i = 0; i < UDP_SESSIONS; i++) {
		session = &sessions->session[i];
		if (session->service_port == service->port && same_address(&session->service, &service->address))
			at = i;
		else if (session->endpoint_port == endpoint->port && same_address(&session->endpoint, &endpoint->address))
			session->endpoint_port = 0; /* The same endpoint through another Service: the last one counts. */
	}
	if (at == UDP_SESSIONS) {
		at = sessions->next;
		sessions->next = (at + 1) % UDP_SESSIONS;
	}
	at %= UDP_SESSIONS;
	session = &sessions->session[at];
	if (session->service_port != service->port || session->endpoint_port != endpoint->port ||
	    !same_address(&session->service, &service->address) || !same_address(&session->endpoint, &endpoint->address))
		sessions->reported &= ~(1u << at);
	session->service = service->address;
	session->service_port = service->port;
	session->endpoint = endpoint->address;
	session->endpoint_port = endpoint->port;
	return 1;
}

/*
 * Finds the endpoint that an unconnected socket's earlier datagrams to this Service went to. Returns 0 if there is none,
 * or if it no longer serves.
 */
static __always_inline int continue_udp_session(struct bpf_sock *sk, const struct frontend_key *service,
						const struct route *route, struct endpoint *endpoint)
{
	struct member member = { .first = route->first };
	struct udp_sessions *sessions;

	if (!sk)
		return 0;
	sessions = bpf_sk_storage_get(&udp_sessions, sk, 0, 0);
	if (!sessions)
		return 0;
	for (__u32 i = 0; i < UDP_SESSIONS; i++) {
		struct udp_session *session = &sessions->session[i];
		if (session->service_port != service->port || !same_address(&session->service, &service->address))
			continue;
		member.address = session->endpoint;
		member.port = session->endpoint_port;
		if (!member.port || !bpf_map_lookup_elem(&members, &member))
			return 0;
		endpoint->address = member.address;
		endpoint->port = member.port;
		return 1;
	}
	return 0;
}

/* Returns 0 without memory for the socket's peer. */
static __always_inline int save_peer(struct bpf_sock *sk, const struct frontend_key *service,
				     const struct frontend *frontend, const struct endpoint *endpoint, int is_node)
{
	struct peer *peer;

	if (!sk)
		return 0;
	peer = bpf_sk_storage_get(&peers, sk, 0, BPF_SK_STORAGE_GET_F_CREATE);
	if (!peer)
		return 0;
	peer->service = service->address;
	peer->service_port = service->port;
	peer->endpoint = endpoint->address;
	peer->endpoint_port = endpoint->port;
	peer->backend = endpoint->backend;
	peer->counted = 0;
	peer->started = 0;
	peer->flags = (is_node ? PEER_NODE : 0) | (frontend->balance & NO_FAILOVER ? PEER_NO_FAILOVER : 0) |
		      ((frontend->balance & BALANCE_MASK) == LEAST_CONNECTIONS ? PEER_COUNTED : 0);
	return 1;
}

/* A socket may be connected more than once. */
static __always_inline void delete_peer(struct bpf_sock_addr *ctx)
{
	if (ctx->sk)
		bpf_sk_storage_delete(&peers, ctx->sk);
}

/* Chooses an endpoint and replaces the Service's address and port by the endpoint's. */
static __always_inline enum result translate(struct bpf_sock_addr *ctx, struct address *address, int is_message)
{
	struct frontend_key key = { .address = *address, .port = (__be16)ctx->user_port, .protocol = ctx->protocol };
	struct frontend *found, frontend;
	struct endpoint *found_endpoint, endpoint = {};
	struct bpf_sock *sk = ctx->sk;
	struct config *settings;
	struct affinity *last;
	struct affinity_key client = {};
	struct route route;
	__u64 cookie, now;
	__u32 zero = 0, hidden, start;
	int is_node;

	found = bpf_map_lookup_elem(&frontends, &key);
	if (!found)
		return LET_PASS;
	settings = bpf_map_lookup_elem(&config, &zero);
	if (!settings)
		return LET_PASS;
	cookie = bpf_get_netns_cookie(ctx);
	/*
	 * 0, but unknown to the verifier: with it, it does not remember the outcome of a comparison, and does not follow the
	 * rest of the program once for each.
	 */
	hidden = settings->zero;
	is_node = (cookie == settings->node_cookie) ^ hidden;
	frontend = *found;
	route = is_node ? frontend.routes[NODE] : frontend.routes[POD];
	if (route.action == REFUSE) {
		if (ctx->protocol != TCP)
			return LET_PASS;
		if (settings->subscribers)
			emit_rejected(cookie, &key);
		return REFUSED;
	}
	if (route.action != FORWARD || (is_node && has_loopback_source(sk)))
		return LET_PASS;
	if (is_message && continue_udp_session(sk, &key, &route, &endpoint))
		goto translated;

	now = bpf_ktime_get_ns();
	client.client = cookie;
	client.frontend = frontend.id;
	if (frontend.affinity_seconds) {
		last = bpf_map_lookup_elem(&affinities, &client);
		if (last && now - last->at < (__u64)frontend.affinity_seconds * 1000000000ull) {
			struct member member = { .first = route.first, .address = last->address, .port = last->port };
			struct membership *found_member = bpf_map_lookup_elem(&members, &member);
			if (found_member && found_member->kind == IN_RUN &&
			    ((frontend.balance & NO_FAILOVER) || !is_ejected(found_member->backend, now))) {
				last->at = now;
				endpoint.address = member.address;
				endpoint.port = member.port;
				endpoint.backend = found_member->backend;
				goto chosen;
			}
		}
	}
	/* With Maglev all flows of a client go to the same endpoint. */
	if (((frontend.balance & BALANCE_MASK) ^ hidden) == MAGLEV)
		start = (__u32)((cookie * 0x9e3779b97f4a7c15ull) >> 32);
	else if (is_message)
		start = (__u32)((bpf_get_socket_cookie(ctx) * 0x9e3779b97f4a7c15ull) >> 32);
	else
		start = bpf_get_prandom_u32();
	found_endpoint = choose(&frontend, &route, start, now, NO_BACKEND);
	if (!found_endpoint)
		return LET_PASS;
	endpoint = *found_endpoint;
	/* The slot was reused for another frontend after the route was read: left to nf_tables. */
	if (endpoint.owner != frontend.id)
		return LET_PASS;
	if (frontend.affinity_seconds ^ hidden) {
		struct affinity fresh = { .at = now, .address = endpoint.address, .port = endpoint.port };
		bpf_map_update_elem(&affinities, &client, &fresh, BPF_ANY);
	}
chosen:
	/*
	 * A socket whose endpoint is not saved, for lack of memory, would show the endpoint's address to its program, and its
	 * pending connection could not be rerouted: nf_tables translates it instead.
	 */
	if (is_message ? !save_udp_session(sk, &key, &endpoint) : !save_peer(sk, &key, &frontend, &endpoint, is_node))
		return LET_PASS;
translated:
	*address = endpoint.address;
	ctx->user_port = endpoint.port;
	return TRANSLATED;
}

/* Replaces an endpoint's address by that of the Service through which the socket reached it. */
static __always_inline int translate_back(struct bpf_sock_addr *ctx, struct address *address)
{
	__be16 port = (__be16)ctx->user_port;
	struct udp_sessions *sessions;
	struct peer *peer;

	if (!ctx->sk)
		return 0;
	peer = bpf_sk_storage_get(&peers, ctx->sk, 0, 0);
	if (peer && peer->endpoint_port == port && same_address(&peer->endpoint, address)) {
		*address = peer->service;
		ctx->user_port = peer->service_port;
		return 1;
	}
	if (ctx->protocol != UDP)
		return 0;
	sessions = bpf_sk_storage_get(&udp_sessions, ctx->sk, 0, 0);
	if (!sessions)
		return 0;
	for (__u32 i = 0; i < UDP_SESSIONS; i++) {
		struct udp_session *session = &sessions->session[i];
		if (session->endpoint_port == port && same_address(&session->endpoint, address)) {
			*address = session->service;
			ctx->user_port = session->service_port;
			return 1;
		}
	}
	return 0;
}

static __always_inline struct address mapped(__u32 ip4)
{
	return (struct address){ { 0, 0, bpf_htonl(0xffff), ip4 } };
}

static __always_inline struct address address6(struct bpf_sock_addr *ctx)
{
	return (struct address){ { ctx->user_ip6[0], ctx->user_ip6[1], ctx->user_ip6[2], ctx->user_ip6[3] } };
}

static __always_inline void set_address6(struct bpf_sock_addr *ctx, const struct address *address)
{
	ctx->user_ip6[0] = address->word[0];
	ctx->user_ip6[1] = address->word[1];
	ctx->user_ip6[2] = address->word[2];
	ctx->user_ip6[3] = address->word[3];
}

#define ALLOW 1
#define REFUSE_CALL 0

static __always_inline int forward4(struct bpf_sock_addr *ctx, int is_message)
{
	struct address address = mapped(ctx->user_ip4);

	switch (translate(ctx, &address, is_message)) {
	case TRANSLATED:
		ctx->user_ip4 = address.word[3];
		return ALLOW;
	case REFUSED:
		bpf_set_retval(-ECONNREFUSED);
		return REFUSE_CALL;
	default:
		if (!is_message)
			delete_peer(ctx);
		return ALLOW;
	}
}

static __always_inline int forward6(struct bpf_sock_addr *ctx, int is_message)
{
	struct address address = address6(ctx);

	switch (translate(ctx, &address, is_message)) {
	case TRANSLATED:
		set_address6(ctx, &address);
		return ALLOW;
	case REFUSED:
		bpf_set_retval(-ECONNREFUSED);
		return REFUSE_CALL;
	default:
		if (!is_message)
			delete_peer(ctx);
		return ALLOW;
	}
}

static __always_inline int back4(struct bpf_sock_addr *ctx)
{
	struct address address = mapped(ctx->user_ip4);

	if (translate_back(ctx, &address))
		ctx->user_ip4 = address.word[3];
	return ALLOW;
}

static __always_inline int back6(struct bpf_sock_addr *ctx)
{
	struct address address = address6(ctx);

	if (translate_back(ctx, &address))
		set_address6(ctx, &address);
	return ALLOW;
}

SEC("cgroup/connect4")
int fl_connect4(struct bpf_sock_addr *ctx)
{
	return forward4(ctx, 0);
}

SEC("cgroup/connect6")
int fl_connect6(struct bpf_sock_addr *ctx)
{
	return forward6(ctx, 0);
}

SEC("cgroup/sendmsg4")
int fl_sendmsg4(struct bpf_sock_addr *ctx)
{
	return forward4(ctx, 1);
}

SEC("cgroup/sendmsg6")
int fl_sendmsg6(struct bpf_sock_addr *ctx)
{
	return forward6(ctx, 1);
}

SEC("cgroup/recvmsg4")
int fl_recvmsg4(struct bpf_sock_addr *ctx)
{
	return back4(ctx);
}

SEC("cgroup/recvmsg6")
int fl_recvmsg6(struct bpf_sock_addr *ctx)
{
	return back6(ctx);
}

SEC("cgroup/getpeername4")
int fl_getpeer4(struct bpf_sock_addr *ctx)
{
	return back4(ctx);
}

SEC("cgroup/getpeername6")
int fl_getpeer6(struct bpf_sock_addr *ctx)
{
	return back6(ctx);
}

char _license[] SEC("license") = "Apache-2.0";
