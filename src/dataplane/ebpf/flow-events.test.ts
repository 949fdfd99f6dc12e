import assert from 'node:assert/strict';
import { describe, test } from 'node:test';
import { addressBytes } from '../../lib/address.ts';
import { readFlowEvent } from './flow-events.ts';
import { EVENT, EVENT_KIND } from './generated/layout.ts';

const COOKIE = 0x1_0000_0007n;
const SERVICES = { ipv4: '::ffff:10.96.0.9', ipv6: 'fd00:96::9' } as const;

/** A record of a connection that the programs refused. */
function rejected(service: string): Uint8Array {
  const record = new Uint8Array(EVENT.size);
  const view = new DataView(record.buffer);
  view.setBigUint64(EVENT.client, COOKIE, true);
  record.set(addressBytes(service) ?? [], EVENT.service);
  view.setUint16(EVENT.service_port, 80);
  record[EVENT.protocol] = 6;
  view.setUint32(EVENT.kind, EVENT_KIND.REJECTED, true);
  return record;
}

describe('an event of a refused connection', () => {
  const rows = [
    { name: 'from a pod', service: SERVICES.ipv4, known: '10.244.0.9', client: '10.244.0.9' },
    { name: 'from a namespace that is not visible', service: SERVICES.ipv4, known: null, client: '0.0.0.0' },
    { name: 'the same over IPv6', service: SERVICES.ipv6, known: null, client: '::' },
  ];
  for (const { name, service, known, client } of rows) {
    test(name, () => {
      const asked: unknown[] = [];
      const addressOf = (cookie: bigint, destination: string) => {
        asked.push([cookie, destination]);
        return known;
      };
      const event = readFlowEvent(rejected(service), { addressOf });
      assert.deepEqual(event?.client, { ip: client, port: 0 });
      assert.equal(event?.endpoint, null);
      assert.deepEqual(asked, [[COOKIE, service.replace('::ffff:', '')]]);
    });
  }
});
