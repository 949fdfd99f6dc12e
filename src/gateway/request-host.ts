/**
 * Returns the host of a Host header (or :authority) in lower case and without its port: what routes are chosen by. Null for
 * what is refused with 400: nothing, user names, anything but letters, digits, "-", "_", "." and IPv6 addresses in brackets.
 * A final dot stays, so such a host has only the routes without hostname.
 */
export function readHost(value: string): string | null {
  const [, host] = HOST.exec(value) ?? [];
  return host === undefined ? null : host.toLowerCase();
}

/** In the syntax that JavaScript and PCRE2 share; the first group is the host. */
export const HOST_SYNTAX = '^([A-Za-z0-9_.-]{1,255}|\\[[0-9A-Fa-f:.]{2,45}\\])(?::[0-9]{1,5})?$';

const HOST = new RegExp(HOST_SYNTAX);
