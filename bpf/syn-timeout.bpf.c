// SPDX-License-Identifier: Apache-2.0 OR GPL-2.0-only
/*
 * A short timer for the first packets of connections to Services, for modes whose connections connection tracking has: the
 * agent deletes the entry of a SYN that an endpoint does not answer, and the next SYN, a tenth of a second later, goes to
 * another endpoint. The eBPF mode has this in fl_sock_ops.
 *
 * Only sockets that connect are concerned: SYN-ACKs keep the kernel's timer.
 */
#include <linux/bpf.h>
#include <linux/types.h>
#include <bpf/bpf_endian.h>
#include <bpf/bpf_helpers.h>

#define AF_INET 2

/* A key of a longest-prefix map. The address has 16 bytes in network order, IPv4 as ::ffff:a.b.c.d. */
struct network {
	__u32 prefix_length;
	__u32 address[4];
};

struct network_timer {
	__u32 syn_timeout; /* in jiffies */
};

/* The networks of cluster IPs. The agent makes a new map, and loads the program again, when they change. */
struct {
	__uint(type, BPF_MAP_TYPE_LPM_TRIE);
	__type(key, struct network);
	__type(value, struct network_timer);
	__uint(max_entries, 1);
	__uint(map_flags, BPF_F_NO_PREALLOC);
} service_networks SEC(".maps");

/* Reads a field of the context here: the verifier refuses an address that the compiler computed from two fields. */
#define READ(field) (*(const volatile __u32 *)&(field))

SEC("sockops")
int fl_syn_timeout(struct bpf_sock_ops *ctx)
{
	struct network network = { .prefix_length = 128 };
	struct network_timer *timer;
	__u32 ip4, a, b, c, d;

	if (ctx->op != BPF_SOCK_OPS_TIMEOUT_INIT || !ctx->is_fullsock || ctx->state != BPF_TCP_SYN_SENT)
		return 1;
	ip4 = READ(ctx->remote_ip4);
	a = READ(ctx->remote_ip6[0]);
	b = READ(ctx->remote_ip6[1]);
	c = READ(ctx->remote_ip6[2]);
	d = READ(ctx->remote_ip6[3]);
	/* A socket of IPv6 with an IPv4 peer has it as an IPv6 address already. */
	if (ctx->family == AF_INET) {
		a = b = 0;
		c = bpf_htonl(0xffff);
		d = ip4;
	}
	network.address[0] = a;
	network.address[1] = b;
	network.address[2] = c;
	network.address[3] = d;
	timer = bpf_map_lookup_elem(&service_networks, &network);
	/* Without a match, the reply of another program at the control group stays. */
	if (timer)
		ctx->reply = timer->syn_timeout;
	return 1;
}

char _license[] SEC("license") = "Apache-2.0";
