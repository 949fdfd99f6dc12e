// SPDX-License-Identifier: Apache-2.0 OR GPL-2.0-only
/*
 * Traffic from outside to endpoints of this node. What comes in by the uplink for a Service gets the address of an
 * endpoint before the node's stack sees it, what goes out to such a client the Service's: for connection tracking and
 * nf_tables there is a flow between client and endpoint, which nobody has to translate. All that is not known here goes
 * on as it is.
 *
 * Headers are read by bpf_skb_load_bytes: it is the device's driver that decides how many bytes can be read directly.
 */
#include "choose.h"
#include "packet.h"
#include "rescue.h"
#include "uplink.h"

#define ATTEMPTS 4
/* Endpoints among which a flow of datagrams looks for its own when the frontend has changed. */
#define KNOWN 64
/* A SYN that comes again after so long was not answered. */
#define UNANSWERED_NS 500000000ull
/* An endpoint may be spoken to directly from a port that has been a Service's client for so long no more. */
#define QUIET_NS 30000000000ull

/* A packet of TCP or UDP; of an error, the packet that met it. */
struct seen {
	struct packet packet;
	__u32 network;        /* where the IP header of `packet` begins */
	__u32 outer_transport;
	__u32 identification;
	__u8 is_first;        /* of several pieces */
	__u8 is_piece;        /* a later one: no ports */
	__u8 is_syn;
	__u8 flags;
};

struct fragment_header {
	__u8 nexthdr;
	__u8 reserved;
	__be16 offset;
	__be32 identification;
};

static __always_inline struct address mapped(__be32 ip)
{
	return (struct address){ { 0, 0, bpf_htonl(0xffff), ip } };
}

/* Addresses and protocol of the packet whose IP header is at `at`. 0: none of IP. */
static __always_inline int read_network(struct __sk_buff *skb, __u32 at, int is_ipv6, struct seen *seen)
{
	struct packet *packet = &seen->packet;
	struct fragment_header piece;
	struct ipv6hdr ip6;
	struct iphdr ip4;

	seen->network = at;
	packet->is_ipv6 = is_ipv6;
	if (!is_ipv6) {
		if (bpf_skb_load_bytes(skb, at, &ip4, sizeof(ip4)) || ip4.version != 4 || ip4.ihl < 5)
			return 0;
		packet->source = mapped(ip4.saddr);
		packet->destination = mapped(ip4.daddr);
		packet->protocol = ip4.protocol;
		packet->transport = at + ip4.ihl * 4;
		seen->identification = ip4.id;
		seen->is_piece = !!(ip4.frag_off & bpf_htons(0x1fff));
		seen->is_first = !seen->is_piece && (ip4.frag_off & bpf_htons(0x2000));
		return 1;
	}
	if (bpf_skb_load_bytes(skb, at, &ip6, sizeof(ip6)) || ip6.version != 6)
		return 0;
	__builtin_memcpy(&packet->source, &ip6.saddr, sizeof(packet->source));
	__builtin_memcpy(&packet->destination, &ip6.daddr, sizeof(packet->destination));
	packet->protocol = ip6.nexthdr;
	packet->transport = at + sizeof(ip6);
	if (ip6.nexthdr != IPPROTO_FRAGMENT)
		return 1;
	if (bpf_skb_load_bytes(skb, packet->transport, &piece, sizeof(piece)))
		return 0;
	packet->protocol = piece.nexthdr;
	packet->transport += sizeof(piece);
	seen->identification = piece.identification;
	seen->is_piece = !!(piece.offset & bpf_htons(0xfff8));
	seen->is_first = !seen->is_piece;
	return 1;
}

static __always_inline int read_transport(struct __sk_buff *skb, struct seen *seen)
{
	struct packet *packet = &seen->packet;
	__be16 ports[2];
	__be16 checksum;
	__u8 flags;

	if (packet->protocol != TCP && packet->protocol != UDP)
		return 0;
	if (bpf_skb_load_bytes(skb, packet->transport, ports, sizeof(ports)))
		return 0;
	packet->source_port = ports[0];
	packet->destination_port = ports[1];
	/* Of the packet that met an error there may be no more than this. */
	if (packet->is_error)
		return 1;
	if (packet->protocol == UDP) {
		if (bpf_skb_load_bytes(skb, packet->transport + 6, &checksum, sizeof(checksum)))
			return 0;
		packet->no_checksum = !checksum;
		return 1;
	}
	if (bpf_skb_load_bytes(skb, packet->transport + 13, &flags, sizeof(flags)))
		return 0;
	seen->is_syn = (flags & 0x12) == 0x02;
	seen->flags = (flags & 0x01 ? FIN_SEEN : 0) | (flags & 0x04 ? RST_SEEN : 0);
	return 1;
}

static __always_inline int is_error_type(int is_ipv6, __u8 type)
{
	/* RFC 4443: unreachable, too big, time exceeded, parameter problem; RFC 792: 3, 11 and 12 are the same. */
	if (is_ipv6)
		return type >= ICMP6_UNREACHABLE && type <= 4;
	return type == ICMP_UNREACHABLE || type == 11 || type == 12;
}

/* 0: nothing that a Service could be concerned by. */
static __always_inline int read(struct __sk_buff *skb, struct seen *seen)
{
	struct packet *packet = &seen->packet;
	int is_ipv6 = skb->protocol == bpf_htons(ETH_P_IPV6);
	__u8 type;

	/* It is met again at the VLAN's own device. */
	if (skb->vlan_present || (!is_ipv6 && skb->protocol != bpf_htons(ETH_P_IP)))
		return 0;
	if (!read_network(skb, sizeof(struct ethhdr), is_ipv6, seen))
		return 0;
	if (seen->is_piece)
		return 1;
	if (packet->protocol != (is_ipv6 ? IPPROTO_ICMPV6 : IPPROTO_ICMP))
		return read_transport(skb, seen);
	if (seen->is_first || bpf_skb_load_bytes(skb, packet->transport, &type, sizeof(type)) ||
	    !is_error_type(is_ipv6, type))
		return 0;
	seen->outer_transport = packet->transport;
	packet->is_error = 1;
	return read_network(skb, packet->transport + 8, is_ipv6, seen) && !seen->is_piece && read_transport(skb, seen);
}

static __always_inline __u32 address_offset(int is_ipv6, int is_source)
{
	if (is_ipv6)
		return is_source ? __builtin_offsetof(struct ipv6hdr, saddr) : __builtin_offsetof(struct ipv6hdr, daddr);
	return is_source ? __builtin_offsetof(struct iphdr, saddr) : __builtin_offsetof(struct iphdr, daddr);
}

/* Writes an address into an IP header, whose own checksum is made right. */
static __always_inline void write_address(struct __sk_buff *skb, __u32 network, int is_ipv6, int is_source,
					  const struct address *old, const struct address *address)
{
	__u32 at = network + address_offset(is_ipv6, is_source);

	if (is_ipv6) {
		bpf_skb_store_bytes(skb, at, address, sizeof(*address), 0);
		return;
	}
	bpf_l3_csum_replace(skb, network + __builtin_offsetof(struct iphdr, check), old->word[3], address->word[3], 4);
	bpf_skb_store_bytes(skb, at, &address->word[3], 4, 0);
}

/*
 * Writes another source or destination into the packet that an error tells of, and into the error's own addresses where
 * they are the same. That packet's own checksum nobody looks at: mostly it is cut off.
 */
static __always_inline void rewrite_error(struct __sk_buff *skb, const struct seen *seen, int is_source,
					  const struct address *to, __be16 port)
{
	const struct packet *packet = &seen->packet;
	const struct address *old = is_source ? &packet->source : &packet->destination;
	__be16 old_port = is_source ? packet->source_port : packet->destination_port;
	__u32 checksum = seen->outer_transport + 2, at;
	struct address outer = { { 0, 0, bpf_htonl(0xffff), 0 } };
	__s64 difference;
	int is_outer;

	at = sizeof(struct ethhdr) + address_offset(packet->is_ipv6, !is_source);
	if (packet->is_ipv6 ? bpf_skb_load_bytes(skb, at, &outer, sizeof(outer)) :
			      bpf_skb_load_bytes(skb, at, &outer.word[3], 4))
		return;
	is_outer = same_address(&outer, old);
	if (packet->is_ipv6) {
		difference = bpf_csum_diff((void *)old->word, sizeof(*old), (void *)to->word, sizeof(*to), 0);
		bpf_l4_csum_replace(skb, checksum, 0, difference, 0);
		if (is_outer)
			bpf_l4_csum_replace(skb, checksum, 0, difference, BPF_F_PSEUDO_HDR);
	}
	/* In IPv4 the change of the inner header's checksum outweighs that of the address. */
	bpf_l4_csum_replace(skb, checksum, old_port, port, sizeof(port));
	bpf_skb_store_bytes(skb, packet->transport + (is_source ? 0 : sizeof(port)), &port, sizeof(port), 0);
	write_address(skb, seen->network, packet->is_ipv6, is_source, old, to);
	if (is_outer)
		write_address(skb, sizeof(struct ethhdr), packet->is_ipv6, !is_source, old, to);
}

/* Whether packets to the source leave by the device that this one came in by: elsewhere nobody translates them back. */
static __always_inline int leads_back(struct __sk_buff *skb, const struct packet *packet, const struct address *from)
{
	struct bpf_fib_lookup route = { .ifindex = skb->ifindex, .l4_protocol = packet->protocol };
	long result;

	if (packet->is_ipv6) {
		route.family = AF_INET6;
		__builtin_memcpy(route.ipv6_src, from, 16);
		__builtin_memcpy(route.ipv6_dst, &packet->source, 16);
	} else {
		route.family = AF_INET;
		route.ipv4_src = from->word[3];
		route.ipv4_dst = packet->source.word[3];
	}
	result = bpf_fib_lookup(skb, &route, sizeof(route), 0);
	return (result == BPF_FIB_LKUP_RET_SUCCESS || result == BPF_FIB_LKUP_RET_NO_NEIGH) &&
	       route.ifindex == skb->ifindex;
}

static __always_inline int is_pod(const struct uplink_config *settings, const struct address *source)
{
	__u32 differs[2] = { 0, 0 };

	for (int family = 0; family < 2; family++)
		for (int i = 0; i < 4; i++)
			differs[family] |= (source->word[i] & settings->masks[family].word[i]) ^
					   settings->pods[family].word[i];
	return !differs[0] || !differs[1];
}

static __always_inline struct uplink_frontend *frontend_of(const struct packet *packet)
{
	struct frontend_key key = {
		.address = packet->destination,
		.port = packet->destination_port,
		.protocol = packet->protocol,
	};
	struct uplink_frontend *found = bpf_map_lookup_elem(&uplink_frontends, &key);

	if (found || !bpf_map_lookup_elem(&uplink_addresses, &key.address))
		return found;
	/* Node ports are under the address of no host in their family. */
	if (!is_ipv4(&key.address))
		key.address.word[0] = key.address.word[1] = key.address.word[2] = 0;
	key.address.word[3] = 0;
	return bpf_map_lookup_elem(&uplink_frontends, &key);
}

static __always_inline struct flow flow_from(const struct packet *packet)
{
	return (struct flow){
		.client = packet->source,
		.server = packet->destination,
		.client_port = packet->source_port,
		.server_port = packet->destination_port,
		.protocol = packet->protocol,
	};
}

static __always_inline struct flow flow_to(const struct packet *packet)
{
	return (struct flow){
		.client = packet->destination,
		.server = packet->source,
		.client_port = packet->destination_port,
		.server_port = packet->source_port,
		.protocol = packet->protocol,
	};
}

/*
 * Begins a flow, or sends one elsewhere than to `avoid`: 1, and `to` is its endpoint. A client's port that reaches an
 * endpoint in another Service's name already would make the answers of both one flow: then another endpoint, or
 * nf_tables, which gives the client another port.
 */
static __always_inline int begin(struct __sk_buff *skb, const struct packet *packet, struct flow *flow,
				 const struct uplink_frontend *frontend, struct uplink_endpoint *to, int avoid, __u64 now)
{
	struct uplink_slot slot = { .frontend = frontend->id };
	__u32 count = frontend->count, start = bpf_get_prandom_u32();
	struct uplink_flow entry = { .frontend = frontend->id }, *other;
	struct uplink_endpoint *found;

	for (__u32 i = 0; i < ATTEMPTS; i++) {
		if (!count)
			return 0;
		slot.index = (start + i) % count;
		found = bpf_map_lookup_elem(&uplink_endpoints, &slot);
		if (!found)
			continue;
		if (avoid && count > 1 && found->port == to->port && same_address(&found->address, &to->address))
			continue;
		flow->server = found->address;
		flow->server_port = found->port;
		other = bpf_map_lookup_elem(&uplink_flows, flow);
		if (other && other->direction == FROM_ENDPOINT && !(other->flags & (FIN_SEEN | RST_SEEN)) &&
		    (other->port != packet->destination_port || !same_address(&other->address, &packet->destination)))
			continue;
		to->address = flow->server;
		to->port = flow->server_port;
		if (!leads_back(skb, packet, &to->address))
			return 0;
		entry.address = packet->destination;
		entry.port = packet->destination_port;
		entry.direction = FROM_ENDPOINT;
		bpf_map_update_elem(&uplink_flows, flow, &entry, BPF_ANY);
		flow->server = packet->destination;
		flow->server_port = packet->destination_port;
		entry.seen = now;
		entry.address = to->address;
		entry.port = to->port;
		entry.direction = TO_ENDPOINT;
		bpf_map_update_elem(&uplink_flows, flow, &entry, BPF_ANY);
		return 1;
	}
	return 0;
}

static __always_inline int has_endpoint(const struct uplink_frontend *frontend, const struct uplink_endpoint *wanted)
{
	struct uplink_slot slot = { .frontend = frontend->id };
	__u32 count = frontend->count;

	for (__u32 i = 0; i < KNOWN; i++) {
		struct uplink_endpoint *found;
		if (i >= count)
			break;
		slot.index = i;
		found = bpf_map_lookup_elem(&uplink_endpoints, &slot);
		if (found && found->port == wanted->port && same_address(&found->address, &wanted->address))
			return 1;
	}
	return 0;
}

/* Where a packet goes whose flow has an entry: 1, and `to` is its endpoint; BEGIN, and it is chosen, anew. */
#define BEGIN 2
#define BEGIN_ELSEWHERE 3

static __always_inline int follow(const struct seen *seen, struct flow *flow, struct uplink_flow *found,
				  const struct uplink_frontend *frontend, int is_leaving,
				  struct uplink_endpoint *to, __u64 now)
{
	const struct packet *packet = &seen->packet;
	struct uplink_flow *answers;
	int has_ended;

	to->address = found->address;
	to->port = found->port;
	if (seen->is_syn) {
		flow->server = to->address;
		flow->server_port = to->port;
		answers = bpf_map_lookup_elem(&uplink_flows, flow);
		flow->server = packet->destination;
		flow->server_port = packet->destination_port;
		has_ended = !answers || ((found->flags | answers->flags) & RST_SEEN) ||
			    (found->flags & answers->flags & FIN_SEEN);
		if (has_ended)
			return BEGIN;
		if (!answers->seen && now - found->seen > UNANSWERED_NS)
			return BEGIN_ELSEWHERE;
		/* Once more without an answer, and it goes elsewhere. */
		answers->seen = 0;
	} else if (packet->protocol == UDP && found->frontend != frontend->id && !is_leaving) {
		if (!frontend->count || !has_endpoint(frontend, to))
			return BEGIN;
		found->frontend = frontend->id;
	}
	found->seen = now;
	if (seen->flags)
		found->flags |= seen->flags;
	return 1;
}

static __always_inline int enter(struct __sk_buff *skb, const struct seen *seen, const struct uplink_config *settings)
{
	const struct packet *packet = &seen->packet;
	struct flow flow = flow_from(packet);
	struct uplink_flow *found = bpf_map_lookup_elem(&uplink_flows, &flow);
	struct uplink_frontend *known, frontend = {};
	int decision = BEGIN, is_leaving = settings->leaving;
	__u64 now = bpf_ktime_get_ns();
	struct uplink_endpoint to = {};

	if (found && found->direction == FROM_ENDPOINT) {
		/* The client speaks to the endpoint itself. */
		if ((found->flags & (FIN_SEEN | RST_SEEN)) || now - found->seen > QUIET_NS)
			bpf_map_delete_elem(&uplink_flows, &flow);
		return NEXT;
	}
	if (found && found->direction == STAY) {
		if (now - found->seen < IDLE_NS) {
			found->seen = now;
			return NEXT;
		}
		found = 0;
	}
	if (packet->protocol == UDP || seen->is_syn) {
		known = frontend_of(packet);
		if (known)
			frontend = *known;
	} else if (!found) {
		return NEXT;
	}
	if (found)
		decision = follow(seen, &flow, found, &frontend, is_leaving, &to, now);
	if (decision != 1) {
		if (found) {
			bpf_map_delete_elem(&uplink_flows, &flow);
			flow.server = to.address;
			flow.server_port = to.port;
			bpf_map_delete_elem(&uplink_flows, &flow);
		}
		if (!frontend.count || is_leaving || is_pod(settings, &packet->source) ||
		    !begin(skb, packet, &flow, &frontend, &to, decision == BEGIN_ELSEWHERE, now))
			return NEXT;
	}
	rewrite(skb, packet, 0, &to.address, to.port);
	return NEXT;
}

/* To the node: from the Service to an endpoint. */
SEC("tc/ingress")
int fl_uplink_in(struct __sk_buff *skb)
{
	struct seen seen = {};
	struct uplink_config *settings;
	struct uplink_flow *found;
	struct address address;
	struct flow flow;
	__u32 zero = 0;
	__be16 port;

	settings = bpf_map_lookup_elem(&uplink_config, &zero);
	/* What comes in pieces nf_tables puts together first. */
	if (!settings || !read(skb, &seen) || seen.is_piece || (seen.is_first && !seen.packet.is_error))
		return NEXT;
	if (!seen.packet.is_error)
		return enter(skb, &seen, settings);
	flow = flow_to(&seen.packet);
	found = bpf_map_lookup_elem(&uplink_flows, &flow);
	if (!found || found->direction != TO_ENDPOINT)
		return NEXT;
	address = found->address;
	port = found->port;
	rewrite_error(skb, &seen, 1, &address, port);
	return NEXT;
}

/* To the client: from the endpoint to the Service. */
SEC("tc/egress")
int fl_uplink_out(struct __sk_buff *skb)
{
	struct seen seen = {};
	struct uplink_piece piece = {};
	struct uplink_flow *found;
	struct address *service, address;
	struct flow flow;
	__be16 port;

	if (!read(skb, &seen))
		return NEXT;
	if (seen.is_piece || seen.is_first) {
		piece.source = seen.packet.source;
		piece.destination = seen.packet.destination;
		piece.identification = seen.identification;
		piece.protocol = seen.packet.protocol;
	}
	if (seen.is_piece) {
		service = bpf_map_lookup_elem(&uplink_pieces, &piece);
		if (!service)
			return NEXT;
		address = *service;
		write_address(skb, seen.network, seen.packet.is_ipv6, 1, &piece.source, &address);
		return NEXT;
	}
	flow = seen.packet.is_error ? flow_from(&seen.packet) : flow_to(&seen.packet);
	found = bpf_map_lookup_elem(&uplink_flows, &flow);
	if (!found || found->direction != FROM_ENDPOINT)
		return NEXT;
	address = found->address;
	port = found->port;
	if (seen.packet.is_error) {
		rewrite_error(skb, &seen, 0, &address, port);
		return NEXT;
	}
	found->seen = bpf_ktime_get_ns();
	if (seen.flags)
		found->flags |= seen.flags;
	if (seen.is_first)
		bpf_map_update_elem(&uplink_pieces, &piece, &address, BPF_ANY);
	rewrite(skb, &seen.packet, 1, &address, port);
	return NEXT;
}

/* bpf_fib_lookup is only for programs under the GPL. */
char _license[] SEC("license") = "GPL";
