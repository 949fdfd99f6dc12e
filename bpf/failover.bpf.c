// SPDX-License-Identifier: Apache-2.0 OR GPL-2.0-only
/*
 * Failover. Timeouts and answers of sockets decide which endpoints are ejected (ejection.h). A pending connection without
 * an answer is rerouted: the retransmitted SYN goes to another endpoint. Programs at the node's devices rewrite the
 * packets of rerouted flows to the new endpoint, and its answers to the address that the socket is connected to; they
 * drop late answers and refusals of the first endpoint.
 *
 * Requests of pods are rewritten at ingress and answers to pods at egress, those of the node's own processes the other
 * way round, so that connection tracking and rules of the node see the real flow. A packet with a VLAN tag is left to
 * the programs at the VLAN's own device.
 */
#include "packet.h"
#include "pending.h"
#include "reroute.h"
#include "ejection.h"

/* TCP_TIMEWAIT_LEN: how long the side that closes first keeps the connection's addresses. */
#define TIME_WAIT_NS 60000000000ull
/* A socket is closed before its last packet, a reset, is sent (tcp_disconnect). */
#define LAST_PACKET_NS 1000000000ull

/* Reads a field of the context here: the verifier refuses an address that the compiler computed from two fields. */
#define READ(field) (*(const volatile __u32 *)&(field))

static __always_inline struct flow flow_of(struct bpf_sock_ops *ctx, const struct peer *peer)
{
	__u32 ip4 = READ(ctx->local_ip4), a = READ(ctx->local_ip6[0]), b = READ(ctx->local_ip6[1]),
	      c = READ(ctx->local_ip6[2]), d = READ(ctx->local_ip6[3]);
	struct flow flow = { .server = peer->endpoint, .server_port = peer->endpoint_port, .protocol = TCP };

	flow.client_port = bpf_htons((__u16)ctx->local_port);
	if (is_ipv4(&peer->endpoint))
		flow.client = (struct address){ { 0, 0, bpf_htonl(0xffff), ip4 } };
	else
		flow.client = (struct address){ { a, b, c, d } };
	return flow;
}

static __always_inline void enter_pending(const struct flow *flow, const struct peer *peer, __u64 now)
{
	struct pending pending = {
		.flow = *flow,
		.service = { .address = peer->service, .port = peer->service_port, .protocol = TCP },
		.backend = peer->backend,
		.source_class = peer->flags & PEER_NODE ? NODE : POD,
	};

	add_pending(&pending, now);
}

static __always_inline void on_connect(const struct flow *flow, struct peer *peer, const struct config *settings)
{
	__u64 now = bpf_ktime_get_ns();

	if (settings->subscribers)
		peer->started = now;
	if (!settings->reroute || (peer->flags & PEER_NO_FAILOVER))
		return;
	/* An earlier connection from the same port may have left an entry. */
	if (test_reroutes())
		delete_reroute(flow);
	enter_pending(flow, peer, now);
}

static __always_inline void on_syn_timeout(const struct flow *flow, const struct peer *peer, __u64 socket,
				      const struct config *settings)
{
	struct pending *pending = find_pending(flow);
	__u64 now = bpf_ktime_get_ns();
	struct address address;
	__u32 number;
	__be16 port;

	if (pending) {
		refresh_pending(flow, now);
	} else if (settings->reroute) {
		/* There was no way for it when it began. */
		enter_pending(flow, peer, now);
		pending = find_pending(flow);
	}
	number = pending ? pending->backend : peer->backend;
	if (pending && pending->ignored_timeouts) {
		pending->ignored_timeouts--;
		return;
	}
	/* Its answer is between the device and the socket. */
	if (pending && pending->reroutes && answer_of(flow))
		return;
	target_of(flow, &address, &port);
	record_failure(TIMED_OUT, number, socket, now, settings, flow, &peer->service, peer->service_port, &address,
		       port);
	/* Each further endpoint gets more time: if all are slow, changing between them would not help. */
	if (pending && settings->reroute && reroute_pending(flow, pending, now))
		pending->ignored_timeouts = pending->reroutes;
}

/*
 * Returns 1 if the program must see the socket close too. `first_byte`: the sequence number of the first byte that the
 * endpoint will send.
 */
static __always_inline int on_established(const struct flow *flow, struct peer *peer, const struct config *settings,
					  __u32 first_byte)
{
	struct address address = flow->server;
	__be16 port = flow->server_port;
	struct pending *pending;
	struct backend *backend = 0;
	__u32 number;
	__u64 now;

	if (test_reroutes()) {
		pending = find_pending(flow);
		if (pending && pending->reroutes && answer_of(flow) != ((first_byte - 1) | 1)) {
			/*
			 * The first endpoint's answer was between the device and the socket when the timer expired, as
			 * happens when a processor does not run: the connection stays with that endpoint.
			 */
			delete_reroute(flow);
		} else if (pending && pending->reroutes) {
			peer->backend = pending->backend;
			peer->flags |= PEER_REROUTED;
			set_reroute_expiry(flow, 0);
			target_of(flow, &address, &port);
		}
	}
	if (settings->reroute && !(peer->flags & PEER_NO_FAILOVER))
		delete_pending(flow);
	number = peer->backend;
	if ((peer->flags & PEER_COUNTED) || test_flag(FAILURES))
		backend = bpf_map_lookup_elem(&backends, &number);
	if (backend && (backend->failed_at | backend->ejections))
		record_success(backend, bpf_ktime_get_ns(), flow, peer, &address, port);
	if (backend && (peer->flags & PEER_COUNTED)) {
		__sync_fetch_and_add(&backend->open, 1);
		peer->counted = backend->generation + 1;
	}
	if (settings->subscribers) {
		now = bpf_ktime_get_ns();
		emit_event(ESTABLISHED, now, flow, &peer->service, peer->service_port, &address, port,
		     peer->started ? micros_since(peer->started, now) : 0);
	}
	return settings->subscribers || (peer->flags & (PEER_REROUTED | PEER_COUNTED));
}

static __always_inline void on_close(const struct flow *flow, struct peer *peer, __u32 before)
{
	__u32 number = peer->backend, counted = peer->counted;
	__u64 now = bpf_ktime_get_ns();
	struct address address;
	struct pending *pending;
	struct backend *backend;
	int was_rerouted;
	__be16 port;

	if (counted) {
		peer->counted = 0;
		backend = bpf_map_lookup_elem(&backends, &number);
		if (backend && backend->generation + 1 == counted)
			__sync_fetch_and_add(&backend->open, -1);
	}
	was_rerouted = peer->flags & PEER_REROUTED;
	if (before == BPF_TCP_SYN_SENT) {
		pending = find_pending(flow);
		if (pending) {
			was_rerouted = pending->reroutes;
			delete_pending(flow);
		}
	}
	if (has_subscribers() && peer->started) {
		target_of(flow, &address, &port);
		emit_event(before == BPF_TCP_SYN_SENT ? GIVEN_UP : CLOSED, now, flow, &peer->service, peer->service_port,
		     &address, port, micros_since(peer->started, now));
	}
	if (!was_rerouted)
		return;
	peer->flags &= ~PEER_REROUTED;
	switch (before) {
	case BPF_TCP_SYN_SENT:
		delete_reroute(flow);
		break;
	case BPF_TCP_FIN_WAIT1:
	case BPF_TCP_FIN_WAIT2:
	case BPF_TCP_CLOSING:
	case BPF_TCP_TIME_WAIT:
		/* The side that closes first still answers packets after the socket has been closed. */
		set_reroute_expiry(flow, now + TIME_WAIT_NS);
		break;
	default:
		set_reroute_expiry(flow, now + LAST_PACKET_NS);
	}
}

#define RTO_ONLY BPF_SOCK_OPS_RTO_CB_FLAG
#define RTO_AND_STATE (BPF_SOCK_OPS_RTO_CB_FLAG | BPF_SOCK_OPS_STATE_CB_FLAG)

/* Keeps the flags that other programs set for this socket, which the helper replaces. */
static __always_inline void add_callbacks(struct bpf_sock_ops *ctx, int flags)
{
	bpf_sock_ops_cb_flags_set(ctx, READ(ctx->bpf_sock_ops_cb_flags) | flags);
}

SEC("sockops")
int fl_sock_ops(struct bpf_sock_ops *ctx)
{
	struct bpf_sock *sk = ctx->sk;
	struct config *settings;
	struct peer *peer;
	struct flow flow;

	switch (ctx->op) {
	case BPF_SOCK_OPS_STATE_CB:
		if (ctx->args[1] != BPF_TCP_CLOSE)
			return 1;
		break;
	case BPF_SOCK_OPS_TCP_CONNECT_CB:
	case BPF_SOCK_OPS_TIMEOUT_INIT:
	case BPF_SOCK_OPS_RTO_CB:
	case BPF_SOCK_OPS_ACTIVE_ESTABLISHED_CB:
		break;
	default:
		return 1;
	}
	if (!sk || !ctx->is_fullsock)
		return 1;
	peer = bpf_sk_storage_get(&peers, sk, 0, 0);
	if (!peer)
		return 1;
	settings = get_config();
	if (!settings)
		return 1;
	if (ctx->op == BPF_SOCK_OPS_TIMEOUT_INIT) {
		if (settings->syn_timeout && !(peer->flags & PEER_NO_FAILOVER))
			ctx->reply = settings->syn_timeout;
		return 1;
	}
	flow = flow_of(ctx, peer);
	/* Callbacks for every state change are costly, so only sockets whose close matters get them. */
	switch (ctx->op) {
	case BPF_SOCK_OPS_TCP_CONNECT_CB:
		add_callbacks(ctx, settings->subscribers ? RTO_AND_STATE : RTO_ONLY);
		on_connect(&flow, peer, settings);
		break;
	case BPF_SOCK_OPS_RTO_CB:
		if (ctx->state != BPF_TCP_SYN_SENT || (peer->flags & PEER_NO_FAILOVER))
			break;
		add_callbacks(ctx, RTO_AND_STATE);
		on_syn_timeout(&flow, peer, bpf_get_socket_cookie(ctx), settings);
		break;
	case BPF_SOCK_OPS_ACTIVE_ESTABLISHED_CB:
		if (on_established(&flow, peer, settings, READ(ctx->rcv_nxt)))
			add_callbacks(ctx, RTO_AND_STATE);
		break;
	case BPF_SOCK_OPS_STATE_CB:
		on_close(&flow, peer, ctx->args[0]);
		break;
	}
	return 1;
}

/* Reads the flow of a datagram that the socket sends. Returns 0 for other packets. */
static __always_inline int read_datagram(struct __sk_buff *skb, struct flow *flow)
{
	void *data = (void *)(long)skb->data, *end = (void *)(long)skb->data_end;
	struct udphdr *udp;
	struct iphdr *ip4 = data;
	struct ipv6hdr *ip6 = data;

	if (skb->protocol == bpf_htons(ETH_P_IP)) {
		udp = (void *)(ip4 + 1);
		if ((void *)(udp + 1) > end || ip4->protocol != UDP || ip4->ihl != 5)
			return 0;
		flow->client = (struct address){ { 0, 0, bpf_htonl(0xffff), ip4->saddr } };
		flow->server = (struct address){ { 0, 0, bpf_htonl(0xffff), ip4->daddr } };
	} else {
		udp = (void *)(ip6 + 1);
		if ((void *)(udp + 1) > end || ip6->nexthdr != UDP)
			return 0;
		__builtin_memcpy(&flow->client, &ip6->saddr, 16);
		__builtin_memcpy(&flow->server, &ip6->daddr, 16);
	}
	flow->client_port = udp->source;
	flow->server_port = udp->dest;
	flow->protocol = UDP;
	return 1;
}

/*
 * Reroutes the flow of a connected socket whose endpoint was removed from its Service, starting
 * with this datagram.
 */
static __always_inline void leave_removed_backend(const struct flow *flow, const struct peer *peer)
{
	struct frontend_key service = { .address = peer->service, .port = peer->service_port, .protocol = UDP };
	struct removed_backend_key removed = { .protocol = UDP };

	target_of(flow, &removed.address, &removed.port);
	if (bpf_map_lookup_elem(&removed_backends, &removed))
		reroute(flow, &service, peer->flags & PEER_NODE ? NODE : POD, NO_BACKEND, bpf_ktime_get_ns());
}

static __always_inline void report_udp_session(struct udp_sessions *sessions, const struct flow *flow)
{
	for (__u32 i = 0; i < UDP_SESSIONS; i++) {
		struct udp_session *session = &sessions->session[i];
		if (session->endpoint_port != flow->server_port || !same_address(&session->endpoint, &flow->server))
			continue;
		if (!(sessions->reported & (1u << i)))
			emit_event(CHOSEN, bpf_ktime_get_ns(), flow, &session->service, session->service_port, &flow->server,
			     flow->server_port, 0);
		sessions->reported |= 1u << i;
		return;
	}
}

/*
 * Processes datagrams as sockets send them. A connected socket does not call the programs at
 * sendmsg, so its flow is rerouted here if its endpoint was removed from the Service.
 */
SEC("cgroup_skb/egress")
int fl_egress_udp(struct __sk_buff *skb)
{
	struct config *settings = get_config();
	struct flow flow = {};
	struct udp_sessions *sessions;
	struct bpf_sock *sk;
	struct peer *peer;

	if (!settings || !(settings->removed_backends | settings->subscribers))
		return 1;
	sk = skb->sk;
	if (!sk)
		return 1;
	sk = bpf_sk_fullsock(sk);
	if (!sk || sk->protocol != UDP || !read_datagram(skb, &flow))
		return 1;
	peer = bpf_sk_storage_get(&peers, sk, 0, 0);
	if (peer && peer->endpoint_port == flow.server_port && same_address(&peer->endpoint, &flow.server)) {
		if (settings->subscribers && !(peer->flags & PEER_REPORTED)) {
			peer->flags |= PEER_REPORTED;
			emit_event(CHOSEN, bpf_ktime_get_ns(), &flow, &peer->service, peer->service_port, &flow.server,
			     flow.server_port, 0);
		}
		if (settings->removed_backends)
			leave_removed_backend(&flow, peer);
		return 1;
	}
	if (!settings->subscribers)
		return 1;
	sessions = bpf_sk_storage_get(&udp_sessions, sk, 0, 0);
	if (sessions)
		report_udp_session(sessions, &flow);
	return 1;
}

/*
 * Sends a packet of the client to the flow's current endpoint. Returns 1 if the packet was
 * rewritten.
 */
static __always_inline int rewrite_request(struct __sk_buff *skb, const struct packet *packet,
					   enum source_class source_class)
{
	struct flow flow = {
		.client = packet->source,
		.server = packet->destination,
		.client_port = packet->source_port,
		.server_port = packet->destination_port,
		.protocol = packet->protocol,
	};
	struct reroute *to = bpf_map_lookup_elem(&reroutes, &flow), copy;

	if (!to || to->direction != TO_ENDPOINT || to->source_class != source_class || packet->is_error)
		return 0;
	if (packet->protocol == UDP)
		to->until = bpf_ktime_get_ns() + IDLE_NS;
	copy = *to;
	if (copy.until && copy.until < bpf_ktime_get_ns())
		return 0;
	rewrite(skb, packet, 0, &copy.address, copy.port);
	return 1;
}

/*
 * Replaces the source of a packet to the client by the endpoint that the client's socket is
 * connected to.
 */
static __always_inline int rewrite_answer(struct __sk_buff *skb, const struct packet *packet,
					  enum source_class source_class)
{
	struct flow flow = {
		.client = packet->destination,
		.server = packet->source,
		.client_port = packet->destination_port,
		.server_port = packet->source_port,
		.protocol = packet->protocol,
	};
	struct reroute *found = 0, copy = {};
	struct pending *pending;
	struct frontend_key service;
	struct config *settings;
	struct flow opened = flow;
	__u64 now;

	found = bpf_map_lookup_elem(&reroutes, &flow);
	if (found && found->source_class != source_class)
		found = 0;
	if (found && found->direction == TO_ENDPOINT)
		/*
		 * The first endpoint of a flow that was rerouted. While no other endpoint has answered, its late answer makes
		 * the connection its own (on_established), but its late refusal would end it.
		 */
		return packet->protocol == TCP && (!found->until || packet->is_refusal) ? DROP : NEXT;
	if (found) {
		if (packet->protocol == TCP && !found->answered) {
			if (packet->is_answer)
				found->answered = packet->sequence | 1;
			else if (!packet->is_refusal)
				return NEXT;
		}
		if (packet->protocol == UDP)
			found->until = bpf_ktime_get_ns() + IDLE_NS;
		copy = *found;
	}
	if (packet->is_refusal && (!found || !copy.answered)) {
		if (found) {
			opened.server = copy.address;
			opened.server_port = copy.port;
		}
		pending = find_pending(&opened);
		settings = get_config();
		if (pending && settings && pending->source_class == source_class) {
			now = bpf_ktime_get_ns();
			service = pending->service;
			record_failure(packet->is_error ? UNREACHABLE : RESET, pending->backend, flow.client_port, now,
				       settings, &opened, &service.address, service.port, &flow.server,
				       flow.server_port);
			if (reroute_pending(&opened, pending, now)) {
				/* The next timeout belongs to the first endpoint: no packet was sent to the new one yet. */
				pending->ignored_timeouts = pending->reroutes;
				return DROP;
			}
		}
	}
	if (!found || packet->is_error || (copy.until && copy.until < bpf_ktime_get_ns()))
		return NEXT;
	rewrite(skb, packet, 1, &copy.address, copy.port);
	return NEXT;
}

/* Reads a packet that may have to be rewritten. Returns 0 for all others; `is_rerouting`: whether there are rerouted flows. */
static __always_inline int read_packet(struct __sk_buff *skb, struct packet *packet, __u32 *is_rerouting)
{
	enum flag flag = REROUTES;
	struct flag_value *found = bpf_map_lookup_elem(&flags, &flag);

	if (!found)
		return 0;
	*is_rerouting = has_reroutes(found);
	if ((!*is_rerouting && !may_be_refusal(skb)) || skb->vlan_present || !parse(skb, packet))
		return 0;
	forget(packet, found->zero);
	return 1;
}

SEC("tc/ingress")
int fl_ingress(struct __sk_buff *skb)
{
	struct packet packet;
	__u32 is_rerouting;

	if (!read_packet(skb, &packet, &is_rerouting))
		return NEXT;
	if (is_rerouting && rewrite_request(skb, &packet, POD))
		return NEXT;
	return rewrite_answer(skb, &packet, NODE);
}

SEC("tc/egress")
int fl_egress(struct __sk_buff *skb)
{
	struct packet packet;
	__u32 is_rerouting;

	if (!read_packet(skb, &packet, &is_rerouting))
		return NEXT;
	/* Another endpoint may be behind another device, and has another link address in any case. */
	if (is_rerouting && rewrite_request(skb, &packet, NODE))
		return redirect(skb, packet.is_ipv6);
	return rewrite_answer(skb, &packet, POD);
}

/* bpf_fib_lookup needs a licence that is compatible with the GPL. */
char _license[] SEC("license") = "GPL";
