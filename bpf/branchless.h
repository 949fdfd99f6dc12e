/* SPDX-License-Identifier: Apache-2.0 OR GPL-2.0-only */
/*
 * Decisions without branches, since the verifier would explore both outcomes to the end of the
 * program.
 */
#pragma once
#include <linux/types.h>

/*
 * Returns all ones if the highest bit is set, else 0. The empty asm keeps the compiler from turning
 * the mask into a branch, here or where it is used.
 */
static __always_inline __u32 mask_of(__u32 value)
{
	asm volatile("" : "+r"(value));
	value = -(value >> 31);
	asm volatile("" : "+r"(value));
	return value;
}

/* Returns the lesser of two numbers, both below 2^31. */
static __always_inline __u32 lesser(__u32 a, __u32 b)
{
	__u32 is_less = mask_of(a - b);

	return (a & is_less) | (b & ~is_less);
}
