import assert from 'node:assert/strict';
import { describe, test } from 'node:test';
import type { Mode } from '../dataplane/dataplane.ts';
import { renderShort } from './explain-text.ts';
import type { Place } from './fact-requests.ts';
import { ask, knownFactsOf, view } from './testing/explain-scene.ts';

describe('planted faults', () => {
  const nameOf = (place: Place) => (place.kind === 'node' ? place.node : place.name);
  const rows: {
    what: string;
    planted: string;
    from: string;
    to: string;
    verdict: string;
    mode?: Mode;
    says?: RegExp;
  }[] = [
    {
      what: 'a silent pod that is addressed',
      planted: 'shop/far-1',
      from: 'shop/client-1',
      to: 'shop/far-1',
      verdict: 'dropped',
      says: /because a planted fault silences pod shop\/far-1: it gets no packets\n {2}fix: fairlead fault undo/,
    },
    {
      what: 'a silent pod among the endpoints of a Service',
      planted: 'shop/web-1',
      from: 'shop/client-1',
      to: 'svc/web:80',
      verdict: 'partial',
      says: /shop\/web-1 +dropped by a planted fault/,
    },
    {
      what: 'a silent pod among the endpoints, and a proxy that tries the next one',
      planted: 'shop/web-1',
      from: 'shop/client-1',
      to: 'svc/web:80',
      verdict: 'delivered',
      mode: 'userspace',
    },
    {
      what: 'a silent pod that sends',
      planted: 'shop/client-1',
      from: 'shop/client-1',
      to: 'svc/web:80',
      verdict: 'dropped',
      says: /silences pod shop\/client-1/,
    },
    {
      what: 'a silent pod that sends to a port which refuses: the refusal does not arrive',
      planted: 'shop/client-1',
      from: 'shop/client-1',
      to: 'svc/web:81',
      verdict: 'dropped',
    },
    {
      what: 'a silent pod that sends to a Service without endpoints',
      planted: 'shop/client-1',
      from: 'shop/client-1',
      to: 'svc/slow:80',
      verdict: 'dropped',
    },
    {
      what: 'eBPF mode: it is refused at the socket, without a packet',
      planted: 'shop/client-1',
      from: 'shop/client-1',
      to: 'svc/slow:80',
      verdict: 'rejected',
      mode: 'ebpf',
    },
    {
      what: 'a silent pod that reaches itself over loopback',
      planted: 'shop/web-1',
      from: 'shop/web-1',
      to: 'pod/shop/web-1:8080',
      verdict: 'delivered',
    },
    {
      what: 'eBPF mode: a silent pod that reaches itself through its Service, but not the other endpoint',
      planted: 'shop/web-1',
      from: 'shop/web-1',
      to: 'svc/web:80',
      verdict: 'partial',
      mode: 'ebpf',
    },
    {
      what: 'a pod on another node, behind a cut link',
      planted: 'node-2',
      from: 'shop/client-1',
      to: 'shop/far-1',
      verdict: 'dropped',
      says: /because a planted fault cuts the uplink of node-2\n {2}fix: fairlead fault undo/,
    },
    {
      what: 'a pod on the same node as the sender, whose link is cut',
      planted: 'node-1',
      from: 'shop/client-1',
      to: 'shop/web-1',
      verdict: 'delivered',
    },
    {
      what: 'an endpoint on this node and one beyond the cut link',
      planted: 'node-1',
      from: 'shop/client-1',
      to: 'svc/web:80',
      verdict: 'partial',
    },
    {
      what: 'a node port of a cut node, from outside',
      planted: 'node-2',
      from: 'outside',
      to: 'node/node-2:30080',
      verdict: 'dropped',
    },
    {
      what: 'a node port of a cut node, from a pod of another node',
      planted: 'node-2',
      from: 'shop/client-1',
      to: 'node/node-2:30080',
      verdict: 'dropped',
    },
    {
      what: 'a host outside, from a pod of a cut node',
      planted: 'node-1',
      from: 'shop/client-1',
      to: '198.51.100.7:80',
      verdict: 'dropped',
    },
    {
      what: 'a link that is cut elsewhere',
      planted: 'node-2',
      from: 'shop/client-1',
      to: 'shop/web-1',
      verdict: 'delivered',
    },
  ];
  for (const { what, planted, from, to, verdict, mode = 'nftables', says } of rows) {
    test(what, () => {
      const facts = knownFactsOf({}, { fault: (place) => nameOf(place) === planted });
      const explanation = ask(view({ facts, mode: () => mode }), from, to);
      assert.equal(explanation.verdict, verdict, renderShort(explanation));
      if (says) assert.match(renderShort(explanation), says);
    });
  }
});
