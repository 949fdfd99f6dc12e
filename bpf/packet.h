/* SPDX-License-Identifier: Apache-2.0 OR GPL-2.0-only */
/* Parses packets at devices and rewrites their addresses. */
#pragma once
#include "maps.h"
#include <linux/if_ether.h>
#include <linux/in.h>
#include <linux/ip.h>
#include <linux/ipv6.h>
#include <linux/tcp.h>
#include <linux/udp.h>

#define NEXT -1 /* TCX_NEXT, TC_ACT_UNSPEC */
#define DROP 2  /* TCX_DROP, TC_ACT_SHOT */
#define AF_INET 2
#define AF_INET6 10

struct packet {
	struct address source;
	struct address destination;
	__be16 source_port;
	__be16 destination_port;
	__u32 transport; /* offset of the TCP or UDP header */
	__u32 sequence;	 /* of TCP */
	__u8 protocol;
	__u8 is_ipv6;
	__u8 is_answer;  /* SYN and ACK */
	__u8 is_refusal; /* of a SYN; or is_error */
	__u8 is_error;   /* an ICMP error about a TCP packet; the other fields are set as if the endpoint had answered */
	__u8 no_checksum;
};

static __always_inline int is_ipv4(const struct address *address)
{
	return !(address->word[0] | address->word[1] | (address->word[2] ^ bpf_htonl(0xffff)));
}

#define ICMP_UNREACHABLE 3
#define ICMP6_UNREACHABLE 1

/* A reset in answer to a SYN: with ACK and sequence number 0 (RFC 9293, section 3.10.7.1). */
static __always_inline int is_refusal(const struct tcphdr *tcp)
{
	return tcp->rst && tcp->ack && !tcp->seq;
}

/* A cheap test that excludes nearly all packets. */
static __always_inline int may_be_refusal(struct __sk_buff *skb)
{
	void *data = (void *)(long)skb->data, *end = (void *)(long)skb->data_end;
	struct ethhdr *link = data;
	struct iphdr *ip4 = (void *)(link + 1);
	struct ipv6hdr *ip6 = (void *)(link + 1);
	struct tcphdr *tcp;

	if (skb->protocol == bpf_htons(ETH_P_IP)) {
		tcp = (void *)(ip4 + 1);
		return (void *)(tcp + 1) <= end &&
		       (ip4->protocol == TCP ? is_refusal(tcp) : ip4->protocol == IPPROTO_ICMP);
	}
	tcp = (void *)(ip6 + 1);
	return (void *)(tcp + 1) <= end && (ip6->nexthdr == TCP ? is_refusal(tcp) : ip6->nexthdr == IPPROTO_ICMPV6);
}

/* Parses the packet that an ICMP error quotes after its header of eight bytes. */
static __always_inline int parse_error(void *message, void *end, struct packet *packet)
{
	struct iphdr *ip4 = message + 8;
	struct ipv6hdr *ip6 = message + 8;
	__u8 type;
	__be16 *ports;

	if (message + 8 > end)
		return 0;
	type = *(__u8 *)message;
	if (packet->is_ipv6) {
		if (type != ICMP6_UNREACHABLE || (void *)(ip6 + 1) + 4 > end || ip6->nexthdr != TCP)
			return 0;
		__builtin_memcpy(&packet->destination, &ip6->saddr, 16);
		__builtin_memcpy(&packet->source, &ip6->daddr, 16);
		ports = (void *)(ip6 + 1);
	} else {
		if (type != ICMP_UNREACHABLE || (void *)(ip4 + 1) + 4 > end || ip4->protocol != TCP || ip4->ihl != 5)
			return 0;
		packet->destination = (struct address){ { 0, 0, bpf_htonl(0xffff), ip4->saddr } };
		packet->source = (struct address){ { 0, 0, bpf_htonl(0xffff), ip4->daddr } };
		ports = (void *)(ip4 + 1);
	}
	packet->destination_port = ports[0];
	packet->source_port = ports[1];
	packet->protocol = TCP;
	packet->is_refusal = 1;
	packet->is_error = 1;
	return 1;
}

/*
 * Returns 0 for packets that are neither complete TCP or UDP packets without IP options nor ICMP
 * errors about one.
 */
static __always_inline int parse(struct __sk_buff *skb, struct packet *packet)
{
	void *data = (void *)(long)skb->data, *end = (void *)(long)skb->data_end;
	struct ethhdr *link = data;
	struct tcphdr *tcp;
	struct udphdr *udp;
	void *transport;

	if ((void *)(link + 1) > end)
		return 0;
	if (link->h_proto == bpf_htons(ETH_P_IP)) {
		struct iphdr *ip = (void *)(link + 1);
		if ((void *)(ip + 1) > end || ip->ihl != 5 || (ip->frag_off & bpf_htons(0x3fff)))
			return 0;
		packet->source = (struct address){ { 0, 0, bpf_htonl(0xffff), ip->saddr } };
		packet->destination = (struct address){ { 0, 0, bpf_htonl(0xffff), ip->daddr } };
		packet->protocol = ip->protocol;
		packet->is_ipv6 = 0;
		transport = ip + 1;
		packet->transport = sizeof(*link) + sizeof(*ip);
	} else if (link->h_proto == bpf_htons(ETH_P_IPV6)) {
		struct ipv6hdr *ip = (void *)(link + 1);
		if ((void *)(ip + 1) > end)
			return 0;
		__builtin_memcpy(&packet->source, &ip->saddr, 16);
		__builtin_memcpy(&packet->destination, &ip->daddr, 16);
		packet->protocol = ip->nexthdr;
		packet->is_ipv6 = 1;
		transport = ip + 1;
		packet->transport = sizeof(*link) + sizeof(*ip);
	} else {
		return 0;
	}
	packet->sequence = 0;
	packet->is_answer = 0;
	packet->is_refusal = 0;
	packet->is_error = 0;
	packet->no_checksum = 0;
	if (packet->protocol == (packet->is_ipv6 ? IPPROTO_ICMPV6 : IPPROTO_ICMP))
		return parse_error(transport, end, packet);
	if (packet->protocol == TCP) {
		tcp = transport;
		if ((void *)(tcp + 1) > end)
			return 0;
		packet->source_port = tcp->source;
		packet->destination_port = tcp->dest;
		packet->sequence = bpf_ntohl(tcp->seq);
		packet->is_answer = tcp->syn && tcp->ack;
		packet->is_refusal = is_refusal(tcp);
		return 1;
	}
	if (packet->protocol != UDP)
		return 0;
	udp = transport;
	if ((void *)(udp + 1) > end)
		return 0;
	packet->source_port = udp->source;
	packet->destination_port = udp->dest;
	packet->no_checksum = !udp->check;
	return 1;
}

/*
 * Hides from the verifier what it knows of a parsed packet: it would follow the rest of the program once for each way
 * through the parser, which takes a tenth of a second. `zero` is 0, from a map.
 */
static __always_inline void forget(struct packet *packet, __u32 zero)
{
	for (__u32 i = 0; i < 4; i++) {
		packet->source.word[i] ^= zero;
		packet->destination.word[i] ^= zero;
	}
	packet->source_port ^= zero;
	packet->destination_port ^= zero;
	packet->transport ^= zero;
	packet->sequence ^= zero;
	packet->protocol ^= zero;
	packet->is_ipv6 ^= zero;
	packet->is_answer ^= zero;
	packet->is_refusal ^= zero;
	packet->is_error ^= zero;
	packet->no_checksum ^= zero;
}

/* Replaces the source or destination of a packet and updates its checksums. */
static __always_inline void rewrite(struct __sk_buff *skb, const struct packet *packet, int is_source,
				    const struct address *address, __be16 port)
{
	const struct address *old = is_source ? &packet->source : &packet->destination;
	__be16 old_port = is_source ? packet->source_port : packet->destination_port;
	int is_udp = packet->protocol == UDP;
	__u32 checksum = packet->transport + (is_udp ? __builtin_offsetof(struct udphdr, check) :
							   __builtin_offsetof(struct tcphdr, check));
	__u64 flags = is_udp ? BPF_F_MARK_MANGLED_0 : 0;

	if (packet->is_ipv6) {
		struct address from = *old, to = *address;
		__s64 difference = bpf_csum_diff(from.word, sizeof(from), to.word, sizeof(to), 0);
		if (!packet->no_checksum)
			bpf_l4_csum_replace(skb, checksum, 0, difference, BPF_F_PSEUDO_HDR | flags);
		bpf_skb_store_bytes(skb,
				    sizeof(struct ethhdr) + (is_source ? __builtin_offsetof(struct ipv6hdr, saddr) :
									 __builtin_offsetof(struct ipv6hdr, daddr)),
				    &to, sizeof(to), 0);
	} else {
		__u32 from = old->word[3], to = address->word[3];
		if (!packet->no_checksum)
			bpf_l4_csum_replace(skb, checksum, from, to, BPF_F_PSEUDO_HDR | flags | sizeof(to));
		bpf_l3_csum_replace(skb, sizeof(struct ethhdr) + __builtin_offsetof(struct iphdr, check), from, to,
				    sizeof(to));
		bpf_skb_store_bytes(skb,
				    sizeof(struct ethhdr) + (is_source ? __builtin_offsetof(struct iphdr, saddr) :
									 __builtin_offsetof(struct iphdr, daddr)),
				    &to, sizeof(to), 0);
	}
	if (!packet->no_checksum)
		bpf_l4_csum_replace(skb, checksum, old_port, port, flags | sizeof(port));
	bpf_skb_store_bytes(skb, packet->transport + (is_source ? 0 : sizeof(port)), &port, sizeof(port), 0);
}

/* Routes a packet of the node itself again after its destination was replaced. */
static __always_inline int redirect(struct __sk_buff *skb, int is_ipv6)
{
	void *data = (void *)(long)skb->data, *end = (void *)(long)skb->data_end;
	struct bpf_fib_lookup route = { .ifindex = skb->ifindex };
	long result;

	if (is_ipv6) {
		struct ipv6hdr *ip = data + sizeof(struct ethhdr);
		if ((void *)(ip + 1) > end)
			return NEXT;
		route.family = AF_INET6;
		route.l4_protocol = ip->nexthdr;
		__builtin_memcpy(route.ipv6_src, &ip->saddr, 16);
		__builtin_memcpy(route.ipv6_dst, &ip->daddr, 16);
	} else {
		struct iphdr *ip = data + sizeof(struct ethhdr);
		if ((void *)(ip + 1) > end)
			return NEXT;
		route.family = AF_INET;
		route.l4_protocol = ip->protocol;
		route.ipv4_src = ip->saddr;
		route.ipv4_dst = ip->daddr;
	}
	result = bpf_fib_lookup(skb, &route, sizeof(route), 0);
	if (result != BPF_FIB_LKUP_RET_SUCCESS && result != BPF_FIB_LKUP_RET_NO_NEIGH)
		return NEXT;
	return bpf_redirect_neigh(route.ifindex, 0, 0, 0);
}
