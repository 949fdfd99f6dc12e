/*
 * The CNI plugin: a container runtime starts it for each call. It hands the call to the node's agent as it is, prints the
 * agent's answer, and ends with the agent's status. It has no library and no state, and decides only what the agent cannot
 * decide: what is said while no agent answers.
 *
 * The call: "NAME=VALUE\0" for each variable that begins with CNI_, "\0", then the standard input. The answer: a digit, the
 * status, then the standard output, then "\0", without which it is not complete.
 */
#include "syscall.h"

/* The agent's socket; the installer writes the path behind the equals sign, up to 107 bytes and a zero. */
#define SOCKET_MARK "fairlead-cni-socket="
static const volatile char socket_setting[sizeof(SOCKET_MARK) + 108] = SOCKET_MARK;

/* A file beside the socket, which the agent renews each minute and when it ends. */
#define STATUS_FILE ".ready"
/* STATUS succeeds for so long without an agent: an update replaces it within minutes, and ADD waits for it. */
#define READY_SECONDS 300

/* Time to wait for an agent that starts; every call may be repeated. */
#define PATIENCE_MS 60000
#define STATUS_PATIENCE_MS 1000
#define RETRY_MS 50

/* The codes of CNI's specification, section 5. */
#define TRY_AGAIN "11"
#define UNAVAILABLE "50"
#define IO_FAILURE "5"

#define MAX_INPUT (4 << 20)
#define MAX_ANSWER (4 << 20)

static char input[MAX_INPUT];
static char answer[MAX_ANSWER];
static char socket_path[108];

/* The compiler calls it for the zeros of local variables. */
__attribute__((used, no_builtin("memset"))) void *memset(void *bytes, int value, size length)
{
	for (size i = 0; i < length; i++)
		((char *)bytes)[i] = (char)value;
	return bytes;
}

static size length_of(const char *text)
{
	size length = 0;

	while (text[length])
		length++;
	return length;
}

static int begins_with(const char *text, const char *start)
{
	while (*start)
		if (*text++ != *start++)
			return 0;
	return 1;
}

static int equal(const char *a, const char *b)
{
	return begins_with(a, b) && length_of(a) == length_of(b);
}

static ssize write_all(int fd, const char *bytes, size length)
{
	size done = 0;

	while (done < length) {
		ssize count = call4(SYS_WRITE, fd, (long)bytes + done, length - done, 0);

		if (count == -EINTR)
			continue;
		if (count < 0)
			return count;
		done += count;
	}
	return 0;
}

static ssize write_text(int fd, const char *text)
{
	return write_all(fd, text, length_of(text));
}

/* Reads to the end; returns the length, or a negative error. Longer contents are an error of its own. */
static ssize read_all(int fd, char *buffer, size room)
{
	size length = 0;

	for (;;) {
		ssize count = call4(SYS_READ, fd, (long)buffer + length, room - length, 0);

		if (count == -EINTR)
			continue;
		if (count < 0)
			return count;
		if (count == 0)
			return length;
		length += count;
		if (length == room)
			return -1;
	}
}

static void leave(int status)
{
	call4(SYS_EXIT, status, 0, 0, 0);
	__builtin_unreachable();
}

static long now_ms(int clock)
{
	struct timespec now = {};

	call4(SYS_CLOCK_GETTIME, clock, (long)&now, 0, 0);
	return now.seconds * 1000 + now.nanoseconds / 1000000;
}

/* Connects to the agent; returns the socket, or a negative error. */
static ssize connect_agent(void)
{
	struct unix_address address = { .family = 1 /* AF_UNIX */ };
	ssize fd = call4(SYS_SOCKET, 1, 1 /* SOCK_STREAM */, 0, 0);
	ssize failed;

	if (fd < 0)
		return fd;
	for (size i = 0; i < sizeof(socket_path); i++)
		address.path[i] = socket_path[i];
	failed = call4(SYS_CONNECT, fd, (long)&address, sizeof(address), 0);
	if (failed < 0) {
		call4(SYS_CLOSE, fd, 0, 0, 0);
		return failed;
	}
	return fd;
}

/* Sends the call and reads the answer; returns its length, or a negative error if there is no whole answer. */
static ssize ask_agent(char **environment, size input_length)
{
	ssize fd = connect_agent();
	ssize result;

	if (fd < 0)
		return fd;
	result = 0;
	for (char **one = environment; *one && result == 0; one++)
		if (begins_with(*one, "CNI_"))
			result = write_all(fd, *one, length_of(*one) + 1);
	if (result == 0)
		result = write_all(fd, "", 1);
	if (result == 0)
		result = write_all(fd, input, input_length);
	if (result == 0)
		result = call4(SYS_SHUTDOWN, fd, 1 /* SHUT_WR */, 0, 0);
	if (result == 0)
		result = read_all(fd, answer, sizeof(answer));
	call4(SYS_CLOSE, fd, 0, 0, 0);
	if (result >= 0 && (result < 2 || answer[0] < '0' || answer[0] > '9' || answer[result - 1] != 0))
		return -1;
	return result;
}

/* Returns 1 if an agent was ready within the last minutes. */
static int was_ready(void)
{
	union file_status status = {};
	char path[sizeof(socket_path) + sizeof(STATUS_FILE)] = {};
	size length = length_of(socket_path);
	const char *end = STATUS_FILE;
	long age;

	for (size i = 0; i < length; i++)
		path[i] = socket_path[i];
	for (size i = 0; i < sizeof(STATUS_FILE); i++)
		path[length + i] = end[i];
	if (call4(SYS_NEWFSTATAT, -100 /* AT_FDCWD */, (long)path, (long)&status, 0) < 0)
		return 0;
	age = now_ms(0 /* CLOCK_REALTIME */) / 1000 - status.words[MTIME_WORD];
	return age <= READY_SECONDS;
}

/* Returns 0 if there is no folder of an agent: `fairlead cleanup` has removed it, and the devices of all pods. */
static int has_agent_folder(void)
{
	union file_status status = {};
	char path[sizeof(socket_path)] = {};
	size end = 0;

	for (size i = 1; socket_path[i]; i++)
		if (socket_path[i] == '/')
			end = i;
	for (size i = 0; i < end; i++)
		path[i] = socket_path[i];
	return call4(SYS_NEWFSTATAT, -100 /* AT_FDCWD */, (long)path, (long)&status, 0) != -ENOENT;
}

static const char *reason_of(ssize error)
{
	switch (-error) {
	case ENOENT:
		return "the socket does not exist";
	case ECONNREFUSED:
		return "nothing listens at the socket";
	case EACCES:
		return "the socket may not be used by this user";
	default:
		return "the connection ended before the answer";
	}
}

static void fail(const char *code, const char *message, const char *path, const char *details)
{
	write_text(1, "{\n  \"cniVersion\": \"1.0.0\",\n  \"code\": ");
	write_text(1, code);
	write_text(1, ",\n  \"msg\": \"");
	write_text(1, message);
	write_text(1, path);
	write_text(1, "\",\n  \"details\": \"");
	write_text(1, details);
	write_text(1, "\"\n}\n");
	leave(1);
}

/* The kernel's struct sigaction: handler, flags, restorer (unused), mask. A closed connection is an error of write(2). */
static void ignore_broken_pipes(void)
{
	long action[4] = { 1 /* SIG_IGN */ };

	call4(SYS_RT_SIGACTION, 13 /* SIGPIPE */, (long)action, 0, 8);
}

__attribute__((used)) void start(long *stack)
{
	char **environment = (char **)(stack + 1 + stack[0] + 1);
	const char *command = "";
	ssize length, result;
	long end, patience;

	ignore_broken_pipes();
	for (size i = 0; i < sizeof(socket_path) - 1; i++)
		socket_path[i] = socket_setting[sizeof(SOCKET_MARK) - 1 + i];
	for (char **one = environment; *one; one++)
		if (begins_with(*one, "CNI_COMMAND="))
			command = *one + sizeof("CNI_COMMAND=") - 1;
	length = read_all(0, input, sizeof(input));
	if (length < 0)
		fail(IO_FAILURE, "cannot read the network configuration from standard input", "", "at most 4 MiB are read");
	patience = equal(command, "STATUS") || equal(command, "VERSION") ? STATUS_PATIENCE_MS : PATIENCE_MS;
	for (end = now_ms(1 /* CLOCK_MONOTONIC */) + patience;;) {
		struct timespec pause = { 0, RETRY_MS * 1000000L };

		result = ask_agent(environment, length);
		if (result > 0) {
			if (write_all(1, answer + 1, result - 2) < 0)
				leave(1);
			leave(answer[0] - '0');
		}
		/* containerd loads no configuration of another plugin during a call: it does not wait for a removed agent. */
		if (now_ms(1) >= end || !has_agent_folder())
			break;
		call4(SYS_NANOSLEEP, (long)&pause, 0, 0, 0);
	}
	if (equal(command, "VERSION")) {
		write_text(1, "{\"cniVersion\":\"1.1.0\",\"supportedVersions\":[\"0.3.0\",\"0.3.1\",\"0.4.0\",\"1.0.0\",\"1.1.0\"]}\n");
		leave(0);
	}
	if (equal(command, "DEL") && !has_agent_folder())
		leave(0);
	if (equal(command, "STATUS") && was_ready())
		leave(0);
	fail(equal(command, "STATUS") ? UNAVAILABLE : TRY_AGAIN, "the agent of this node does not answer at ", socket_path,
	     reason_of(result));
}
