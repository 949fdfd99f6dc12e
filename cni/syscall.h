/* The system calls of the CNI plugin, for the two architectures, without a C library. */
#pragma once

typedef unsigned long size;
typedef long ssize;

#if defined(__x86_64__)
enum { SYS_READ = 0, SYS_WRITE = 1, SYS_CLOSE = 3, SYS_NANOSLEEP = 35, SYS_SOCKET = 41, SYS_CONNECT = 42, SYS_SHUTDOWN = 48,
	SYS_EXIT = 231, SYS_CLOCK_GETTIME = 228, SYS_NEWFSTATAT = 262, SYS_RT_SIGACTION = 13 };

static ssize call4(long number, long a, long b, long c, long d)
{
	ssize result;
	register long fourth __asm__("r10") = d;

	__asm__ volatile("syscall" : "=a"(result) : "a"(number), "D"(a), "S"(b), "d"(c), "r"(fourth) : "rcx", "r11", "memory");
	return result;
}

/* The kernel starts a program with argc, argv and envp on the stack (System V ABI). */
__asm__(".globl _start\n_start:\n\txor %ebp, %ebp\n\tmov %rsp, %rdi\n\tand $-16, %rsp\n\tcall start\n");
#elif defined(__aarch64__)
enum { SYS_READ = 63, SYS_WRITE = 64, SYS_CLOSE = 57, SYS_NANOSLEEP = 101, SYS_SOCKET = 198, SYS_CONNECT = 203,
	SYS_SHUTDOWN = 210, SYS_EXIT = 94, SYS_CLOCK_GETTIME = 113, SYS_NEWFSTATAT = 79, SYS_RT_SIGACTION = 134 };

static ssize call4(long number, long a, long b, long c, long d)
{
	register long x8 __asm__("x8") = number;
	register long x0 __asm__("x0") = a;
	register long x1 __asm__("x1") = b;
	register long x2 __asm__("x2") = c;
	register long x3 __asm__("x3") = d;

	__asm__ volatile("svc 0" : "+r"(x0) : "r"(x8), "r"(x1), "r"(x2), "r"(x3) : "memory");
	return x0;
}

__asm__(".globl _start\n_start:\n\tmov x29, xzr\n\tmov x0, sp\n\tbl start\n");
#else
#error "the CNI plugin is built for x86_64 and aarch64"
#endif

/* asm-generic/errno.h */
enum { ENOENT = 2, EINTR = 4, EACCES = 13, ECONNREFUSED = 111 };

struct timespec {
	long seconds;
	long nanoseconds;
};

/* struct stat: the offset of st_mtime is 88 on both architectures (asm/stat.h of x86, asm-generic/stat.h). */
union file_status {
	char bytes[144];
	long words[18];
};
#define MTIME_WORD 11

/* linux/un.h */
struct unix_address {
	unsigned short family;
	char path[108];
};
