import { encodeMessage } from '../encode.ts';
import { CLASS_IN, type ResourceRecord, TYPE } from '../message.ts';
import { queryBytes } from './client.ts';

/**
 * Yields DNS messages with random bytes changed, truncated and turned into pointers, deterministic for a
 * seed.
 */
export function malformedPackets(seed: number): () => Buffer {
  const edns = { udpSize: 1232, version: 0, dnssecOk: true };
  const record = (name: string, type: number, data: ResourceRecord['data']) => {
    return { name, type, class: CLASS_IN, ttl: 5, data };
  };
  const seeds = [
    queryBytes('web.shop.svc.cluster.local A'),
    queryBytes('_http._tcp.web.shop.svc.cluster.local SRV', { edns }),
    queryBytes('1.0.96.10.in-addr.arpa PTR', { edns }),
    encodeMessage({
      header: {
        id: 7,
        response: true,
        opcode: 0,
        authoritative: true,
        truncated: false,
        recursionDesired: true,
        recursionAvailable: true,
        authenticData: false,
        checkingDisabled: false,
        rcode: 0,
      },
      question: { name: 'a.b.c', type: TYPE.A, class: CLASS_IN },
      answers: [
        record('x.a.b.c', TYPE.CNAME, { target: 'y.b.c' }),
        record('b.c', TYPE.SRV, { priority: 1, weight: 1, port: 1, target: 'b.c' }),
      ],
      authorities: [],
      additionals: [],
      edns: null,
    }),
  ];
  const random = generator(seed);
  let next = 0;
  return () => mutate(seeds[next++ % seeds.length] ?? Buffer.alloc(0), random);
}

/** Returns a small random number generator (mulberry32). */
function generator(seed: number): () => number {
  let state = seed;
  return () => {
    state = (state + 0x6d2b79f5) | 0;
    let t = Math.imul(state ^ (state >>> 15), 1 | state);
    t = (t + Math.imul(t ^ (t >>> 7), 61 | t)) ^ t;
    return ((t ^ (t >>> 14)) >>> 0) / 4294967296;
  };
}

function mutate(seed: Buffer, random: () => number): Buffer {
  const below = (limit: number) => Math.floor(random() * limit);
  const packet = Buffer.from(seed);
  for (let edits = 1 + below(4); edits > 0; edits--) {
    const at = below(packet.length);
    switch (below(4)) {
      case 0:
        packet[at] = below(256);
        break;
      case 1:
        packet[at] = (packet[at] ?? 0) ^ (1 << below(8));
        break;
      case 2:
        packet[at] = 0xc0 | below(2);
        break;
      default:
        packet[at] = [0, 1, 63, 64, 255][below(5)] ?? 0;
    }
  }
  return random() < 0.3 ? packet.subarray(0, below(packet.length + 1)) : packet;
}
