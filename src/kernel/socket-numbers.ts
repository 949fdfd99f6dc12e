// Numbers for socket(2) and setsockopt(2), from bits/socket.h, linux/in.h and asm-generic/socket.h.
export const AF_INET = 2;
export const AF_INET6 = 10;
export const SOCK_RAW = 3;
export const SOCK_CLOEXEC = 0o2000000;
export const SOL_SOCKET = 1;
export const IPPROTO_RAW = 255;
