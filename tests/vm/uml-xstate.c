// Lets a user-mode kernel read and write floating-point state on processors with more of it than the kernel expects.
//
// User-mode Linux before 6.13 asks ptrace for NT_X86_XSTATE with a buffer of 2,696 bytes (arch/x86/um/os-Linux/registers.c).
// The host takes only a whole buffer when registers are set (arch/x86/kernel/fpu/regset.c: EFAULT for any other size), and
// with AMX a whole one has 11,008 bytes. Preloaded, this gives the host whole buffers and the user-mode kernel its own
// part of them; the rest, tile registers, which nothing inside uses, stays as it is.

#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdarg.h>
#include <string.h>
#include <sys/ptrace.h>
#include <sys/types.h>
#include <sys/uio.h>

#define XSTATE_REGSET 0x202
#define MAX_XSTATE (64 * 1024)

typedef long (*ptrace_call)(int, pid_t, void *, void *);

static long whole_get(ptrace_call call, pid_t pid, struct iovec *whole)
{
	return call(PTRACE_GETREGSET, pid, (void *)XSTATE_REGSET, whole);
}

long ptrace(enum __ptrace_request request, ...)
{
	static ptrace_call next;
	static __thread char buffer[MAX_XSTATE];
	va_list arguments;
	va_start(arguments, request);
	pid_t pid = va_arg(arguments, pid_t);
	void *address = va_arg(arguments, void *);
	void *data = va_arg(arguments, void *);
	va_end(arguments);

	if (!next)
		next = (ptrace_call)dlsym(RTLD_NEXT, "ptrace");
	if (address != (void *)XSTATE_REGSET || (request != PTRACE_GETREGSET && request != PTRACE_SETREGSET))
		return next(request, pid, address, data);

	struct iovec *part = data;
	struct iovec whole = { buffer, sizeof(buffer) };
	long result = whole_get(next, pid, &whole);
	if (result < 0)
		return result;
	size_t length = part->iov_len < whole.iov_len ? part->iov_len : whole.iov_len;
	if (request == PTRACE_GETREGSET) {
		memcpy(part->iov_base, buffer, length);
		part->iov_len = length;
		return result;
	}
	memcpy(buffer, part->iov_base, length);
	return next(PTRACE_SETREGSET, pid, address, &whole);
}
