import assert from 'node:assert/strict';
import { test } from 'node:test';
import { resolveGenericFamily } from './genetlink.ts';
import { NETLINK_GENERIC, NetlinkSocket } from './netlink/socket.ts';

test('a generic netlink family is found by name', () => {
  using socket = new NetlinkSocket({ protocol: NETLINK_GENERIC });
  const family = resolveGenericFamily(socket, 'nlctrl');
  assert.equal(family.id, 16);
  assert.ok(family.groups.has('notify'));
});

test('an error names a family that this kernel lacks', () => {
  using socket = new NetlinkSocket({ protocol: NETLINK_GENERIC });
  assert.throws(() => resolveGenericFamily(socket, 'no-such'), { code: 'ENOENT', message: /no-such/ });
});
