// SPDX-License-Identifier: Apache-2.0 OR GPL-2.0-only
/*
 * No connection is lost to a dead endpoint. A socket's timeouts and answers tell which endpoints new connections are
 * kept away from, and send a first packet that stays without an answer to another endpoint when it is sent again. At
 * the node's devices the packets of such flows get the address of their new endpoint, and the answers the one that the
 * socket believes in; late answers of the endpoint of before, and refusals, are kept from the socket.
 *
 * Packets of pods are met where they come in and answers where they go out, those of the node's own processes the other
 * way round: so connection tracking and rules of the node see the flow that there is. A packet with a VLAN tag is met
 * again at the VLAN's own device.
 */
#include "packet.h"
#include "pending.h"
#include "rescue.h"
#include "suspicion.h"

/* As long as the client's side keeps the addresses of a connection that it has ended (TCP_TIMEWAIT_LEN). */
#define TIME_WAIT_NS 60000000000ull
/* A socket is closed before its last packet, a reset, is sent (tcp_disconnect). */
#define LAST_PACKET_NS 1000000000ull

/* A field of a context, read where it is written: the compiler must not choose between addresses of two. */
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

static __always_inline void opening(const struct flow *flow, struct peer *peer, const struct config *settings)
{
	struct pending pending = {
		.flow = *flow,
		.service = { .address = peer->service, .port = peer->service_port, .protocol = TCP },
		.backend = peer->backend,
		.class = peer->flags & PEER_NODE ? NODE : POD,
	};
	__u64 now = bpf_ktime_get_ns();

	if (settings->readers)
		peer->started = now;
	if (!settings->rescue || (peer->flags & PEER_NO_FAILOVER))
		return;
	/* Left by an earlier connection from the same port. */
	if (is_any(RESCUES))
		end_rescue(flow);
	add_pending(&pending, now);
}

static __always_inline void timed_out(const struct flow *flow, const struct peer *peer, __u64 socket,
				      const struct config *settings)
{
	struct pending *pending = find_pending(flow);
	__u32 number = pending ? pending->backend : peer->backend;
	__u64 now = bpf_ktime_get_ns();
	struct address address;
	__be16 port;

	if (pending)
		keep_pending(flow, now);
	if (pending && pending->patience) {
		pending->patience--;
		return;
	}
	target_of(flow, &address, &port);
	note_failure(TIMED_OUT, number, socket, now, settings->eject_ms, flow, &peer->service, peer->service_port,
		     &address, port);
	/* Each next one gets more time: where all are slow, going from one to the other would help none. */
	if (pending && settings->rescue && rescue_pending(flow, pending, now))
		pending->patience = pending->tries;
}

/* 1 when the socket's end has to be known too. */
static __always_inline int established(const struct flow *flow, struct peer *peer, const struct config *settings)
{
	struct address address = flow->server;
	__be16 port = flow->server_port;
	struct pending *pending;
	struct backend *backend = 0;
	__u32 number;
	__u64 now;

	if (is_any(RESCUES)) {
		pending = find_pending(flow);
		if (pending && pending->tries) {
			peer->backend = pending->backend;
			peer->flags |= PEER_RESCUED;
			keep_rescue(flow, 0);
			target_of(flow, &address, &port);
		}
	}
	if (settings->rescue && !(peer->flags & PEER_NO_FAILOVER))
		delete_pending(flow);
	number = peer->backend;
	if ((peer->flags & PEER_COUNTED) || is_any(FAILURES))
		backend = bpf_map_lookup_elem(&backends, &number);
	if (backend && (backend->failed_at | backend->failures))
		note_success(backend, bpf_ktime_get_ns(), flow, peer, &address, port);
	if (backend && (peer->flags & PEER_COUNTED)) {
		__sync_fetch_and_add(&backend->open, 1);
		peer->counted = backend->generation + 1;
	}
	if (settings->readers) {
		now = bpf_ktime_get_ns();
		tell(ESTABLISHED, now, flow, &peer->service, peer->service_port, &address, port,
		     peer->started ? micros_since(peer->started, now) : 0);
	}
	return settings->readers || (peer->flags & (PEER_RESCUED | PEER_COUNTED));
}

static __always_inline void closed(const struct flow *flow, struct peer *peer, __u32 before)
{
	__u32 number = peer->backend, counted = peer->counted;
	__u64 now = bpf_ktime_get_ns();
	struct address address;
	struct pending *pending;
	struct backend *backend;
	int was_rescued;
	__be16 port;

	if (counted) {
		peer->counted = 0;
		backend = bpf_map_lookup_elem(&backends, &number);
		if (backend && backend->generation + 1 == counted)
			__sync_fetch_and_add(&backend->open, -1);
	}
	was_rescued = peer->flags & PEER_RESCUED;
	if (before == BPF_TCP_SYN_SENT) {
		pending = find_pending(flow);
		if (pending) {
			was_rescued = pending->tries;
			delete_pending(flow);
		}
	}
	if (has_readers() && peer->started) {
		target_of(flow, &address, &port);
		tell(before == BPF_TCP_SYN_SENT ? GIVEN_UP : CLOSED, now, flow, &peer->service, peer->service_port,
		     &address, port, micros_since(peer->started, now));
	}
	if (!was_rescued)
		return;
	peer->flags &= ~PEER_RESCUED;
	switch (before) {
	case BPF_TCP_SYN_SENT:
		end_rescue(flow);
		break;
	case BPF_TCP_FIN_WAIT1:
	case BPF_TCP_FIN_WAIT2:
	case BPF_TCP_CLOSING:
	case BPF_TCP_TIME_WAIT:
		/* Who ends a connection first still answers for it when the socket is gone. */
		keep_rescue(flow, now + TIME_WAIT_NS);
		break;
	default:
		keep_rescue(flow, now + LAST_PACKET_NS);
	}
}

#define RTO_ONLY BPF_SOCK_OPS_RTO_CB_FLAG
#define RTO_AND_STATE (BPF_SOCK_OPS_RTO_CB_FLAG | BPF_SOCK_OPS_STATE_CB_FLAG)

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
	settings = settings_of();
	if (!settings)
		return 1;
	if (ctx->op == BPF_SOCK_OPS_TIMEOUT_INIT) {
		if (settings->syn_timeout && !(peer->flags & PEER_NO_FAILOVER))
			ctx->reply = settings->syn_timeout;
		return 1;
	}
	flow = flow_of(ctx, peer);
	/* Callbacks at every change of a socket's state cost all connections: only those get them whose end matters. */
	switch (ctx->op) {
	case BPF_SOCK_OPS_TCP_CONNECT_CB:
		bpf_sock_ops_cb_flags_set(ctx, settings->readers ? RTO_AND_STATE : RTO_ONLY);
		opening(&flow, peer, settings);
		break;
	case BPF_SOCK_OPS_RTO_CB:
		if (ctx->state != BPF_TCP_SYN_SENT || (peer->flags & PEER_NO_FAILOVER))
			break;
		bpf_sock_ops_cb_flags_set(ctx, RTO_AND_STATE);
		timed_out(&flow, peer, bpf_get_socket_cookie(ctx), settings);
		break;
	case BPF_SOCK_OPS_ACTIVE_ESTABLISHED_CB:
		if (established(&flow, peer, settings))
			bpf_sock_ops_cb_flags_set(ctx, RTO_AND_STATE);
		break;
	case BPF_SOCK_OPS_STATE_CB:
		closed(&flow, peer, ctx->args[0]);
		break;
	}
	return 1;
}

/* The client's side of a socket's flow; 0 when this packet is none of UDP. */
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

/* The endpoint of a connected socket has left: the flow goes to another one from this datagram on. */
static __always_inline void leave_departed(const struct flow *flow, const struct peer *peer)
{
	struct frontend_key service = { .address = peer->service, .port = peer->service_port, .protocol = UDP };
	struct departed_key left = { .protocol = UDP };

	target_of(flow, &left.address, &left.port);
	if (bpf_map_lookup_elem(&departed, &left))
		rescue(flow, &service, peer->flags & PEER_NODE ? NODE : POD, NO_BACKEND, bpf_ktime_get_ns());
}

static __always_inline void tell_talk(struct talks *talks, const struct flow *flow)
{
	for (__u32 i = 0; i < TALKS; i++) {
		struct talk *talk = &talks->talk[i];
		if (talk->endpoint_port != flow->server_port || !same_address(&talk->endpoint, &flow->server))
			continue;
		if (!(talks->told & (1u << i)))
			tell(CHOSEN, bpf_ktime_get_ns(), flow, &talk->service, talk->service_port, &flow->server,
			     flow->server_port, 0);
		talks->told |= 1u << i;
		return;
	}
}

/*
 * Datagrams as sockets send them: a connected one asks nobody where they go, so the flow of one whose endpoint has left
 * its Service is sent elsewhere here.
 */
SEC("cgroup_skb/egress")
int fl_egress_udp(struct __sk_buff *skb)
{
	struct config *settings = settings_of();
	struct flow flow = {};
	struct talks *talks;
	struct bpf_sock *sk;
	struct peer *peer;

	if (!settings || !(settings->departed | settings->readers))
		return 1;
	sk = skb->sk;
	if (!sk)
		return 1;
	sk = bpf_sk_fullsock(sk);
	if (!sk || sk->protocol != UDP || !read_datagram(skb, &flow))
		return 1;
	peer = bpf_sk_storage_get(&peers, sk, 0, 0);
	if (peer && peer->endpoint_port == flow.server_port && same_address(&peer->endpoint, &flow.server)) {
		if (settings->readers && !(peer->flags & PEER_TOLD)) {
			peer->flags |= PEER_TOLD;
			tell(CHOSEN, bpf_ktime_get_ns(), &flow, &peer->service, peer->service_port, &flow.server,
			     flow.server_port, 0);
		}
		if (settings->departed)
			leave_departed(&flow, peer);
		return 1;
	}
	if (!settings->readers)
		return 1;
	talks = bpf_sk_storage_get(&udp_talks, sk, 0, 0);
	if (talks)
		tell_talk(talks, &flow);
	return 1;
}

/* From the client: to the endpoint of now. 1 when the packet was changed. */
static __always_inline int forward(struct __sk_buff *skb, const struct packet *packet, __u32 class)
{
	struct flow flow = {
		.client = packet->source,
		.server = packet->destination,
		.client_port = packet->source_port,
		.server_port = packet->destination_port,
		.protocol = packet->protocol,
	};
	struct rescue *to = bpf_map_lookup_elem(&rescues, &flow), copy;

	if (!to || to->direction != TO_ENDPOINT || to->class != class || packet->is_error)
		return 0;
	if (packet->protocol == UDP)
		to->until = bpf_ktime_get_ns() + IDLE_NS;
	copy = *to;
	if (copy.until && copy.until < bpf_ktime_get_ns())
		return 0;
	rewrite(skb, packet, 0, &copy.address, copy.port);
	return 1;
}

/* To the client: from the endpoint that its socket believes in. */
static __always_inline int backward(struct __sk_buff *skb, const struct packet *packet, __u32 class)
{
	struct flow flow = {
		.client = packet->destination,
		.server = packet->source,
		.client_port = packet->destination_port,
		.server_port = packet->source_port,
		.protocol = packet->protocol,
	};
	struct rescue *found = 0, copy = {};
	struct pending *pending;
	struct frontend_key service;
	struct config *settings;
	struct flow opened = flow;
	__u64 now;

	found = bpf_map_lookup_elem(&rescues, &flow);
	if (found && found->class != class)
		found = 0;
	if (found && found->direction == TO_ENDPOINT)
		/* The socket believes in this endpoint, but does not belong to it any more. */
		return packet->protocol == TCP && !found->until ? DROP : NEXT;
	if (found) {
		if (packet->protocol == TCP && !found->answered) {
			if (packet->is_answer)
				found->answered = 1;
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
		settings = settings_of();
		if (pending && settings && pending->class == class) {
			now = bpf_ktime_get_ns();
			service = pending->service;
			note_failure(packet->is_error ? UNREACHABLE : RESET, pending->backend, flow.client_port, now, settings->eject_ms, &opened, &service.address,
				     service.port, &flow.server, flow.server_port);
			if (rescue_pending(&opened, pending, now)) {
				/* Nothing is sent to the new one before the next timeout. */
				pending->patience = pending->tries;
				return DROP;
			}
		}
	}
	if (!found || packet->is_error || (copy.until && copy.until < bpf_ktime_get_ns()))
		return NEXT;
	rewrite(skb, packet, 1, &copy.address, copy.port);
	return NEXT;
}

SEC("tc/ingress")
int fl_ingress(struct __sk_buff *skb)
{
	struct packet packet;

	if (is_any(RESCUES)) {
		if (skb->vlan_present || !parse(skb, &packet))
			return NEXT;
		if (forward(skb, &packet, POD))
			return NEXT;
	} else if (!may_be_refusal(skb) || skb->vlan_present || !parse(skb, &packet)) {
		return NEXT;
	}
	return backward(skb, &packet, NODE);
}

SEC("tc/egress")
int fl_egress(struct __sk_buff *skb)
{
	struct packet packet;

	if (is_any(RESCUES)) {
		if (skb->vlan_present || !parse(skb, &packet))
			return NEXT;
		/* Another endpoint may be behind another device, and has another link address in any case. */
		if (forward(skb, &packet, NODE))
			return redirect(skb, packet.is_ipv6);
	} else if (!may_be_refusal(skb) || skb->vlan_present || !parse(skb, &packet)) {
		return NEXT;
	}
	return backward(skb, &packet, POD);
}

/* bpf_fib_lookup is only for programs under the GPL. */
char _license[] SEC("license") = "GPL";
