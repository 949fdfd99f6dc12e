import assert from 'node:assert/strict';
import { test } from 'node:test';
import { NftConnection } from '../../kernel/nftables/connection.ts';
import { NFPROTO } from '../../kernel/nftables/constants.ts';
import './connection-gate.netns.test.ts';

/** The same tests on a kernel whose nf_tables has an expression for queues; others have only xtables' target. */
test('this kernel’s rules queue packets themselves', () => {
  const connection = new NftConnection();
  try {
    assert.equal(connection.queueForm(NFPROTO.ipv4), 'queue');
    assert.equal(connection.queueForm(NFPROTO.ipv6), 'queue');
  } finally {
    connection.close();
  }
});
